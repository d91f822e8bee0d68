"""What the trace of every run obeys, whatever schedule, solver, machine or model made it.

`watch` has them checked on each result that a test takes, so that a test of a closed form or of a
published table checks these, too. Each is one function, and its name is the claim.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ampsim.study import Result, Simulation

ROUNDING = 1 + 1e-9
TICK_S = 1e-18
SPANS_MAX = 20_000
"""Longer traces are not checked, for time's sake (chosen: over these a check takes 0.1 s)."""


def lane_columns(result: Result) -> list[str]:
    return [name for name in ("worker", "lane") if name in result.spans]


def a_lane_serves_one_step_at_a_time(result: Result) -> None:
    spans = result.spans
    assert (spans["start_s"] >= 0).all()
    assert (spans["end_s"] >= spans["start_s"]).all()
    for lane, own in spans.groupby(lane_columns(result), observed=True):
        ordered = own.sort_values(["start_s", "end_s"])
        starts_s, ends_s = ordered["start_s"].to_numpy(), ordered["end_s"].to_numpy()
        assert (starts_s[1:] * ROUNDING + TICK_S >= ends_s[:-1]).all(), f"spans overlap on {lane}"


def time_never_falls(result: Result) -> None:
    for table, column in (
        ("transfers", "sent_s"), ("admissions", "time_s"), ("updates", "time_s"),
        ("epochs", "time_s"),
    ):  # fmt: skip
        times_s = getattr(result, table)[column].to_numpy()
        assert (times_s >= 0).all(), table
        assert (np.diff(times_s) >= 0).all(), table
    for earlier, later in pairwise(("sent_s", "start_s", "held_s", "end_s")):
        is_later = result.transfers[later] * ROUNDING + TICK_S >= result.transfers[earlier]
        assert is_later.all(), f"a transfer's {later} is before its {earlier}"


def no_worker_works_longer_than_the_run(result: Result) -> None:
    spans = result.spans
    if not len(spans):
        return
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(
        [spans[name] for name in lane_columns(result)], observed=True
    )
    assert spans["end_s"].max() <= result.makespan_s * ROUNDING + TICK_S
    assert busy_s.sum().max() <= result.makespan_s * ROUNDING + TICK_S
    assert not result.utilisation > ROUNDING


def no_message_is_served_before_it_came(result: Result) -> None:
    causes = result.spans["cause"].to_numpy()
    is_sent = (causes < -1) & (causes % 2 == 0)
    served = -(causes[is_sent] + 2) // 2
    arrived_s = result.transfers["end_s"].to_numpy()[served]
    ended_s = result.spans["end_s"].to_numpy()[is_sent]
    assert (ended_s * ROUNDING + TICK_S >= arrived_s).all()


def staleness_is_never_negative(result: Result) -> None:
    spans, updates = result.spans, result.updates
    assert (spans["staleness"] >= -1).all()
    assert (updates["staleness"] >= 0).all()
    assert (updates["staleness_max"] * ROUNDING >= updates["staleness"]).all()
    assert (updates["gradient_count"] >= 0).all()


def the_critical_path_goes_from_the_start_to_the_makespan(result: Result) -> None:
    path = result.critical_path
    if not len(path):
        return
    starts_s, ends_s = path["start_s"].to_numpy(), path["end_s"].to_numpy()
    assert starts_s[0] == 0
    assert ends_s[-1] == result.makespan_s
    assert (starts_s[1:] == ends_s[:-1]).all(), "the critical path has a gap"


def bytes_in_memory_are_never_negative(result: Result) -> None:
    for name in ("stashes", "memory"):
        assert (getattr(result, name)["bytes"] >= 0).all(), name


INVARIANTS: tuple[Callable[[Result], None], ...] = (
    a_lane_serves_one_step_at_a_time,
    time_never_falls,
    no_worker_works_longer_than_the_run,
    no_message_is_served_before_it_came,
    staleness_is_never_negative,
    the_critical_path_goes_from_the_start_to_the_makespan,
    bytes_in_memory_are_never_negative,
)


def check(result: Result) -> None:
    """Assert all of them of a result whose trace is whole and not too long."""
    if result.recorder.spans.count == len(result.spans) <= SPANS_MAX:
        for invariant in INVARIANTS:
            invariant(result)


def watch(patch: pytest.MonkeyPatch) -> None:
    """Have each result checked that a simulation of this process gives."""
    take: Callable[[Any], Result] = Simulation.result

    def checked(simulation: Simulation) -> Result:
        result = take(simulation)
        check(result)
        return result

    patch.setattr(Simulation, "result", checked)
