"""The engine: a graph on a cluster under a schedule, ready to make passes over data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ampsim.clock import Clock
from ampsim.errors import OptionError, StuckError
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, Graph
from ampsim.machine import Fabric
from ampsim.model_parallel.barrier import Barrier
from ampsim.model_parallel.budget import budget_of
from ampsim.model_parallel.controller import Controller, PassTotals
from ampsim.model_parallel.diagnosis import why_stuck
from ampsim.model_parallel.grouping import merge_groups
from ampsim.model_parallel.prediction import Prediction
from ampsim.model_parallel.pump import Pump, without_numbers
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_known_nodes
from ampsim.model_parallel.schedules.turns import WorkerStages
from ampsim.model_parallel.site import Entry, Route, Site, keep_weights
from ampsim.model_parallel.split_backward import SplitBackward
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.stash import Stash
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.update import Updater
from ampsim.model_parallel.worker import Agenda, Worker
from ampsim.optim import Optimizer
from ampsim.trace import Cause, Recorder


@dataclass(frozen=True, slots=True)
class Job:
    """What an engine runs.

    Args:
        graph: verified, its parameters initialised.
        pump: brings an instance into the graph.
        optimizer: for all parameterized nodes.
        min_update_interval: per parameterized node, what the model prefers.
    """

    graph: Graph
    pump: Pump
    optimizer: Optimizer
    min_update_interval: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass over a split: virtual times, and what the losses said."""

    start_s: float
    end_s: float
    totals: PassTotals

    @property
    def per_s(self) -> float:
        """Items per virtual second; NaN where the pass took no time."""
        seconds = self.end_s - self.start_s
        return self.totals.instances / seconds if seconds else float("nan")


