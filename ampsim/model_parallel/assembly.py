"""A graph on a cluster under a schedule, put together once: controller, workers, nodes, routes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ampsim.clock import Clock
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, Node, ParameterizedNode
from ampsim.machine import (
    Checkpointed,
    Instant,
    Lane,
    Processor,
    StoppableProcessor,
    Tasks,
    checkpointed,
    paced,
)
from ampsim.model_parallel.budget import Budget, Debt, debts_of
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.controller import Admitting, Controller
from ampsim.model_parallel.footprint import Footprint
from ampsim.model_parallel.foretelling import Foretelling
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.model_parallel.host import HostLane
from ampsim.model_parallel.job import Job, RunSettings, require_mode, require_rows, without_numbers
from ampsim.model_parallel.kept_weights import (
    KeptWeights,
    has_checkpoints,
    require_single_steps,
)
from ampsim.model_parallel.lanes import Lanes
from ampsim.model_parallel.memories import SharedMachine
from ampsim.model_parallel.message_overhead import WithMessageOverhead, far_ports
from ampsim.model_parallel.placed_node import FarPorts, Message, PlacedNode, send
from ampsim.model_parallel.price import Prices, resident_bytes
from ampsim.model_parallel.recompute import with_forward_again
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_sound
from ampsim.model_parallel.schedules.turns import Admitted, WorkerStages
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.steps import Asked, Steps, split_steps_of, steps_of
from ampsim.model_parallel.turn_queue import TurnQueue
from ampsim.model_parallel.wiring import Barrier, Wiring
from ampsim.model_parallel.worker import Inbox, Shared, Worker
from ampsim.trace import Recorder


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that makes passes, wired.

    Args:
        controller: admits instances.
        workers: one for each device.
        placed_nodes: every node where it runs, in the graph's order.
        tasks: what each processor does, at the pace of its device: the workers', the host's where
            that takes time, and those of other lanes.
        checkpointed: what looks after the weights of workers that may go back to a checkpoint.
        barrier: holds gradients back; None where they go on at once.
    """

    controller: Controller
    workers: Sequence[Worker]
    placed_nodes: Sequence[PlacedNode]
    tasks: Sequence[tuple[Processor, Tasks]]
    checkpointed: Sequence[Checkpointed]
    barrier: Barrier | None


def assemble(
    job: Job,
    cluster: Cluster,
    placement: Sequence[int],
    schedule: Schedule,
    *,
    recorder: Recorder,
    settings: RunSettings,
    shared: SharedMachine,
) -> Assembly:
    """Put a graph on a cluster under a schedule.

    Args:
        job: the network and how to train it.
        cluster: the devices and links.
        placement: a worker for each node.
        schedule: the decisions.
        recorder: who writes down what happens.
        settings: of the run.
        shared: the machine.

    Raises:
        OptionError: as of `Engine`.
    """
    _set_modes(job, schedule, settings.is_abstract)
    require_single_steps(cluster, schedule)
    where = (shared.instant, settings.clock, recorder)
    has_budget = schedule.admission.staleness_budget is not None
    context = _Context(
        job=job,
        cluster=cluster,
        placement=placement,
        schedule=schedule,
        recorder=recorder,
        settings=settings,
        shared=shared,
        lanes=Lanes(cluster, schedule, *where, workers=shared.workers),
        host=_host(cluster, *where),
        stages=stages_of(job.graph, schedule.name) if needs_chain(schedule) else [],
        debts=debts_of(job.graph) if has_budget else {},
    )
    controller = _controller(context)
    workers = _workers(context, controller)
    placed_nodes, seconds = _placed_nodes(context, controller)
    barrier = _barrier(context, controller) if schedule.order.holds_gradients else None
    Wiring(
        graph=job.graph,
        placed_nodes=placed_nodes,
        seconds=seconds,
        stages={place: stage for stage, place in enumerate(context.stages)},
        workers={worker.index: worker for worker in workers},
        controller=controller,
        host=context.host,
        fabric=shared.fabric,
        memories=shared.memories,
        lanes=context.lanes,
        barrier=barrier,
    ).connect()
    tasks, checkpoints = _tasks(context, workers, placed_nodes)
    return Assembly(controller, workers, placed_nodes, tasks, checkpoints, barrier)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What everything is built from.

    Args:
        job, cluster, placement, schedule, recorder, settings, shared: as of `assemble`.
        lanes: of the devices.
        host: what the controller runs on; None where it acts at once.
        stages: places of the nodes that are stages, in order; none where the schedule has none.
        debts: what is owed to the oldest nodes, where the schedule has a staleness budget.
    """

    job: Job
    cluster: Cluster
    placement: Sequence[int]
    schedule: Schedule
    recorder: Recorder
    settings: RunSettings
    shared: SharedMachine
    lanes: Lanes
    host: HostLane | None
    stages: Sequence[int]
    debts: Mapping[ParameterizedNode, Debt]

    @property
    def nodes(self) -> Sequence[Node]:
        """All nodes, in the graph's order."""
        return self.job.graph.nodes

    @property
    def clock(self) -> Clock:
        """Whose time passes."""
        return self.settings.clock


