"""What the next step of a worker will take, for devices that may lose it and do it again.

A stop that takes weights back to a checkpoint is looked for before a step begins, since what a step
has computed is not undone (`ampsim.machine.checkpoints`).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ampsim.ir import Direction
from ampsim.machine import Begun, Tasks
from ampsim.model_parallel.message_overhead import messages
from ampsim.model_parallel.placed_node import Message
from ampsim.model_parallel.price import WAITS, Extents
from ampsim.model_parallel.step import Served
from ampsim.model_parallel.worker import Worker
from ampsim.user_code import OURS_TO_PASS


class Foretelling:
    """The tasks of a worker, of which it can say what the next one takes.

    Args:
        tasks: the worker's, with what its messages cost.
        worker: whose tasks they are; it serves messages one by one.
        overhead_s: what each message from or to another place costs it.
    """

    __slots__ = ("_overhead_s", "_tasks", "_worker", "begin", "do_free", "end", "queues")

    def __init__(self, tasks: Tasks, worker: Worker, overhead_s: float) -> None:
        self.queues: dict[Any, deque[Any]] = tasks.queues
        self.begin, self.end, self.do_free = tasks.begin, tasks.end, tasks.do_free
        self._tasks, self._worker, self._overhead_s = tasks, worker, overhead_s

    @property
    def has_free(self) -> bool:
        """As of the worker."""
        return self._tasks.has_free

    def foretold_s(self, kind: Direction, queue: deque[Message]) -> float:
        """Seconds of the step of the first message, where its node has parameters; else 0.

        The step is taken to send one message by each of its ports. One that turns out only to wait
        for other messages takes none.
        """
        message = queue[0]
        placed, _port, state, _payload, _cause = message
        if placed.learner is None:
            return 0.0
        try:
            needed = placed.needed(kind, state)
            seconds = placed.prices.price(kind, _shape(kind, message), needed).seconds
        except OURS_TO_PASS:
            raise
        except BaseException as error:
            raise self._worker.failed(placed, kind, state, error) from error
        if not self._overhead_s:
            return seconds
        sends = [(port, state, None) for port in range(len(placed.routes(kind)))]
        return seconds + self._overhead_s * messages(kind, message, sends)

    def only_waited(self, task: Begun) -> bool:
        """Whether a step that has begun only waits for other messages at its node."""
        served: Served = task[1][2]
        return served.charged is WAITS


def _shape(direction: Direction, message: Message) -> Extents:
    """What a step of a node with parameters will be charged for, unless it waits."""
    placed, _port, _state, payload, _cause = message
    if direction is Direction.UPDATE:
        assert placed.learner is not None
        rows = placed.learner.rows_touched
        return None if rows is None else (rows,)
    return None if payload is None else payload.shape
