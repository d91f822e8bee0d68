"""The cost of messages for the processors at both ends, where a device names it.

Each message that a step takes from another place, or sends to one, keeps its device busy for
`message_overhead_s`, within the step. Source: the overhead o of LogP (Culler and others, 1993),
for which a processor is engaged in sending or receiving a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ampsim.ir import Direction, Graph, Sends
from ampsim.machine import Begun
from ampsim.model_parallel.controller import BY_CONTROLLER
from ampsim.model_parallel.placed_node import FarPorts, Message
from ampsim.model_parallel.worker import Worker
from ampsim.trace import Recorder

UPDATE, BACKWARD, FORWARD = Direction


def far_ports(graph: Graph, placement: Sequence[int], place: int) -> FarPorts:
    """Mark the ports of the node at `place` that lead to another worker, or to the host."""
    own = placement[place]
    return {
        FORWARD: tuple(placement[source] != own for source, _port in graph.sources[place]),
        BACKWARD: tuple(placement[target] != own for target, _port in graph.targets[place]),
    }


class WithMessageOverhead:
    """The tasks of a worker, each as much longer as its messages cost."""

    __slots__ = ("_begin", "_overhead_s", "_recorder", "_worker", "do_free", "queues")

    def __init__(self, worker: Worker, overhead_s: float, recorder: Recorder) -> None:
        self.queues: dict[Any, deque[Any]] = worker.queues
        self._begin, self.do_free = worker.begin, worker.do_free
        self._overhead_s, self._worker, self._recorder = overhead_s, worker, recorder

    @property
    def has_free(self) -> bool:
        """See `Worker`."""
        return self._worker.has_free

    def begin(self, kind: Direction, queue: deque[Message]) -> Begun:
        """Take a task; its messages come on top."""
        seconds, what = self._begin(kind, queue)
        direction, message, served = what[:3]
        return seconds + self._overhead_s * messages(direction, message, served[0]), what

    def end(self, task: Begun) -> None:
        """End a task; over free links no transfer tells of its messages."""
        direction, message, served = task[1][:3]
        number = self._recorder.spans.count
        self._recorder.note_messages(number, messages(direction, message, served[0]))
        self._worker.end(task)


def messages(direction: Direction, message: Message, sends: Sends) -> int:
    """Count the messages that a step takes from another place, and sends to one."""
    placed, port, state, _payload, _cause = message
    if direction is UPDATE:  # the controller's order and its acknowledgement, or nothing
        return 2 if state is BY_CONTROLLER else 0
    routes, far = placed.routes(direction), placed.far
    taken = far is not None and far[direction][port]
    return taken + sum(routes[to][1].worker != placed.worker for to, _state, _sent in sends)