def _set_modes(job: Job, schedule: Schedule, is_abstract: bool) -> None:
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


def _host(cluster: Cluster, instant: Instant, clock: Clock, recorder: Recorder) -> HostLane | None:
    """What the controller runs on; None where it acts at once."""
    if cluster.host is None or cluster.is_host_free:
        return None
    return HostLane(Processor(HOST, clock, instant), clock, cluster.host, recorder)


def _controller(context: _Context) -> Controller:
    """Build what admits instances."""
    admission = context.schedule.admission
    has_versions = context.schedule.weights.versions is not None
    in_flight_max = admission.in_flight_max or len(context.stages) or 1
    staleness, debts = admission.staleness_budget, list(dict.fromkeys(context.debts.values()))
    waits = has_versions and any(one.dispatch_s for one in context.cluster.devices)
    admitting = Admitting(
        in_flight_max=in_flight_max,
        drains=admission.drains,
        budget=None if staleness is None else Budget(staleness, debts),
        look_ahead=in_flight_max if has_versions else 1,
        admitted=Admitted(updates_wait=waits),
        between=context.shared.between,
        send=send if context.host is None else context.host.send,
    )
    pump = context.job.pump
    pump = without_numbers(pump) if context.settings.is_abstract else pump
    return Controller(context.nodes[0], pump, admitting, context.clock, context.recorder)


def _workers(context: _Context, controller: Controller) -> list[Worker]:
    """Build one worker for each device."""
    machine, order = context.shared, context.schedule.order
    shared = Shared(context.clock, context.recorder, order, controller, machine.updater)
    where = (context.clock, machine.instant)
    workers: list[Worker] = []
    for index in machine.workers:
        if machine.is_stoppable:
            stoppable = StoppableProcessor(index, *where)
            inbox = _inbox(context, stoppable, controller.admitted)
            workers.append(StoppableWorker(stoppable, inbox, shared))
        else:
            kind = GroupingWorker if order.max_group > 1 else Worker
            processor = Processor(index, *where)
            inbox = _inbox(context, processor, controller.admitted)
            workers.append(kind(processor, inbox, shared))
    return workers


def _inbox(context: _Context, processor: Processor, admitted: Admitted) -> Inbox:
    """Build where messages wait for a worker; those of its stages, for their turn."""
    order, stages, machine = context.schedule.order, context.stages, context.shared
    queues: dict[Direction, deque[Message]] = {kind: deque() for kind in order.kinds}
    accept_update = machine.accept_update
    if accept_update is None:
        accept_update = queues[Direction.UPDATE].append
        accept_update = context.lanes.update_acceptor(processor, accept_update)
    own = [s for s, place in enumerate(stages) if context.placement[place] == processor.index]
    if order.turns is None or not own:
        return Inbox(queues, accept_update)
    hosted = WorkerStages(tuple(own), len(stages), len(machine.workers))
    turns = order.turns(hosted, admitted)
    return Inbox(queues, accept_update, TurnQueue(processor, queues, turns))


def _placed_nodes(
    context: _Context, controller: Controller
) -> tuple[list[PlacedNode], dict[int, PlacedNode]]:
    """Put every node where it runs; and the second halves of split backward steps, by place."""
    nodes, placement = context.nodes, context.placement
    asked = _asked(context, controller.admitted)
    placing = _Placing(context, resident_bytes(nodes, placement))
    placed_nodes: list[PlacedNode] = []
    seconds: dict[int, PlacedNode] = {}
    for place, node in enumerate(nodes):
        if context.schedule.order.splits_backward and place in context.stages:
            of_first, of_second = split_steps_of(node)
            placed_nodes.append(placing.node(place, of_first, frees=False))
            seconds[place] = placing.second(placed_nodes[place], of_second)
        else:
            placed_nodes.append(placing.node(place, steps_of(node, asked[place])))
    return placed_nodes, seconds


def _asked(context: _Context, admitted: Admitted) -> list[Asked]:
    """What the schedule asks of each node's steps, by place."""
    weights, stages = context.schedule.weights, context.stages
    asked = [
        Asked(
            debt=context.debts.get(node) if isinstance(node, ParameterizedNode) else None,
            predicts=weights.remedy == "weight-prediction",
        )
        for node in context.nodes
    ]
    if weights.versions is not None:
        for place, rule in zip(stages, weights.versions(len(stages), admitted), strict=True):
            note = _note_of_stash(context, place)
            asked[place] = replace(asked[place], versions=rule, note_stash=note)
    return asked


def _note_of_stash(context: _Context, place: int) -> Callable[[int], None]:
    """Return who records how many bytes the node at `place` has stashed from now on."""
    record, clock = context.recorder.stashes.append, context.clock
    stashed = context.shared.memories.stash_of(context.placement[place])

    def note(size_bytes: int) -> None:
        record((place, clock.now, size_bytes))
        if stashed is not None:
            stashed.hold(size_bytes)

    return note


