"""Routes of messages between nodes, and barriers that wait for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ampsim.clock import Clock
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, Node, ParameterizedNode
from ampsim.machine import Processor
from ampsim.model_parallel.budget import Debt
from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.footprint import MESSAGES
from ampsim.model_parallel.job import Job, RunSettings
from ampsim.model_parallel.lanes import HostLane, Lanes
from ampsim.model_parallel.memories import SharedMachine
from ampsim.model_parallel.order import OrderLog
from ampsim.model_parallel.placed_node import (
    Accept,
    Message,
    PlacedNode,
    Route,
    Routes,
    RouteTable,
    plain,
    send,
)
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.worker import TurnQueue, Worker
from ampsim.trace import Cause, Recorder


class Barrier:
    """Holds what losses send, until it is told to let go.

    It lets go when nothing else is left to do: then all in flight have ended their forward steps,
    whatever the loops and branches of the graph, and not a moment later.
    """

    def __init__(self) -> None:
        self._held: list[tuple[Route, int, Message]] = []

    def before(self, route: Route, source: int) -> Route:
        """Return a route from node `source` that ends here instead of where `route` does.

        What is held lies in the memory of its sender.
        """

        def accept(message: Message) -> None:
            self._held.append((route, source, message))

        memories = None if route.memories is None else (None, route.memories[0])
        return Route(accept, route.placed, route.port, None, False, None, memories)

    def let_go(self, cause: Cause) -> bool:
        """Send what is held, the last first, after `cause`; tell whether there was anything."""
        held, self._held = self._held, []
        for route, source, (_placed_node, _port, state, payload, _cause) in reversed(held):
            memory = None if route.memories is None else route.memories[0]
            if memory is not None and payload is not None:
                memory.give(MESSAGES, payload.nbytes)
            send([route], source, ((0, state, payload),), cause)
        return bool(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssemblySetup:
    """The parts that an assembly is built from.

    Args:
        order: takes down what steps of training read; None where nobody asks.
        host: what the controller runs on; None where it acts at once.
        stages: places of the nodes that are stages, in order; none where the schedule has none.
        debts: what is owed to the oldest nodes, where the schedule has a staleness budget.
        resident_bytes: of weights, by worker.
    """

    job: Job
    cluster: Cluster
    placement: Sequence[int]
    schedule: Schedule
    recorder: Recorder
    settings: RunSettings
    shared: SharedMachine
    order: OrderLog | None
    lanes: Lanes
    host: HostLane | None
    stages: Sequence[int]
    debts: Mapping[ParameterizedNode, Debt]
    resident_bytes: Mapping[int, int]

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes, in the graph's order."""
        return self.job.graph.nodes

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self.settings.clock


