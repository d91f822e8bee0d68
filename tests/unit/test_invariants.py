"""What is checked on each run that a test makes is seen where a trace is doctored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import invariants
import pytest
from invariants import INVARIANTS, Traced

import ampsim


@pytest.fixture(scope="module")
def result() -> ampsim.Result:
    """Sixty lists on three workers, over links that take time."""
    model = ampsim.load_model("rnn", hidden=4, replicas=2)
    cluster = ampsim.load_cluster("tflops-1", workers=3, latency_s=1e-6)
    return ampsim.simulate(model, cluster, ampsim.Amp(max_active_keys=4), instances=400)


def with_one(table: str, column: str, change: Callable[[Any], Any], row: int = -1) -> Any:
    """What changes one number of a run's table."""

    def doctor(run: Traced) -> None:
        columns = getattr(run, table)
        columns[column] = columns[column].copy()
        columns[column][row] = change(columns[column][row])

    return doctor


def twice_at_once(run: Traced) -> None:
    """The longest step lasts until its lane's next has begun."""
    starts_s, ends_s = run.spans["start_s"], run.spans["end_s"].copy()
    first, second = (run.lanes == 0).nonzero()[0][[0, -1]]
    ends_s[first] = starts_s[second] + 1e-3 * (ends_s[second] - starts_s[second]) + 1e-9
    run.spans["end_s"] = ends_s


DOCTORED = [
    (invariants.a_lane_serves_one_step_at_a_time, twice_at_once),
    (invariants.a_lane_serves_one_step_at_a_time, with_one("spans", "end_s", lambda one: 0.0)),
    (invariants.time_never_falls, with_one("transfers", "sent_s", lambda one: one + 1.0, 0)),
    (invariants.time_never_falls, with_one("transfers", "end_s", lambda one: 0.0)),
    (invariants.time_never_falls, with_one("updates", "time_s", lambda one: 0.0)),
    (
        invariants.no_worker_works_longer_than_the_run,
        with_one("spans", "end_s", lambda one: 2 * one + 1.0),
    ),
    (
        invariants.no_message_is_served_before_it_came,
        with_one("transfers", "end_s", lambda one: one + 1.0, 0),
    ),
    (invariants.staleness_is_never_negative, with_one("spans", "staleness", lambda one: -2)),
    (
        invariants.staleness_is_never_negative,
        with_one("updates", "staleness", lambda one: one + 100),
    ),
]
"""What must see it, and what is done to a trace."""


@pytest.mark.parametrize(
    ("invariant", "doctor"), DOCTORED, ids=[one.__name__ for one, _doctor in DOCTORED]
)
def test_a_doctored_trace_is_seen(result, invariant, doctor):
    run = Traced(result)
    for each in INVARIANTS:
        each(run)
    doctor(run)
    with pytest.raises(AssertionError):
        invariant(run)


def test_every_result_that_a_test_takes_is_checked(monkeypatch):
    checked: list[Any] = []
    monkeypatch.setattr(invariants, "check", checked.append)
    model = ampsim.load_model("mlp", hidden=4, data="synthetic")
    result = ampsim.simulate(model, "tflops-1", "sequential", mode="sleep", instances=100)
    assert checked == [result]