@dataclass(frozen=True, slots=True)
class _Placing:
    """Puts nodes where they run.

    Args:
        context: what everything is built from.
        resident_bytes: of weights, by worker.
    """

    context: _Context
    resident_bytes: Mapping[int, int]

    def node(self, place: int, steps: Steps, *, frees: bool = True) -> PlacedNode:
        """Place a node; unless its backward step `frees` what it kept, a second half does."""
        node, worker = self.context.nodes[place], self.context.placement[place]
        memory, lanes = self.context.shared.memories.of(worker), self.context.lanes
        footprint = None
        if memory is not None:
            footprint = lanes.footprint(node, place, worker, memory, frees=frees)
        return self._placed(place, steps, footprint, self._far(place))

    def second(self, first: PlacedNode, steps: Steps) -> PlacedNode:
        """Place the second half of a backward step, which takes what the first hands on."""
        footprint = None
        if first.footprint is not None:
            footprint = Footprint(first.node, first.footprint.memory, first=first.footprint)
        return self._placed(first.index, steps, footprint, None)

    def _placed(
        self, place: int, steps: Steps, footprint: Footprint | None, far: FarPorts | None
    ) -> PlacedNode:
        context, node = self.context, self.context.nodes[place]
        worker, work_of = context.placement[place], context.shared.work_of
        of_charge = None
        if work_of is not None and isinstance(node, ParameterizedNode):
            of_charge = partial(work_of, node, steps.work)
        recomputes = context.lanes.recomputes(node)
        prices = Prices(
            node,
            place,
            worker,
            context.cluster.devices[worker] if worker >= 0 else None,
            context.recorder.kinds,
            work=with_forward_again(steps.work) if recomputes else steps.work,
            work_of_charge=of_charge,
            resident_bytes=self.resident_bytes[worker],
        )
        has_turns = context.schedule.order.turns is not None and place in context.stages
        return PlacedNode(
            node, place, worker, steps, prices, footprint=footprint, far=far, has_turns=has_turns
        )

    def _far(self, place: int) -> FarPorts | None:
        """Which messages of a node come from other places; None where none costs by itself."""
        context, node = self.context, self.context.nodes[place]
        worker = context.placement[place]
        if worker == HOST or not context.cluster.devices[worker].message_overhead_s:
            return None
        far = far_ports(context.job.graph, context.placement, place)
        sends_report = node.is_loss or node.is_parameterized
        return far if sends_report or any(map(any, far.values())) else None


def _barrier(context: _Context, controller: Controller) -> Barrier:
    """What holds gradients back; beside copies it counts, to let go at the right moment."""
    if not context.cluster.offloads:
        return Barrier()

    def note_held(count: int) -> None:
        if count == controller.messages_in_flight:
            context.clock.call_later(0.0, let_go)

    def let_go() -> None:
        barrier.let_go(barrier.last_cause)
        context.shared.instant.settle()

    barrier = Barrier(note_held)
    return barrier


def _tasks(
    context: _Context, workers: Sequence[Worker], placed_nodes: Sequence[PlacedNode]
) -> tuple[list[tuple[Processor, Tasks]], list[Checkpointed]]:
    """What every processor does, with what varies around it; and what looks after weights."""
    found: list[tuple[Processor, Tasks]] = []
    checkpoints: list[Checkpointed] = []
    for worker in workers:
        learners = [one for one in placed_nodes if one.worker == worker.index and one.learner]
        tasks, looked_after = _tasks_of(context, worker, learners)
        found.append((worker.processor, tasks))
        if looked_after is not None:
            checkpoints.append(looked_after)
    if context.host is not None:
        found.append((context.host.processor, _paced(context, context.host, computes=True)))
    for lane in context.lanes.all:
        found.append((lane.processor, _paced(context, lane, computes=False)))
    return found, checkpoints


def _tasks_of(
    context: _Context, worker: Worker, learners: Sequence[PlacedNode]
) -> tuple[Tasks, Checkpointed | None]:
    """What a worker does, with what varies around it."""
    cluster, clock, seed = context.cluster, context.clock, context.settings.seed
    overhead_s = cluster.devices[worker.index].message_overhead_s
    tasks = WithMessageOverhead(worker, overhead_s) if overhead_s else worker
    if seed is None:
        return tasks, None
    where = (worker.processor, clock, cluster)
    if not learners or not has_checkpoints(cluster, worker.index):
        return paced(tasks, *where, seed=seed), None
    kept = KeptWeights(worker.index, learners, context.recorder)
    return checkpointed(Foretelling(tasks, worker, overhead_s), *where, kept, seed=seed)


def _paced(context: _Context, lane: Lane, *, computes: bool) -> Tasks:
    """What a lane does, at the pace of its device."""
    cluster, seed = context.cluster, context.settings.seed
    if seed is None:
        return lane
    return paced(lane, lane.processor, context.clock, cluster, seed=seed, computes=computes)
