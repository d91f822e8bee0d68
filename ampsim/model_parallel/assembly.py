"""A graph on a cluster under a schedule, put together once: controller, workers, nodes, routes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ampsim.errors import StuckError
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Direction, ParameterizedNode
from ampsim.machine import (
    Checkpointed,
    Lane,
    Processor,
    StoppableProcessor,
    Tasks,
    checkpointed,
    paced,
)
from ampsim.machine.pace import loses_weights
from ampsim.model_parallel.budget import Budget, debts_of
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.checkpoints import (
    Foretelling,
    KeptWeights,
    has_checkpoints,
    require_single_steps,
)
from ampsim.model_parallel.controller import Admitting, Controller
from ampsim.model_parallel.faults import why_stuck
from ampsim.model_parallel.footprint import STASHES, Footprint
from ampsim.model_parallel.grouping import GroupingWorker
from ampsim.model_parallel.job import Job, RunSettings, require_sound_node, without_numbers
from ampsim.model_parallel.lanes import HostLane, Lanes
from ampsim.model_parallel.memories import SharedMachine
from ampsim.model_parallel.message_overhead import WithMessageOverhead, far_ports
from ampsim.model_parallel.order import OrderLog
from ampsim.model_parallel.placed_node import FarPorts, Message, PlacedNode, send
from ampsim.model_parallel.price import Prices, resident_bytes
from ampsim.model_parallel.schedules.base import Schedule, needs_chain, require_sound
from ampsim.model_parallel.schedules.turns import Admitted, WorkerStages
from ampsim.model_parallel.schedules.values import VersionRule
from ampsim.model_parallel.stages import stages_of
from ampsim.model_parallel.stash import PREDICTED_ARRAYS
from ampsim.model_parallel.steps import Steps, split_steps_of, steps_of
from ampsim.model_parallel.update import Updater
from ampsim.model_parallel.wiring import AssemblySetup, Barrier, Wiring
from ampsim.model_parallel.worker import Inbox, Shared, TurnQueue, Worker
from ampsim.trace import Recorder


@dataclass(frozen=True, slots=True)
class Assembly:
    """Everything that makes passes, wired.

    Args:
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

    def require_drained(self, name: str, now_s: float) -> None:
        """Check that a pass has left nothing; what it has in memory alone is let go.

        Args:
            name: of the graph, and of the copy where there are several.
            now_s: when the pass is over.

        Raises:
            StuckError: instances are unfinished, or caches not empty.
        """
        queues = [worker.turn_queue for worker in self.workers if worker.turn_queue is not None]
        out_of_turn = [told for queue in queues if (told := queue.told())]
        nodes = [placed.node for placed in self.placed_nodes]
        why = why_stuck(nodes, out_of_turn, self.controller.unfinished)
        if why is not None:
            raise StuckError(f"{name}: nothing is left to do at {now_s:.9g} s, but {why}")
        for placed in self.placed_nodes:
            if placed.footprint is not None:
                placed.footprint.free_rest()


def assemble(
    job: Job,
    cluster: Cluster,
    placement: Sequence[int],
    schedule: Schedule,
    *,
    recorder: Recorder,
    settings: RunSettings,
    shared: SharedMachine,
    order: OrderLog | None = None,
) -> Assembly:
    """Put a graph on a cluster under a schedule; `order` takes down what its steps read.

    Raises:
        OptionError: as of `Engine`.
    """
    _set_modes(job, schedule, settings.is_abstract)
    require_single_steps(cluster, schedule)
    instant, clock = shared.instant, settings.clock
    host = None
    if cluster.host is not None and not cluster.is_host_free:
        host = HostLane(Processor(HOST, clock, instant), clock, recorder, cluster.host)
    has_budget = schedule.admission.staleness_budget is not None
    setup = AssemblySetup(
        job=job,
        cluster=cluster,
        placement=placement,
        schedule=schedule,
        recorder=recorder,
        settings=settings,
        shared=shared,
        order=order,
        lanes=Lanes(cluster, schedule, instant, clock, recorder, workers=shared.workers),
        host=host,
        stages=stages_of(job.graph, schedule.name) if needs_chain(schedule) else [],
        debts=debts_of(job.graph) if has_budget else {},
        resident_bytes=resident_bytes(job.graph.nodes, placement),
    )
    controller = _controller(setup)
    workers = _workers(setup, controller)
    placed_nodes, seconds = _placed_nodes(setup, controller)
    barrier = Barrier() if schedule.order.holds_gradients else None
    by_index = {worker.index: worker for worker in workers}
    Wiring(setup, controller, by_index, placed_nodes, seconds, barrier).connect()
    tasks, checkpoints = _tasks(setup, workers, placed_nodes)
    return Assembly(controller, workers, placed_nodes, tasks, checkpoints, barrier)


