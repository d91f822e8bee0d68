"""What the trace of every run obeys, whatever schedule, solver, machine or model made it.

`watch` has them checked on each result that a test takes, so that a test of a closed form or of a
published table checks these, too. Each is one function, and its name is the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ampsim.data_parallel import Solver
from ampsim.study import Result, Simulation
from ampsim.trace import LANES
from ampsim.trace.table import Columns

ROUNDING = 1 + 1e-9
TICK_S = 1e-18
SPANS_MAX = 20_000
"""Longer traces are not checked, for time's sake (chosen: over these a check takes 0.1 s)."""


@dataclass(frozen=True)
class Traced:
    """A result, and the columns of its tables; frames, with their names, would take several times
    as long as all that is checked here."""

    result: Result

    @cached_property
    def spans(self) -> Columns:
        return self.result.recorder.columns("spans")

    @cached_property
    def transfers(self) -> Columns:
        return self.result.recorder.columns("transfers")

    @cached_property
    def updates(self) -> Columns:
        return self.result.recorder.columns("updates")

    @cached_property
    def lanes(self) -> np.ndarray:
        """A number for each span's worker and lane."""
        worker = self.spans["worker"].astype(np.int64)
        return worker * len(LANES) + self.spans.get("lane", 0)


def a_lane_serves_one_step_at_a_time(run: Traced) -> None:
    starts_s, ends_s = run.spans["start_s"], run.spans["end_s"]
    assert (starts_s >= 0).all()
    assert (ends_s >= starts_s).all()
    order = np.lexsort((ends_s, starts_s, run.lanes))
    lanes, starts_s, ends_s = run.lanes[order], starts_s[order], ends_s[order]
    is_later = starts_s[1:] * ROUNDING + TICK_S >= ends_s[:-1]
    overlap = (lanes[1:] == lanes[:-1]) & ~is_later
    assert not overlap.any(), f"spans overlap on {divmod(lanes[1:][overlap][0], len(LANES))}"


def time_never_falls(run: Traced) -> None:
    admissions = run.result.recorder.columns("admissions")
    for table, times_s in (
        ("transfers", run.transfers["sent_s"]), ("admissions", admissions["time_s"]),
        ("updates", run.updates["time_s"]),
        ("epochs", run.result.recorder.columns("epochs")["time_s"]),
    ):  # fmt: skip
        assert (times_s >= 0).all(), table
        assert (np.diff(times_s) >= 0).all(), table
    for earlier, later in pairwise(("sent_s", "start_s", "held_s", "end_s")):
        is_later = run.transfers[later] * ROUNDING + TICK_S >= run.transfers[earlier]
        assert is_later.all(), f"a transfer's {later} is before its {earlier}"


def no_worker_works_longer_than_the_run(run: Traced) -> None:
    starts_s, ends_s = run.spans["start_s"], run.spans["end_s"]
    if not len(ends_s):
        return
    _, lanes = np.unique(run.lanes, return_inverse=True)
    busy_s = np.bincount(lanes, weights=ends_s - starts_s)
    assert ends_s.max() <= run.result.makespan_s * ROUNDING + TICK_S
    assert busy_s.max() <= run.result.makespan_s * ROUNDING + TICK_S
    assert not run.result.utilisation > 1


def no_message_is_served_before_it_came(run: Traced) -> None:
    causes = run.spans["cause"]
    is_sent = (causes < -1) & (causes % 2 == 0)
    arrived_s = run.transfers["end_s"][-(causes[is_sent] + 2) // 2]
    assert (run.spans["end_s"][is_sent] * ROUNDING + TICK_S >= arrived_s).all()


def staleness_is_never_negative(run: Traced) -> None:
    updates = run.updates
    assert (run.spans["staleness"] >= -1).all()
    assert (updates["staleness"] >= 0).all()
    assert (updates["staleness_max"] * ROUNDING >= updates["staleness"]).all()


def an_update_has_gradients(run: Traced) -> None:
    if not isinstance(run.result.schedule, Solver):  # outer steps are of what ranks have changed
        assert (run.updates["gradient_count"] > 0).all()


def the_critical_path_goes_from_the_start_to_the_makespan(run: Traced) -> None:
    path = run.result._path.columns()
    starts_s, ends_s = path["start_s"], path["end_s"]
    if not len(starts_s):
        return
    assert starts_s[0] == 0
    assert ends_s[-1] == run.result.makespan_s
    assert (starts_s[1:] == ends_s[:-1]).all(), "the critical path has a gap"


def bytes_in_memory_are_never_negative(run: Traced) -> None:
    assert (run.result.recorder.columns("stashes")["bytes"] >= 0).all(), "stashes"
    # who asks later for a run's memory has it counted in a run that is checked, too
    for _worker, moments in run.result.recorder.memory:
        assert all(sum(map(int, held)) >= 0 for _time_s, held in moments), "memory"


INVARIANTS: tuple[Callable[[Traced], None], ...] = (
    a_lane_serves_one_step_at_a_time,
    time_never_falls,
    no_worker_works_longer_than_the_run,
    no_message_is_served_before_it_came,
    staleness_is_never_negative,
    an_update_has_gradients,
    the_critical_path_goes_from_the_start_to_the_makespan,
    bytes_in_memory_are_never_negative,
)


def check(result: Result) -> None:
    """Assert all of them of a result whose trace is whole and not too long."""
    run = Traced(result)
    count = result.recorder.spans.count
    if count <= SPANS_MAX and count == len(run.spans["start_s"]):
        for invariant in INVARIANTS:
            invariant(run)


def watch(patch: pytest.MonkeyPatch) -> None:
    """Have each result checked that a simulation of this process gives."""
    take: Callable[[Any], Result] = Simulation.result

    def checked(simulation: Simulation) -> Result:
        result = take(simulation)
        check(result)
        return result

    patch.setattr(Simulation, "result", checked)