class Engine:
    """Wires sites, workers, links and controller together, and runs passes.

    Args:
        job: the network and how to train it.
        cluster: the devices and links.
        placement: a worker for each node (`ampsim.model_parallel.placements`).
        schedule: the decisions.
        clock: whose time passes.
        recorder: who writes down what happens.
        is_abstract: `sleep` mode: shapes instead of numbers.

    Raises:
        OptionError: `sleep` mode of a graph whose control flow reads values, a schedule with an
            interval for a node that does not learn or does not exist, or one that does not fit
            the graph or the cluster.
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        placement: list[int],
        schedule: Schedule,
        *,
        clock: Clock,
        recorder: Recorder,
        is_abstract: bool = False,
    ) -> None:
        """Build everything; nothing runs yet."""
        self._graph = job.graph
        self._cluster = cluster
        self._clock = clock
        self._recorder = recorder
        pump = without_numbers(job.pump) if is_abstract else job.pump
        self.controller = Controller(job.graph.nodes[0].outputs, schedule, pump, clock, recorder)
        self.updater = Updater(
            job.optimizer, recorder, averages_instances=schedule.updates.averages
        )
        self._agenda = Agenda()
        self._fabric = Fabric(cluster, clock, recorder, self._agenda.serve)
        self.workers = [
            Worker(index, clock, recorder, self._agenda, schedule.order.kinds)
            for index in range(cluster.workers)
        ]
        self.sites = [
            Site(
                node,
                index,
                worker,
                cluster.devices[worker] if worker >= 0 else None,
                recorder.kinds,
            )
            for index, (node, worker) in enumerate(zip(job.graph.nodes, placement, strict=True))
        ]
        keep_weights(self.sites)
        self._set_modes(job, schedule, is_abstract)
        self._stages: dict[int, int] = {}
        if needs_chain(schedule):
            self._set_stages(schedule)
        staleness_budget = schedule.admission.staleness_budget
        if staleness_budget is not None:
            self.controller.budget = budget_of(staleness_budget, self._graph, self.sites)
        for site in self.sites:
            if site.learner is not None and schedule.weights.remedy == "weight-prediction":
                Prediction(site)
        self._barrier = Barrier() if schedule.order.holds_gradients else None
        self._wire()
        merge_groups(self.workers, clock, recorder, schedule.order)
        for worker in self.workers:
            worker.controller, worker.updater = self.controller, self.updater
            clock.start(worker.serve(), f"worker-{worker.index}")
        clock.run()

    def _set_modes(self, job: Job, schedule: Schedule, is_abstract: bool) -> None:
        for node in job.graph.nodes:
            if is_abstract and node.reads_values:
                raise OptionError(
                    f"mode 'sleep' has no numbers, but {node.describe()} decides by them; "
                    "use mode 'numeric'"
                )
            node.is_abstract = is_abstract
        self.controller.element_bytes = job.graph.nodes[0].element_bytes
        require_known_nodes(schedule, [node.name for node in job.graph.parameterized])
        for node in job.graph.parameterized:
            preferred = job.min_update_interval(node.name)
            node.min_update_interval = schedule.updates.interval_of(node.name, preferred)
            node.state_arrays = job.optimizer.arrays

    def _set_stages(self, schedule: Schedule) -> None:
        """Give each worker that has stages a queue, where their messages wait for their turn."""
        places = stages_of(self._graph, schedule.name)
        self._stages = {place: stage for stage, place in enumerate(places)}
        admitted = self.controller.admitted
        self.controller.in_flight_max = schedule.admission.in_flight_max or len(places)
        for worker in self.workers:
            own = [s for s, i in enumerate(places) if self.sites[i].worker == worker.index]
            if own:
                placed = WorkerStages(tuple(own), len(places), len(self.workers))
                assert schedule.order.turns is not None
                turn_queue = TurnQueue(worker, schedule.order.turns(placed, admitted))
                for stage in own:
                    site = self.sites[places[stage]]
                    site.turn_queue = turn_queue
                    if schedule.order.splits_backward:
                        self._split(site, turn_queue, len(places) + stage)
        versions = schedule.weights.versions
        picks = versions(len(places), admitted) if versions is not None else None
        for place, pick in zip(places, picks or (), strict=bool(picks)):
            site = self.sites[place]
            site.stash = Stash(site, pick, self._note_of(place))

    def _note_of(self, place: int) -> Callable[[int], None]:
        """Return who records how many bytes the node at `place` has stashed from now on."""
        record, clock = self._recorder.stashes.append, self._clock
        return lambda size_bytes: record((place, clock.now, size_bytes))

    def _split(self, site: Site, turn_queue: TurnQueue, stage: int) -> None:
        """Make the second half of a backward step a site, with turns as `stage`."""
        device = self._cluster.devices[site.worker]
        second = Site(site.node, site.index, site.worker, device, self._recorder.kinds)
        second.turn_queue, second.resident_bytes = turn_queue, site.resident_bytes
        split = SplitBackward(site, second, self.controller)
        split.accept = turn_queue.acceptor(second, stage, Direction.BACKWARD)

    def _wire(self) -> None:
        graph, sites = self._graph, self.sites
        for site, targets, sources in zip(sites, graph.targets, graph.sources, strict=True):
            site.forward_routes = [
                self._route(site.worker, sites[target], port, Direction.FORWARD)
                for target, port in targets
            ]
            site.backward_routes = [
                self._route(site.worker, sites[source], port, Direction.BACKWARD)
                for source, port in sources
            ]
        for site in sites:
            if site.is_loss:  # it turns the message around: what it sends goes to its inputs
                self.controller.watch(site)
                site.forward_routes = self._routes_of_loss(site)
            site.acknowledge_route = self._to_controller(site, self.controller.acknowledged)
        self.controller.routes = sites[0].forward_routes
        self.controller.update_routes = [
            (site, self._route(HOST, site, 0, Direction.UPDATE))
            for site in sites
            if site.node.is_parameterized
        ]

    def _routes_of_loss(self, site: Site) -> list[Route]:
        """Where a loss sends gradients, a route for each input, and last what ends a validation."""
        routes = site.backward_routes
        if self._barrier is not None:
            routes = [self._barrier.before(route, site.index) for route in routes]
        return [*routes, self._to_controller(site, self.controller.receive)]

    def _to_controller(self, site: Site, accept: Callable[[Entry], None]) -> Route:
        """The route from `site` to the controller, whose method `accept` takes the message."""
        return (accept, self.sites[0], 0, None, True, self._fabric.channel(site.worker, HOST))

    def _route(self, source: int, site: Site, port: int, direction: Direction) -> Route:
        channel = self._fabric.channel(source, site.worker)
        if site.worker == HOST:
            return (self.controller.receive, site, port, None, True, channel)
        worker = self.workers[site.worker]
        if site.turn_queue is not None and direction is not Direction.UPDATE:
            accept = site.turn_queue.acceptor(site, self._stages[site.index], direction)
            return (accept, site, port, None, False, channel)
        queue = worker.queue(site, direction)
        is_free = queue is worker.free_forward or queue is worker.free_backward
        return (queue.append, site, port, worker, is_free, channel)

    def run_pass(self, batches: Iterable[Any], *, is_training: bool) -> PassReport:
        """Send `batches` through the graph until all are done.

        A training pass ends with an update of every node that still holds gradients.

        Raises:
            StuckError: nothing is left to do, but instances are unfinished or caches not empty.
            DivergenceError: a loss or a weight stopped being finite.
            SimulationError: a node's step failed; the message says where and when.
        """
        for node in self._graph.nodes:
            node.is_training = is_training
        start_s = self._clock.now
        self.controller.start_pass(batches, is_training, self._latest())
        try:
            self._run()
        finally:
            self._note_peaks()
        self._require_drained()
        if is_training:
            self.controller.send_updates(self._latest())
            self._run()
        return PassReport(start_s, self._clock.now, self.controller.totals)

    def _run(self) -> None:
        """Let everything happen; gradients go on when nothing else is left, if they are held."""
        is_going_on = True
        while is_going_on:
            self._agenda.serve()
            self._clock.run()
            is_going_on = self._barrier is not None and self._barrier.let_go(self._latest())

    def _latest(self) -> Cause:
        """What ended last: the step, or the message to the controller, after which all was done."""
        number, end_s = self._recorder.latest_span()
        cause, received_s = self.controller.last_received
        return cause if received_s >= end_s else number

    def _note_peaks(self) -> None:
        summary = self._recorder.summary
        for site in self.sites:
            if site.activations is not None:
                summary.in_flight_max[site.index] = site.activations.held_max
                bytes_max = site.stash.bytes_max if site.stash is not None else 0
                summary.stashed_bytes_max[site.index] = bytes_max

    def _require_drained(self) -> None:
        """Check that nothing is left anywhere."""
        turn_queues = dict.fromkeys(filter(None, (site.turn_queue for site in self.sites)))
        why = why_stuck(self._graph.nodes, turn_queues, self.controller.unfinished)
        if why is not None:
            raise StuckError(
                f"{self._graph.name}: nothing is left to do at {self._clock.now:.9g} s, but {why}"
            )
