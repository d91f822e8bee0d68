"""Passes that are as an earlier one was, and are not run again.

A pass begins when all before it has drained. Where a schedule drains, nothing on the cluster
varies, and its batches have the shapes of those of an earlier pass, it is that pass at a later
time: each step takes as long, and each gradient meets weights as many updates old. It is then taken
from a tape of the first. Time is a whole number of ticks (`ampsim.clock.simulated`), so that the
pass ends exactly when it would have, but where links have a bandwidth; within it times may differ
in their last digit.

Only chains are repeated: where a graph branches, the number of an instance may decide its way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np

from ampsim.clock import SimClock
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Graph, State
from ampsim.machine import Sample
from ampsim.model_parallel.engine import Engine
from ampsim.model_parallel.job import Job, PassReport, RunSettings
from ampsim.model_parallel.memories import note_peaks
from ampsim.model_parallel.order import LearnerPass, PassOrder
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.stages import stages_of
from ampsim.trace import Cause, Later, Recorder, Tape
from ampsim.user_code import OURS_TO_PASS

ROWS_MAX: Final = 1 << 20
"""Longest tape that is kept, in rows of the trace; chosen: some 100 MB."""

Shapes: TypeAlias = "tuple[bool, tuple[Hashable, ...]]"
"""Of a pass: whether it trains, and what decides the times of each of its instances."""


def repeater_of(
    engine: Engine,
    job: Job,
    cluster: Cluster,
    schedule: Schedule,
    *,
    recorder: Recorder,
    settings: RunSettings,
) -> Repeater | None:
    """Return what runs passes or takes them from tape; None where each has to be run."""
    clock = settings.clock
    if not settings.repeats_passes or not settings.is_abstract or not isinstance(clock, SimClock):
        return None
    if job.optimizer.first is not None:  # updates cost what those of their stage do
        return None
    if why_not_repeated(job.graph, cluster, schedule):
        return None
    return Repeater(engine, job, recorder, clock)


def why_not_repeated(graph: Graph, cluster: Cluster, schedule: Schedule) -> str:
    """Why each pass has to be run; empty where one may be as another was."""
    if not schedule.admission.drains:
        return f"{schedule.name} does not drain"
    if schedule.order.max_group > 1:
        return "steps are merged"
    if cluster.varies:
        return f"{cluster.name} varies"
    if cluster.has_shared_bandwidth:
        return "roundings may decide which of the messages that share a link ends first"
    if any(node.is_sparse for node in graph.parameterized):
        return "which rows of a table an update touches hangs on the data"
    try:
        stages_of(graph, schedule.name)
    except OptionError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Taped:
    """A pass that was run.

    Args:
        tape: what it left behind.
        report: of it.
        ticks: how long it took.
        first: number of its first instance.
        instances: how many it had.
        versions: for each learner, updates before it and after it.
        last: the cause of the last message to the controller, and how long after the pass's
            beginning that came.
        moments: the fullest of each memory.
    """

    tape: Tape
    report: PassReport
    ticks: int
    first: int
    instances: int
    versions: Mapping[str, tuple[int, int]]
    last: tuple[Cause, float]
    moments: tuple[list[Sample], ...]


class Repeater:
    """Runs the passes of an engine, or takes them from tape where they are as earlier ones.

    Args:
        engine: in `sleep` mode, on a virtual clock, with a schedule that `why_not_repeated` allows.
        job: of the engine.
        recorder: of the engine.
        clock: of the engine.

    Attributes:
        repeated: passes that were taken from tape.
    """

    def __init__(self, engine: Engine, job: Job, recorder: Recorder, clock: SimClock) -> None:
        self._engine, self._recorder, self._clock = engine, recorder, clock
        self._pump, self._learners = job.pump, job.graph.parameterized
        nodes = job.graph.nodes
        self._reads: dict[Any, bool] = {
            port: not nodes[job.graph.targets[0][place][0]].is_loss
            for place, port in enumerate(nodes[0].outputs)
        }
        self._taped: dict[Shapes, Taped] = {}
        self.repeated = 0

    def run_pass(self, batches: Iterable[Any], *, is_training: bool) -> PassReport:
        """See `Engine`."""
        batches = list(batches)
        try:
            shapes = is_training, tuple(map(self._shapes, batches))
            known = self._taped.get(shapes)
        except OURS_TO_PASS:
            raise
        except BaseException:  # of the pump, or of what it gave: the engine asks it too, and tells
            return self._engine.run_pass(batches, is_training=is_training)
        if known is not None:
            self.repeated += 1
            return self._again(known)
        clock, controller = self._clock, self._engine.controller
        first, ticks, before = controller.next_instance, clock.ticks, self._versions()
        tape = Tape(self._recorder)
        report = self._engine.run_pass(batches, is_training=is_training)
        tape.stop()
        if tape.rows <= ROWS_MAX:
            cause, received_s = controller.last_received
            after = self._versions()
            self._taped[shapes] = Taped(
                tape,
                report,
                clock.ticks - ticks,
                first,
                len(batches),
                {name: (version, after[name]) for name, version in before.items()},
                (cause, received_s - report.start_s),
                tuple(
                    [one for one in memory.timeline if one.time_s >= report.start_s]
                    for memory in self._engine.memories
                ),
            )
        return report

    def _shapes(self, batch: Any) -> tuple[Hashable, ...]:
        """Return what decides an instance's times: what it sends, without what is only computed."""
        return tuple(
            (port, state[1:], _shape(payload, is_read=self._reads.get(port, True)))
            for port, state, payload in self._pump(0, batch)
        )

    def _versions(self) -> dict[str, int]:
        return {node.name: node.version for node in self._learners}

    def _again(self, known: Taped) -> PassReport:
        controller, start_s, now = self._engine.controller, self._clock.now, self._versions()
        first = controller.next_instance
        later = Later(
            start_s - known.report.start_s, first - known.first, self._engine.latest_cause()
        )
        known.tape.play(later)
        self._engine.skip(self._clock, known.ticks)
        for memory, moments in zip(self._engine.memories, known.moments, strict=True):
            memory.again(moments, later.seconds)
        note_peaks(self._recorder, self._engine.memories, self._engine.placed_nodes)
        cause, received_s = known.last
        received = known.tape.cause_later(cause, later), start_s + received_s
        controller.skip(known.instances, received)
        order = known.report.order
        if order is not None:
            for node in self._learners:
                before, after = known.versions[node.name]
                node.skip(after - before)
            shift = {name: now[name] - before for name, (before, _) in known.versions.items()}
            learners = ShiftedLearners(order.learners, later.instances, shift)
            order = PassOrder(order.digest, first, learners)
        return PassReport(start_s, self._clock.now, known.report.totals, order)


