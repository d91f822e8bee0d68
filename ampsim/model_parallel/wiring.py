"""Wiring: the routes between placed nodes, and from and to the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ampsim.hardware import HOST
from ampsim.ir import Direction, Graph
from ampsim.machine import Fabric, Processor
from ampsim.model_parallel.barrier import Barrier
from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.host import HostLane
from ampsim.model_parallel.lanes import Lanes
from ampsim.model_parallel.placed_node import Accept, Message, PlacedNode, Route, plain
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.worker import Worker
from ampsim.model_parallel.worker_memories import WorkerMemories


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What routes lead past; `wire` gives every placed node its own.

    Args:
        graph: what is wired.
        placed_nodes: every node where it runs, in the graph's order.
        seconds: of split backward steps, the second half of a node, by its place.
        stages: the stage of each node that has one, by its place.
        workers: one for each device.
        first: the number of the first of them.
        controller: admits instances, and takes back what returns.
        host: what the controller runs on; None where it acts at once.
        fabric: the links.
        memories: of the workers.
        lanes: of the devices.
        barrier: holds gradients back; None where they go on at once.
    """

    graph: Graph
    placed_nodes: Sequence[PlacedNode]
    seconds: Mapping[int, PlacedNode]
    stages: Mapping[int, int]
    workers: Sequence[Worker]
    first: int
    controller: Controller
    host: HostLane | None
    fabric: Fabric
    memories: WorkerMemories
    lanes: Lanes
    barrier: Barrier | None

    def wire(self) -> None:
        """Give every placed node its routes."""
        graph, placed_nodes = self.graph, self.placed_nodes
        for placed, targets, sources in zip(
            placed_nodes, graph.targets, graph.sources, strict=True
        ):
            placed.forward_routes = plain(
                self._route(placed.worker, placed_nodes[target], port, Direction.FORWARD)
                for target, port in targets
            )
            backward_routes = [
                self._route(placed.worker, placed_nodes[source], port, Direction.BACKWARD)
                for source, port in sources
            ]
            placed.backward_routes = plain(backward_routes)
            if placed.is_loss:  # it turns the message around: what it sends goes to its inputs
                placed.gradient_routes = plain(self._held(backward_routes, placed.index))
                placed.report_routes = [
                    self._to_controller(placed, self.controller.receive, Direction.FORWARD)
                ]
            elif placed.learner is not None:
                placed.report_routes = [
                    self._to_controller(placed, self.controller.acknowledged, Direction.UPDATE)
                ]
        for place, second in self.seconds.items():
            self._wire_second(placed_nodes[place], second)
        self.controller.routes = placed_nodes[0].forward_routes
        self.controller.update_routes = [
            (placed, self._route(HOST, placed, 0, Direction.UPDATE))
            for placed in placed_nodes
            if placed.learner is not None
        ]

    def _wire_second(self, first: PlacedNode, second: PlacedNode) -> None:
        """Let the first half of a backward step hand on to the second, with turns as stage p + s.

        Word that the second has ended reaches the controller at once.
        """
        stage = len(self.stages) + self.stages[first.index]
        accept = self._turn_queue(first).acceptor(second, stage, Direction.BACKWARD)
        accept, _wakes = self.lanes.issued(second, accept, None, Direction.BACKWARD)
        memories = self.memories.between(first.worker, second.worker)
        hand_on = Route(accept, second, 0, None, False, None, memories)
        first.backward_routes = [*first.backward_routes, hand_on]
        receive = self.controller.receive
        second.backward_routes = [Route(receive, second, 0, None, is_free=True, channel=None)]

    def _turn_queue(self, placed: PlacedNode) -> TurnQueue:
        """Where the messages of a placed node that has turns wait."""
        turn_queue = self.workers[placed.worker - self.first].turn_queue
        assert turn_queue is not None
        return turn_queue

    def _held(self, routes: Sequence[Route], source: int) -> Sequence[Route]:
        """The routes of a loss's gradients; through the barrier, where there is one."""
        if self.barrier is None:
            return routes
        return [self.barrier.before(route, source) for route in routes]

    def _to_controller(
        self, placed: PlacedNode, take: Callable[[Message], None], direction: Direction
    ) -> Route:
        """The route from `placed` to the controller, whose method `take` takes the message."""
        channel = self.fabric.channel(placed.worker, HOST)
        memories = self.memories.between(placed.worker, HOST)
        taken = self._taken(take, direction)
        return Route(taken, self.placed_nodes[0], 0, None, True, channel, memories)

    def _taken(self, take: Callable[[Message], None], direction: Direction) -> Accept:
        """Who accepts messages to the controller: the host, where that takes time."""
        return take if self.host is None else self.host.acceptor(take, direction)

    def _route(self, source: int, placed: PlacedNode, port: int, direction: Direction) -> Route:
        """The route from worker `source` to a port of `placed`."""
        channel = self.fabric.channel(source, placed.worker)
        memories = self.memories.between(source, placed.worker)
        if placed.worker == HOST:
            taken = self._taken(self.controller.receive, direction)
            return Route(taken, placed, port, None, True, channel, memories)
        worker = self.workers[placed.worker - self.first]
        is_free = placed.is_free and direction is not Direction.UPDATE
        wakes: Processor | None = worker.processor
        accept: Accept = worker.queue(placed, direction).append
        if placed.has_turns and direction is not Direction.UPDATE:
            stage = self.stages[placed.index]
            accept, wakes = self._turn_queue(placed).acceptor(placed, stage, direction), None
        if not is_free:
            accept, wakes = self.lanes.issued(placed, accept, wakes, direction)
        return Route(accept, placed, port, wakes, is_free, channel, memories)