@dataclass(frozen=True, slots=True)
class Wiring:
    """Connects the placed nodes: `connect` gives each its routes.

    Args:
        placed_nodes: every node where it runs, in the graph's order.
        seconds: of split backward steps, the second half of a node, by its place.
        barrier: holds gradients back; None where they go on at once.
    """

    setup: AssemblySetup
    controller: Controller
    workers: Mapping[int, Worker]
    placed_nodes: Sequence[PlacedNode]
    seconds: Mapping[int, PlacedNode]
    barrier: Barrier | None

    def connect(self) -> None:
        """Give every placed node its routes, and the controller those of its node."""
        tables = [self._tables(placed) for placed in self.placed_nodes]
        for place, second in self.seconds.items():
            hand_on = self._hand_on(self.placed_nodes[place], second)
            word, backward, forward = tables[place][0]
            with_second = word, [*backward, *plain([hand_on])], forward
            tables[place] = with_second, with_second
            receive = self.controller.receive
            ended = (), plain([Route(receive, second, 0, None, True, None)]), ()
            second.connect(ended, ended)
        for placed, (training, validation) in zip(self.placed_nodes, tables, strict=True):
            placed.connect(training, validation)
        updates = [
            (placed, self._route(HOST, placed, 0, Direction.UPDATE))
            for placed in self.placed_nodes
            if placed.learner is not None
        ]
        self.controller.connect(tables[0][0][Direction.FORWARD], updates)

    def _tables(self, placed: PlacedNode) -> tuple[RouteTable, RouteTable]:
        """The routes of a placed node in training, and in validation.

        A loss turns the message around: in training it sends gradients to its inputs, in validation
        word to the controller that it has ended.
        """
        targets, sources = (
            self.setup.job.graph.targets[placed.index],
            self.setup.job.graph.sources[placed.index],
        )
        forward = plain(
            self._route(placed.worker, self.placed_nodes[target], port, Direction.FORWARD)
            for target, port in targets
        )
        to_sources = [
            self._route(placed.worker, self.placed_nodes[source], port, Direction.BACKWARD)
            for source, port in sources
        ]
        backward = plain(to_sources)
        if placed.is_loss:
            word = self._to_controller(placed, self.controller.receive, Direction.FORWARD)
            gradients = plain(self._held(to_sources, placed.index))
            return ((), backward, gradients), ((), backward, word)
        word: Routes = ()
        if placed.learner is not None:
            word = self._to_controller(placed, self.controller.acknowledged, Direction.UPDATE)
        table = word, backward, forward
        return table, table

    def _hand_on(self, first: PlacedNode, second: PlacedNode) -> Route:
        """The route from the first half of a backward step to the second, with turns as p + s.

        Word that the second has ended reaches the controller at once.
        """
        stage = len(self.setup.stages) + self.setup.stages.index(first.index)
        accept = self._turn_queue(first).acceptor(second, stage, Direction.BACKWARD)
        accept, _wakes = self.setup.lanes.issued(second, accept, None, Direction.BACKWARD)
        memories = self.setup.shared.memories.between(first.worker, second.worker)
        return Route(accept, second, 0, None, False, None, memories)

    def _turn_queue(self, placed: PlacedNode) -> TurnQueue:
        turn_queue = self.workers[placed.worker].turn_queue
        assert turn_queue is not None
        return turn_queue

    def _held(self, routes: Sequence[Route], source: int) -> Sequence[Route]:
        """The routes of a loss's gradients; through the barrier, where there is one."""
        if self.barrier is None:
            return routes
        return [self.barrier.before(route, source) for route in routes]

    def _to_controller(
        self, placed: PlacedNode, take: Callable[[Message], None], direction: Direction
    ) -> Routes:
        shared = self.setup.shared
        is_told = not shared.updates_by_itself or direction is not Direction.UPDATE
        channel = shared.fabric.channel(placed.worker, HOST) if is_told else None
        memories = shared.memories.between(placed.worker, HOST)
        taken = self._taken(take, direction)
        return plain([Route(taken, self.placed_nodes[0], 0, None, True, channel, memories)])

    def _taken(self, take: Callable[[Message], None], direction: Direction) -> Accept:
        """Return the acceptor of messages to the controller: the host's, where it takes time."""
        return take if self.setup.host is None else self.setup.host.acceptor(take, direction)

    def _route(self, source: int, placed: PlacedNode, port: int, direction: Direction) -> Route:
        shared = self.setup.shared
        is_ordered = not shared.updates_by_itself or direction is not Direction.UPDATE
        channel = shared.fabric.channel(source, placed.worker) if is_ordered else None
        memories = shared.memories.between(source, placed.worker)
        if placed.worker == HOST:
            taken = self._taken(self.controller.receive, direction)
            return Route(taken, placed, port, None, True, channel, memories)
        worker = self.workers[placed.worker]
        is_free = placed.is_free and direction is not Direction.UPDATE
        wakes: Processor | None = worker.processor
        accept: Accept = worker.queue(placed, direction).append
        if placed.has_turns and direction is not Direction.UPDATE:
            stage = self.setup.stages.index(placed.index)
            accept, wakes = self._turn_queue(placed).acceptor(placed, stage, direction), None
        if not is_free:
            accept, wakes = self.setup.lanes.issued(placed, accept, wakes, direction)
        return Route(accept, placed, port, wakes, is_free, channel, memories)
