"""The engine: a graph on a cluster under a schedule, ready to make passes over data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ampsim.clock import Clock
from ampsim.errors import OptionError, StuckError
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, Graph
from ampsim.machine import Fabric, Instant, Processor
from ampsim.model_parallel.barrier import Barrier
from ampsim.model_parallel.budget import Budget, debts_of
from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.diagnosis import why_stuck
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.model_parallel.passes import PassReport
from ampsim.model_parallel.price import Prices, resident_bytes
from ampsim.model_parallel.pump import Pump, without_numbers
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_known_nodes
from ampsim.model_parallel.schedules.turns import WorkerStages
from ampsim.model_parallel.schedules.values import Weights
from ampsim.model_parallel.site import Message, Route, Site
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.steps import Asked, Steps, split_steps_of, steps_of
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.update import Updater
from ampsim.model_parallel.worker import Worker
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


class Engine:
    """Wires workers, sites, links and controller together, and runs passes.

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
        self._placement = placement
        self._clock = clock
        self._recorder = recorder
        self._set_modes(job, schedule, is_abstract)
        pump = without_numbers(job.pump) if is_abstract else job.pump
        self.controller = Controller(job.graph.nodes[0].outputs, schedule, pump, clock, recorder)
        self.controller.element_bytes = job.graph.nodes[0].element_bytes
        averages = schedule.updates.averages
        self.updater = Updater(job.optimizer, recorder, averages_instances=averages)
        self._instant = Instant()
        self._fabric = Fabric(cluster, clock, recorder, self._instant.settle)
        self.workers = self._workers(schedule)
        stages = stages_of(self._graph, schedule.name) if needs_chain(schedule) else []
        self._stages = {place: stage for stage, place in enumerate(stages)}
        if stages:
            self.controller.in_flight_max = schedule.admission.in_flight_max or len(stages)
        self._seconds: dict[int, Site] = {}
        self._resident_bytes = resident_bytes(job.graph.nodes, placement)
        self.sites = self._sites(schedule, stages)
        self._barrier = Barrier() if schedule.order.holds_gradients else None
        self._set_turns(schedule, stages)
        self._wire()
        for worker in self.workers:
            clock.start(worker.processor.work(worker), f"worker-{worker.index}")
        clock.run()

    def _set_modes(self, job: Job, schedule: Schedule, is_abstract: bool) -> None:
        """Tell each node how it is to run."""
        for node in job.graph.nodes:
            if is_abstract and node.reads_values:
                raise OptionError(
                    f"mode 'sleep' has no numbers, but {node.describe()} decides by them; "
                    "use mode 'numeric'"
                )
            node.is_abstract = is_abstract
        require_known_nodes(schedule, [node.name for node in job.graph.parameterized])
        for node in job.graph.parameterized:
            preferred = job.min_update_interval(node.name)
            node.min_update_interval = schedule.updates.interval_of(node.name, preferred)
            node.state_arrays = job.optimizer.arrays

    def _workers(self, schedule: Schedule) -> list[Worker]:
        """One for each device."""
        kind = GroupingWorker if schedule.order.max_group > 1 else Worker
        clock, controller, updater = self._clock, self.controller, self.updater
        return [
            kind(
                Processor(index, clock, self._instant),
                clock,
                self._recorder,
                schedule.order,
                controller,
                updater,
            )
            for index in range(self._cluster.workers)
        ]

    def _sites(self, schedule: Schedule, stages: Sequence[int]) -> list[Site]:
        """Build the steps of every node, where it runs."""
        asked = self._asked(schedule.weights, stages)
        staleness = schedule.admission.staleness_budget
        if staleness is not None:
            debts = debts_of(self._graph)
            self.controller.budget = Budget(staleness, list(dict.fromkeys(debts.values())))
            for node, debt in debts.items():
                asked[self._graph.index(node)] = replace(asked[self._graph.index(node)], debt=debt)
        sites: list[Site] = []
        for place, node in enumerate(self._graph.nodes):
            if schedule.order.splits_backward and place in self._stages:
                first, second = split_steps_of(node)
                self._seconds[place] = self._site(place, second)
                sites.append(self._site(place, first))
            else:
                sites.append(self._site(place, steps_of(node, asked[place])))
        return sites

    def _asked(self, weights: Weights, stages: Sequence[int]) -> list[Asked]:
        """What the schedule asks of each node's steps."""
        asked = [Asked(predicts=weights.remedy == "weight-prediction")] * len(self._graph.nodes)
        if weights.versions is not None:
            picks = weights.versions(len(stages), self.controller.admitted)
            for place, pick in zip(stages, picks, strict=True):
                asked[place] = replace(asked[place], pick=pick, note_stash=self._note_of(place))
        return asked

    def _note_of(self, place: int) -> Callable[[int], None]:
        """Return who records how many bytes the node at `place` has stashed from now on."""
        record, clock = self._recorder.stashes.append, self._clock
        return lambda size_bytes: record((place, clock.now, size_bytes))

    def _site(self, place: int, steps: Steps) -> Site:
        """Put the node at `place` where it runs."""
        node, worker = self._graph.nodes[place], self._placement[place]
        prices = Prices(
            node,
            place,
            worker,
            self._cluster.devices[worker] if worker >= 0 else None,
            self._recorder.kinds,
            work=steps.work,
            resident_bytes=self._resident_bytes[worker],
        )
        return Site(node, place, worker, steps, prices)

    def _set_turns(self, schedule: Schedule, stages: Sequence[int]) -> None:
        """Give each worker that has stages a queue, where their messages wait for their turn."""
        if schedule.order.turns is None:
            return
        for worker in self.workers:
            own = [s for s, place in enumerate(stages) if self._placement[place] == worker.index]
            if own:
                placed = WorkerStages(tuple(own), len(stages), len(self.workers))
                turns = schedule.order.turns(placed, self.controller.admitted)
                worker.turn_queue = TurnQueue(worker.processor, worker.queues, turns)
        for place in stages:
            for site in (self.sites[place], self._seconds.get(place)):
                if site is not None:
                    site.has_turns = True

    def _wire(self) -> None:
        """Give every site its routes."""
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
            if site.is_loss:  # it turns the message around: what it sends goes to its inputs
                site.forward_routes = self._held(site.backward_routes, site.index)
                site.report_routes = [self._to_controller(site, self.controller.receive)]
            elif site.learner is not None:
                site.report_routes = [self._to_controller(site, self.controller.acknowledged)]
        for place, second in self._seconds.items():
            self._wire_second(sites[place], second)
        self.controller.routes = sites[0].forward_routes
        self.controller.update_routes = [
            (site, self._route(HOST, site, 0, Direction.UPDATE))
            for site in sites
            if site.learner is not None
        ]

    def _wire_second(self, first: Site, second: Site) -> None:
        """Let the first half of a backward step hand on to the second, with turns as stage p + s.

        Word that the second has ended reaches the controller at once.
        """
        stage = len(self._stages) + self._stages[first.index]
        accept = self._turn_queue(first).acceptor(second, stage, Direction.BACKWARD)
        hand_on = Route(accept, second, 0, None, is_free=False, channel=None)
        first.backward_routes = [*first.backward_routes, hand_on]
        receive = self.controller.receive
        second.backward_routes = [Route(receive, second, 0, None, is_free=True, channel=None)]

    def _turn_queue(self, site: Site) -> TurnQueue:
        """Where the messages of a site that has turns wait."""
        turn_queue = self.workers[site.worker].turn_queue
        assert turn_queue is not None
        return turn_queue

    def _held(self, routes: Sequence[Route], source: int) -> Sequence[Route]:
        """The routes of a loss's gradients; through the barrier, where there is one."""
        if self._barrier is None:
            return routes
        return [self._barrier.before(route, source) for route in routes]

    def _to_controller(self, site: Site, accept: Callable[[Message], None]) -> Route:
        """The route from `site` to the controller, whose method `accept` takes the message."""
        channel = self._fabric.channel(site.worker, HOST)
        return Route(accept, self.sites[0], 0, None, is_free=True, channel=channel)

    def _route(self, source: int, site: Site, port: int, direction: Direction) -> Route:
        """The route from worker `source` to a port of `site`."""
        channel = self._fabric.channel(source, site.worker)
        if site.worker == HOST:
            return Route(self.controller.receive, site, port, None, is_free=True, channel=channel)
        if site.has_turns and direction is not Direction.UPDATE:
            stage = self._stages[site.index]
            accept = self._turn_queue(site).acceptor(site, stage, direction)
            return Route(accept, site, port, None, is_free=False, channel=channel)
        worker = self.workers[site.worker]
        accept = worker.queue(site, direction).append
        is_free = site.is_free and direction is not Direction.UPDATE
        return Route(accept, site, port, worker.processor, is_free, channel)

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
            self._instant.settle()
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
            activations, stash = site.steps.activations, site.steps.stash
            if activations is not None:
                summary.in_flight_max[site.index] = activations.held_max
                summary.stashed_bytes_max[site.index] = stash.bytes_max if stash is not None else 0

    def _require_drained(self) -> None:
        """Check that nothing is left anywhere."""
        turn_queues = [
            worker.turn_queue for worker in self.workers if worker.turn_queue is not None
        ]
        why = why_stuck(self._graph.nodes, turn_queues, self.controller.unfinished)
        if why is not None:
            raise StuckError(
                f"{self._graph.name}: nothing is left to do at {self._clock.now:.9g} s, but {why}"
            )