def _set_modes(job: Job, schedule: Schedule, is_abstract: bool) -> None:
    for node in job.graph.nodes:
        require_sound_node(node, job.optimizer, is_abstract=is_abstract)
        node.is_abstract = is_abstract
    require_sound(schedule, [node.name for node in job.graph.parameterized])
    for node in job.graph.parameterized:
        preferred = job.min_update_interval(node.name)
        node.min_update_interval = schedule.updates.interval_of(node.name, preferred)
        node.step_by(job.optimizer.arrays, job.optimizer.calls)


def _controller(setup: AssemblySetup) -> Controller:
    admission = setup.schedule.admission
    has_versions = setup.schedule.weights.versions is not None
    in_flight_max = admission.in_flight_max or len(setup.stages) or 1
    staleness, debts = admission.staleness_budget, list(dict.fromkeys(setup.debts.values()))
    admitting = Admitting(
        in_flight_max=in_flight_max,
        drains=admission.drains,
        budget=None if staleness is None else Budget(staleness, debts),
        look_ahead=in_flight_max if has_versions else 1,
        admitted=Admitted(),
        order=setup.order,
        send=send if setup.host is None else setup.host.send,
    )
    pump = setup.job.pump
    pump = without_numbers(pump) if setup.settings.is_abstract else pump
    return Controller(setup.nodes[0], pump, admitting, setup.clock, setup.recorder)


def _workers(setup: AssemblySetup, controller: Controller) -> list[Worker]:
    machine, order = setup.shared, setup.schedule.order
    shared = Shared(setup.clock, setup.recorder, order, controller, machine.updater)
    where = (setup.clock, machine.instant)
    workers: list[Worker] = []
    for index in machine.workers:
        if machine.is_stoppable:
            stoppable = StoppableProcessor(index, *where)
            inbox = _inbox(setup, stoppable, controller.admitted)
            workers.append(StoppableWorker(stoppable, inbox, shared))
        else:
            kind = GroupingWorker if order.max_group > 1 else Worker
            processor = Processor(index, *where)
            inbox = _inbox(setup, processor, controller.admitted)
            workers.append(kind(processor, inbox, shared))
    return workers


def _inbox(setup: AssemblySetup, processor: Processor, admitted: Admitted) -> Inbox:
    """Build where messages wait for a worker; those of its stages, for their turn."""
    order, stages, machine = setup.schedule.order, setup.stages, setup.shared
    queues: dict[Direction, deque[Message]] = {kind: deque() for kind in order.kinds}
    accept_update, waits = machine.accept_update, False
    if accept_update is None:
        append = queues[Direction.UPDATE].append
        accept_update = setup.lanes.update_acceptor(processor, append)
        waits = accept_update is not append
    own = [s for s, place in enumerate(stages) if setup.placement[place] == processor.index]
    if order.turns is None or not own:
        return Inbox(queues, accept_update)
    hosted = WorkerStages(tuple(own), len(stages), len(machine.workers))
    turns = order.turns(hosted, admitted)
    turn_queue = TurnQueue(processor, queues, turns, waits_for_updates=waits)
    return Inbox(queues, accept_update, turn_queue)


def _placed_nodes(
    setup: AssemblySetup, controller: Controller
) -> tuple[list[PlacedNode], dict[int, PlacedNode]]:
    """Put every node where it runs; and the second halves of split backward steps, by place."""
    stages, versions = setup.stages, setup.schedule.weights.versions
    rule_of: dict[int, VersionRule] = {}
    if versions is not None:
        rules = versions(len(stages), controller.admitted)
        rule_of = dict(zip(stages, rules, strict=True))
    placed_nodes: list[PlacedNode] = []
    seconds: dict[int, PlacedNode] = {}
    for place, node in enumerate(setup.nodes):
        is_split = setup.schedule.order.splits_backward and place in stages
        own = _footprint(setup, place, frees=not is_split)
        halves = split_steps_of(node) if is_split else None
        first = halves[0] if halves else _steps(setup, place, rule_of.get(place))
        placed_nodes.append(_placed(setup, place, first, own, far=_far(setup, place)))
        if halves:
            rest = None if own is None else Footprint(node, own.memory, first=own)
            seconds[place] = _placed(setup, place, halves[1], rest)
    return placed_nodes, seconds


def _steps(setup: AssemblySetup, place: int, rule: VersionRule | None) -> Steps:
    """Build the steps of a node whose backward steps are not split."""
    node, worker = setup.nodes[place], setup.placement[place]
    return steps_of(
        node,
        rule=rule,
        note_stash=_note_of_stash(setup, place),
        debt=setup.debts.get(node) if isinstance(node, ParameterizedNode) else None,
        predicts=setup.schedule.weights.remedy == "weight-prediction",
        computes_again=setup.lanes.recomputes(node) and loses_weights(setup.cluster, worker),
    )


