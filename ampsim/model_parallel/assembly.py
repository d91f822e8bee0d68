"""A graph on a cluster under a schedule, put together: workers, steps, turns and routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ampsim.hardware import HOST, Cluster
from ampsim.ir import Graph, Node, ParameterizedNode
from ampsim.machine import (
    Checkpointed,
    Fabric,
    Instant,
    Processor,
    StoppableProcessor,
    Tasks,
    checkpointed,
    paced,
)
from ampsim.model_parallel.barrier import Barrier
from ampsim.model_parallel.budget import Budget, debts_of
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.controller import Controller
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.model_parallel.host import HostLane
from ampsim.model_parallel.job_checks import require_mode, require_rows
from ampsim.model_parallel.kept_weights import (
    KeptWeights,
    has_checkpoints,
    require_single_steps,
)
from ampsim.model_parallel.lanes import Lanes
from ampsim.model_parallel.message_overhead import FarPorts, WithMessageOverhead, far_ports
from ampsim.model_parallel.placed_node import Accept, PlacedNode
from ampsim.model_parallel.price import Prices, WorkOf, resident_bytes
from ampsim.model_parallel.pump import Pump, without_numbers
from ampsim.model_parallel.recompute import with_forward_again
from ampsim.model_parallel.run_settings import RunSettings
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_sound
from ampsim.model_parallel.schedules.turns import WorkerStages
from ampsim.model_parallel.schedules.values import Weights
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.steps import Asked, Steps, split_steps_of, steps_of
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.update import Applies, Updater
from ampsim.model_parallel.wiring import Wiring
from ampsim.model_parallel.worker import Shared, Worker
from ampsim.model_parallel.worker_memories import WorkerMemories, split_footprint
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


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """What an assembly has in common with others on the same machine, and what is its own there.

    Args:
        instant: what is done at once.
        fabric, memories: the links, and the memories of all workers.
        workers, updater: those that are its own, and what applies gradients there.
        work_of: what steps of a node with parameters cost, as of `Asked`.
        accept_update: takes the update messages that nodes send themselves; None to serve them.
        is_stoppable: whether a pass may be called off.
    """

    instant: Instant
    fabric: Fabric
    memories: WorkerMemories
    workers: range
    updater: Applies
    work_of: Callable[[ParameterizedNode, WorkOf], WorkOf] | None = None
    accept_update: Accept | None = None
    is_stoppable: bool = False


class Assembly:
    """Everything that makes passes, wired.

    Args:
        job: the network and how to train it.
        cluster: the devices and links.
        placement: a worker for each node.
        schedule: the decisions.
        recorder: who writes down what happens.
        settings: of the run.
        shared: the machine that it shares with others; None where it has the cluster to itself.

    Attributes:
        controller: admits instances.
        updater: applies gradients.
        instant: what is done at once.
        fabric: the links.
        workers: one for each device.
        memories: of the workers.
        tasks: what each processor does, at the pace of its device: the workers', the host's where
            that takes time, and those of other lanes.
        checkpointed: what looks after the weights of workers that may go back to a checkpoint.
        placed_nodes: every node where it runs, in the graph's order.
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
        recorder: Recorder,
        settings: RunSettings,
        shared: SharedMachine | None = None,
    ) -> None:
        clock, seed, is_abstract = settings.clock, settings.seed, settings.is_abstract
        self._graph = job.graph
        self._cluster, self._placement = cluster, placement
        self._clock, self._recorder = clock, recorder
        self._set_modes(job, schedule, is_abstract)
        pump = without_numbers(job.pump) if is_abstract else job.pump
        self.controller = Controller(job.graph.nodes[0].outputs, schedule, pump, clock, recorder)
        self.controller.element_bytes = job.graph.nodes[0].element_bytes
        averages = schedule.updates.averages
        self.updater = Updater(job.optimizer, recorder, averages_instances=averages)
        if shared is None:
            instant = Instant(clock)
            fabric = Fabric(cluster, clock, recorder, instant.settle, seed=seed)
            is_counting = settings.counts_memory or cluster.offloads
            memories = WorkerMemories(cluster, clock, is_counting=is_counting)
            workers = range(cluster.workers)
            shared = SharedMachine(instant, fabric, memories, workers, self.updater)
        self.instant, self.fabric, self.memories = shared.instant, shared.fabric, shared.memories
        self._shared = shared
        self.workers = self._workers(schedule)
        self.lanes = Lanes(cluster, schedule, self.instant, clock, recorder, workers=shared.workers)
        for worker in self.workers:
            worker.accept_update = shared.accept_update or self.lanes.update_acceptor(worker)
        self._host = self._host_lane()
        self._far: dict[PlacedNode, FarPorts] = {}
        stages = stages_of(self._graph, schedule.name) if needs_chain(schedule) else []
        self._stages = {place: stage for stage, place in enumerate(stages)}
        if stages:
            self.controller.in_flight_max = schedule.admission.in_flight_max or len(stages)
        self._seconds: dict[int, PlacedNode] = {}
        self._resident_bytes = resident_bytes(job.graph.nodes, placement)
        self._set_turns(schedule, stages)
        self.placed_nodes = self._placed_nodes(schedule, stages)
        require_single_steps(cluster, schedule)
        self.checkpointed: list[Checkpointed] = []
        self.tasks = self._tasks(seed)
        self.barrier = self._barrier() if schedule.order.holds_gradients else None
        self._wire()

    def _barrier(self) -> Barrier:
        """What holds gradients back; beside copies it counts, to let go at the right moment."""
        if not self._cluster.offloads:
            return Barrier()

        def note_held(count: int) -> None:
            if count == self.controller.messages_in_flight:
                self._clock.call_later(0.0, let_go)

        def let_go() -> None:
            barrier.let_go(barrier.last_cause)
            self.instant.settle()

        barrier = Barrier(note_held)
        return barrier

    def _set_modes(self, job: Job, schedule: Schedule, is_abstract: bool) -> None:
        """Tell each node how it is to run."""
        for node in job.graph.nodes:
            require_mode(node, is_abstract=is_abstract)
            node.is_abstract = is_abstract
        require_sound(schedule, [node.name for node in job.graph.parameterized])
        for node in job.graph.parameterized:
            preferred = job.min_update_interval(node.name)
            node.min_update_interval = schedule.updates.interval_of(node.name, preferred)
            node.state_arrays = job.optimizer.arrays
            require_rows(node, job.optimizer)

    def _workers(self, schedule: Schedule) -> list[Worker]:
        """One for each device."""
        kind = GroupingWorker if schedule.order.max_group > 1 else Worker
        updater = self._shared.updater
        shared = Shared(self._clock, self._recorder, schedule.order, self.controller, updater)
        where = (self._clock, self.instant)
        if self._shared.is_stoppable:
            return [
                StoppableWorker(StoppableProcessor(index, *where), shared)
                for index in self._shared.workers
            ]
        return [kind(Processor(index, *where), shared) for index in self._shared.workers]

    def _worker(self, index: int) -> Worker:
        """The worker of this number."""
        return self.workers[index - self._shared.workers.start]

    def _host_lane(self) -> HostLane | None:
        """What the controller runs on; None where it acts at once."""
        cluster, clock = self._cluster, self._clock
        if cluster.host is None or cluster.is_host_free:
            return None
        processor = Processor(HOST, clock, self.instant)
        lane = HostLane(processor, clock, cluster.host, self._recorder)
        self.controller.send = lane.send
        return lane

    def _wire(self) -> None:
        """Give every placed node its routes."""
        Wiring(
            graph=self._graph,
            placed_nodes=self.placed_nodes,
            seconds=self._seconds,
            stages=self._stages,
            workers=self.workers,
            first=self._shared.workers.start,
            controller=self.controller,
            host=self._host,
            fabric=self.fabric,
            memories=self.memories,
            lanes=self.lanes,
            barrier=self.barrier,
        ).wire()

    def _tasks(self, seed: int | None) -> list[tuple[Processor, Tasks]]:
        """What every processor does, with what varies around it."""
        found = [(worker.processor, self._tasks_of(worker, seed)) for worker in self.workers]
        others: list[tuple[Processor, Tasks, bool]] = []
        if self._host is not None:
            others.append((self._host.processor, self._host, True))
        others += [(lane.processor, lane, False) for lane in self.lanes.all]
        for processor, tasks, computes in others:
            if seed is not None:
                how = (self._clock, self._cluster)
                tasks = paced(tasks, processor, *how, seed=seed, computes=computes)
            found.append((processor, tasks))
        return found

    def _tasks_of(self, worker: Worker, seed: int | None) -> Tasks:
        """What a worker does, with what varies around it."""
        overhead_s = self._cluster.devices[worker.index].message_overhead_s
        tasks = WithMessageOverhead(worker, overhead_s, self._far) if overhead_s else worker
        if seed is None:
            return tasks
        how = (worker.processor, self._clock, self._cluster)
        own = [one for one in self.placed_nodes if one.worker == worker.index and one.learner]
        if not own or not has_checkpoints(self._cluster, worker.index):
            return paced(tasks, *how, seed=seed)
        kept = KeptWeights(worker.index, own, self._recorder)
        varied, looked_after = checkpointed(tasks, *how, kept, seed=seed)
        self.checkpointed.append(looked_after)
        return varied

    def _placed_nodes(self, schedule: Schedule, stages: Sequence[int]) -> list[PlacedNode]:
        """Build the steps of every node, where it runs."""
        asked = self._asked(schedule.weights, stages)
        staleness = schedule.admission.staleness_budget
        if staleness is not None:
            debts = debts_of(self._graph)
            self.controller.budget = Budget(staleness, list(dict.fromkeys(debts.values())))
            for node, debt in debts.items():
                asked[self._graph.index(node)] = replace(asked[self._graph.index(node)], debt=debt)
        placed_nodes: list[PlacedNode] = []
        for place, node in enumerate(self._graph.nodes):
            if schedule.order.splits_backward and place in self._stages:
                first, second = split_steps_of(node)
                placed = self._placed_node(place, first)
                self._seconds[place] = self._placed_node(place, second)
                split_footprint(placed, self._seconds[place])
                self._far.pop(self._seconds[place], None)  # it takes what the first half hands on
                placed_nodes.append(placed)
            else:
                placed_nodes.append(self._placed_node(place, steps_of(node, asked[place])))
        return placed_nodes

    def _asked(self, weights: Weights, stages: Sequence[int]) -> list[Asked]:
        """What the schedule asks of each node's steps."""
        usual = Asked(predicts=weights.remedy == "weight-prediction", work_of=self._shared.work_of)
        asked = [usual] * len(self._graph.nodes)
        if weights.versions is not None:
            picks = weights.versions(len(stages), self.controller.admitted)
            for place, pick in zip(stages, picks, strict=True):
                asked[place] = replace(asked[place], pick=pick, note_stash=self._note_of(place))
        return asked

    def _note_of(self, place: int) -> Callable[[int], None]:
        """Return who records how many bytes the node at `place` has stashed from now on."""
        record, clock = self._recorder.stashes.append, self._clock
        stashed = self.memories.stash_of(self._placement[place])

        def note(size_bytes: int) -> None:
            record((place, clock.now, size_bytes))
            if stashed is not None:
                stashed.hold(size_bytes)

        return note

    def _placed_node(self, place: int, steps: Steps) -> PlacedNode:
        """Put the node at `place` where it runs."""
        node, worker = self._graph.nodes[place], self._placement[place]
        prices = Prices(
            node,
            place,
            worker,
            self._cluster.devices[worker] if worker >= 0 else None,
            self._recorder.kinds,
            work=with_forward_again(steps.work) if self.lanes.recomputes(node) else steps.work,
            resident_bytes=self._resident_bytes[worker],
        )
        far = self._far_ports(node, place, worker)
        placed = PlacedNode(
            node,
            place,
            worker,
            steps,
            prices,
            is_free=prices.is_free and far is None,
            footprint=self.lanes.footprint(node, place, worker, self.memories.of(worker)),
        )
        if far is not None:
            self._far[placed] = far
        has_queue = worker >= 0 and self._worker(worker).turn_queue is not None
        placed.has_turns = has_queue and place in self._stages
        return placed

    def _far_ports(self, node: Node, place: int, worker: int) -> FarPorts | None:
        """Which messages of a node come from other places; None where none costs by itself."""
        if worker == HOST or not self._cluster.devices[worker].message_overhead_s:
            return None
        far = far_ports(self._graph, self._placement, place)
        sends_report = node.is_loss or node.is_parameterized
        return far if sends_report or any(map(any, far.values())) else None

    def _set_turns(self, schedule: Schedule, stages: Sequence[int]) -> None:
        """Give each worker that has stages a queue, where their messages wait for their turn."""
        if schedule.order.turns is None:
            return
        for worker in self.workers:
            own = [s for s, place in enumerate(stages) if self._placement[place] == worker.index]
            if own:
                hosted = WorkerStages(tuple(own), len(stages), len(self.workers))
                turns = schedule.order.turns(hosted, self.controller.admitted)
                worker.turn_queue = TurnQueue(worker.processor, worker.queues, turns)