def _shape(payload: Any, *, is_read: bool) -> Hashable:
    """A payload's shape; of whole numbers also what they are, unless only a loss reads them."""
    if not isinstance(payload, np.ndarray):
        return repr(payload)
    array = cast("np.ndarray[Any, np.dtype[Any]]", payload)
    content = array.tobytes() if is_read and array.dtype.kind != "f" else b""
    return array.shape, str(array.dtype), content


class ShiftedLearners(Mapping[str, LearnerPass]):
    """The order of a pass that was repeated: of later instances, and versions after more updates.

    It is made when somebody asks, who often has learned the pass before and never does.
    """

    def __init__(
        self, of: Mapping[str, LearnerPass], instances: int, versions: Mapping[str, int]
    ) -> None:
        self._of, self._instances, self._versions = of, instances, versions

    def __getitem__(self, name: str) -> LearnerPass:
        """The order of a learner."""
        of, more = self._of[name], self._versions[name]

        def later(state: State) -> Any:
            return (state[0] + self._instances, *state[1:])

        return LearnerPass(
            {later(state): version + more for state, version in of.reads.items()},
            {
                later(state): (read + more, update + more)
                for state, (read, update) in of.gradients.items()
            },
            of.first + more,
            of.last + more,
        )

    def __iter__(self) -> Iterator[str]:
        """The learners' names."""
        return iter(self._of)

    def __len__(self) -> int:
        """Count them."""
        return len(self._of)
