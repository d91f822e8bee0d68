"""What messages cost the processors at both ends, where a device names it.

Each message that a step takes from another place, or sends to one, keeps its device busy for
`message_overhead_s`, within the step. Source: the overhead o of LogP (Culler and others, 1993),
for which a processor is engaged in sending or receiving a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ampsim.ir import Direction, Graph, Sends
from ampsim.machine import Begun
from ampsim.model_parallel.controller import BY_CONTROLLER
from ampsim.model_parallel.placed_node import Message, PlacedNode, Routes
from ampsim.model_parallel.worker import Worker

FarPorts: TypeAlias = "Mapping[Direction, Sequence[bool]]"
"""For each port of a node, by the direction of what it takes, whether that is from another place.
"""

UPDATE, BACKWARD, FORWARD = Direction


def far_ports(graph: Graph, placement: Sequence[int], place: int) -> FarPorts:
    """Which messages to the node at `place` come from another worker, or from the host."""
    own = placement[place]
    return {
        FORWARD: tuple(placement[source] != own for source, _port in graph.sources[place]),
        BACKWARD: tuple(placement[target] != own for target, _port in graph.targets[place]),
    }


class WithMessageOverhead:
    """The tasks of a worker, each as much longer as its messages cost.

    Args:
        worker: the tasks themselves; it serves messages one by one.
        overhead_s: of its device, for each message.
        far: by placed node; one that is not there takes nothing from another place.
    """

    __slots__ = (
        "_begin", "_far", "_foretold_s", "_overhead_s", "do_free", "end", "only_waited", "queues",
    )  # fmt: skip

    def __init__(
        self, worker: Worker, overhead_s: float, far: Mapping[PlacedNode, FarPorts]
    ) -> None:
        self.queues: dict[Any, deque[Any]] = worker.queues
        self._begin, self.end, self.do_free = worker.begin, worker.end, worker.do_free
        self._foretold_s, self.only_waited = worker.foretold_s, worker.only_waited
        self._overhead_s, self._far = overhead_s, far

    def begin(self, kind: Direction, queue: deque[Message]) -> Begun:
        """Take a task; its messages come on top."""
        seconds, what = self._begin(kind, queue)
        direction, message, served = what[:3]
        return seconds + self._overhead_s * self._messages(direction, message, served.sends), what

    def foretold_s(self, kind: Direction, queue: deque[Message]) -> float:
        """As of the worker, where a step sends one message by each of its ports."""
        seconds, message = self._foretold_s(kind, queue), queue[0]
        placed = message[0]
        if placed.learner is None:
            return seconds
        routes: Routes = placed.backward_routes if kind is BACKWARD else placed.forward_routes
        sends = [(port, message[2], None) for port in range(len(routes))]
        return seconds + self._overhead_s * self._messages(kind, message, sends)

    def _messages(self, direction: Direction, message: Message, sends: Sends) -> int:
        """How many a step takes from another place, and sends to one."""
        placed, port, state, _payload, _cause = message
        if direction is UPDATE:  # the controller's order and its acknowledgement, or nothing
            return 2 if state is BY_CONTROLLER else 0
        routes: Routes = placed.backward_routes if direction is BACKWARD else placed.forward_routes
        far = self._far.get(placed)
        taken = far is not None and far[direction][port]
        return taken + sum(routes[to][1].worker != placed.worker for to, _state, _sent in sends)