def _note_of_stash(setup: AssemblySetup, place: int) -> Callable[[int], None]:
    """Return who records how many bytes the node at `place` has stashed from now on."""
    record, clock, before = setup.recorder.stashes.append, setup.clock, 0
    memory = setup.shared.memories.of(setup.placement[place])

    def note(size_bytes: int) -> None:
        nonlocal before
        record((place, clock.now, size_bytes))
        more, before = size_bytes - before, size_bytes
        if memory is not None:
            memory.change(STASHES, more)

    return note


def _placed(
    setup: AssemblySetup,
    place: int,
    steps: Steps,
    footprint: Footprint | None,
    *,
    far: FarPorts | None = None,
) -> PlacedNode:
    """Place a node whose messages these steps serve."""
    node, worker, work_of = setup.nodes[place], setup.placement[place], setup.shared.work_of
    of_charge = None
    if work_of is not None and isinstance(node, ParameterizedNode):
        of_charge = partial(work_of, node, steps.work)
    order = setup.order
    noted = order.of(node) if order and isinstance(node, ParameterizedNode) else None
    prices = Prices(
        node,
        place,
        worker,
        setup.cluster.devices[worker] if worker >= 0 else None,
        setup.recorder.kinds,
        work=steps.work,
        work_of_charge=of_charge,
        resident_bytes=setup.resident_bytes[worker],
        light_is_free=setup.settings.light_is_free,
        recomputes=setup.lanes.recomputes(node),
        predicted_arrays=0 if steps.prediction is None else PREDICTED_ARRAYS,
    )
    has_turns = setup.schedule.order.turns is not None and place in setup.stages
    return PlacedNode(
        node,
        place,
        worker,
        steps,
        prices,
        footprint=footprint,
        order=noted,
        far=far,
        has_turns=has_turns,
    )


def _footprint(setup: AssemblySetup, place: int, *, frees: bool) -> Footprint | None:
    """Build the account of a node's bytes in its worker's memory; None where nobody counts."""
    worker = setup.placement[place]
    memory = setup.shared.memories.of(worker)
    if memory is None:
        return None
    return setup.lanes.footprint(setup.nodes[place], place, worker, memory, frees=frees)


def _far(setup: AssemblySetup, place: int) -> FarPorts | None:
    """Return which ports of a node lead to another place; None where no message costs by itself."""
    node, worker = setup.nodes[place], setup.placement[place]
    if worker == HOST or not setup.cluster.devices[worker].message_overhead_s:
        return None
    far = far_ports(setup.job.graph, setup.placement, place)
    sends_report = node.is_loss or node.is_parameterized
    return far if sends_report or any(map(any, far.values())) else None


def _tasks(
    setup: AssemblySetup, workers: Sequence[Worker], placed_nodes: Sequence[PlacedNode]
) -> tuple[list[tuple[Processor, Tasks]], list[Checkpointed]]:
    """Build each processor's tasks, with what varies around them, and the keepers of weights."""
    found: list[tuple[Processor, Tasks]] = []
    checkpoints: list[Checkpointed] = []
    for worker in workers:
        learners = [one for one in placed_nodes if one.worker == worker.index and one.learner]
        tasks, looked_after = _tasks_of(setup, worker, learners)
        found.append((worker.processor, tasks))
        if looked_after is not None:
            checkpoints.append(looked_after)
    if setup.host is not None:
        found.append((setup.host.processor, _paced(setup, setup.host, computes=True)))
    for lane in setup.lanes.all:
        found.append((lane.processor, _paced(setup, lane, computes=False)))
    return found, checkpoints


def _tasks_of(
    setup: AssemblySetup, worker: Worker, learners: Sequence[PlacedNode]
) -> tuple[Tasks, Checkpointed | None]:
    cluster, clock, seed = setup.cluster, setup.clock, setup.settings.seed
    overhead_s = cluster.devices[worker.index].message_overhead_s
    tasks = WithMessageOverhead(worker, overhead_s, setup.recorder) if overhead_s else worker
    if seed is None:
        return tasks, None
    where = (worker.processor, clock, cluster)
    if not learners or not has_checkpoints(cluster, worker.index):
        return paced(tasks, *where, seed=seed), None
    kept, updater = KeptWeights(worker.index, learners, setup.recorder), setup.shared.updater
    assert isinstance(updater, Updater), "ranks of solvers keep no checkpoints"
    foretold = Foretelling(tasks, worker, overhead_s, updater.charge)
    return checkpointed(foretold, *where, kept, seed=seed)


def _paced(setup: AssemblySetup, lane: Lane, *, computes: bool) -> Tasks:
    cluster, seed = setup.cluster, setup.settings.seed
    if seed is None:
        return lane
    return paced(lane, lane.processor, setup.clock, cluster, seed=seed, computes=computes)
