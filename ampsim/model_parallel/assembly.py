"""A graph on a cluster under a schedule, put together: workers, steps, turns and routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ampsim.clock import Clock
from ampsim.errors import OptionError
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, Graph
from ampsim.machine import Fabric, Instant, Processor
from ampsim.model_parallel.barrier import Barrier
from ampsim.model_parallel.budget import Budget, debts_of
from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.model_parallel.price import Prices, resident_bytes
from ampsim.model_parallel.pump import Pump, without_numbers
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_sound
from ampsim.model_parallel.schedules.turns import WorkerStages
from ampsim.model_parallel.schedules.values import Weights
from ampsim.model_parallel.site import Message, Route, Site
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.steps import Asked, Steps, split_steps_of, steps_of
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.update import Updater
from ampsim.model_parallel.worker import Shared, Worker
from ampsim.optim import Optimizer
from ampsim.trace import Recorder


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


class Assembly:
    """Everything that makes passes, wired.

    Args:
        job: the network and how to train it.
        cluster: the devices and links.
        placement: a worker for each node.
        schedule: the decisions.
        clock: whose time passes.
        recorder: who writes down what happens.
        is_abstract: `sleep` mode: shapes instead of numbers.

    Attributes:
        controller: admits instances.
        updater: applies gradients.
        instant: what is done at once.
        workers: one for each device.
        sites: one for each node, in the graph's order.
        barrier: holds gradients back; None where they go on at once.

    Raises:
        OptionError: as of `Engine`.
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
        is_abstract: bool,
    ) -> None:
        self._graph = job.graph
        self._cluster, self._placement = cluster, placement
        self._clock, self._recorder = clock, recorder
        self._set_modes(job, schedule, is_abstract)
        pump = without_numbers(job.pump) if is_abstract else job.pump
        self.controller = Controller(job.graph.nodes[0].outputs, schedule, pump, clock, recorder)
        self.controller.element_bytes = job.graph.nodes[0].element_bytes
        averages = schedule.updates.averages
        self.updater = Updater(job.optimizer, recorder, averages_instances=averages)
        self.instant = Instant(clock)
        self._fabric = Fabric(cluster, clock, recorder, self.instant.settle)
        self.workers = self._workers(schedule)
        stages = stages_of(self._graph, schedule.name) if needs_chain(schedule) else []
        self._stages = {place: stage for stage, place in enumerate(stages)}
        if stages:
            self.controller.in_flight_max = schedule.admission.in_flight_max or len(stages)
        self._seconds: dict[int, Site] = {}
        self._resident_bytes = resident_bytes(job.graph.nodes, placement)
        self.sites = self._sites(schedule, stages)
        self.barrier = Barrier() if schedule.order.holds_gradients else None
        self._set_turns(schedule, stages)
        self._wire()

    def _set_modes(self, job: Job, schedule: Schedule, is_abstract: bool) -> None:
        """Tell each node how it is to run."""
        for node in job.graph.nodes:
            if is_abstract and node.reads_values:
                raise OptionError(
                    f"mode 'sleep' has no numbers, but {node.describe()} decides by them; "
                    "use mode 'numeric'"
                )
            node.is_abstract = is_abstract
        require_sound(schedule, [node.name for node in job.graph.parameterized])
        for node in job.graph.parameterized:
            preferred = job.min_update_interval(node.name)
            node.min_update_interval = schedule.updates.interval_of(node.name, preferred)
            node.state_arrays = job.optimizer.arrays

    def _workers(self, schedule: Schedule) -> list[Worker]:
        """One for each device."""
        kind = GroupingWorker if schedule.order.max_group > 1 else Worker
        shared = Shared(self._clock, self._recorder, schedule.order, self.controller, self.updater)
        return [
            kind(Processor(index, self._clock, self.instant), shared)
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
                site.gradient_routes = self._held(site.backward_routes, site.index)
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
        if self.barrier is None:
            return routes
        return [self.barrier.before(route, source) for route in routes]

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
