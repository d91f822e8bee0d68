"""FLOP rates times c and latencies over c give the same run with all its times over c."""

from __future__ import annotations

from typing import Any

import pytest
from short_runs import schedule_of

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.model_parallel import SCHEDULES, needs_chain

FACTORS = (0.125, 8.0)
LATENCY_S = 8e-6


def trained(model: str, settings: dict[str, Any], schedule: str, factor: float, **how: Any) -> Any:
    device = Device(name="test", flop_per_s=1e12 * factor)
    link = Link(latency_s=LATENCY_S / factor)
    cluster = Cluster(name="test", devices=(device,) * 4, link=link)
    how = {"mode": "sleep", "seed": 1, "instances": 400, **how}
    return ampsim.simulate(
        ampsim.load_model(model, **settings), cluster, schedule_of(schedule), **how
    )


def assert_scaled(run: Any, other: Any, factor: float) -> None:
    """`other` is `run` with all times over `factor`, to the bit."""
    for table in ("spans", "transfers", "updates", "epochs"):
        first, second = getattr(run, table), getattr(other, table)
        assert len(first) == len(second) > 0
        for column in first:
            if column.endswith("_s") and not column.endswith("_per_s"):
                assert (second[column] * factor == first[column]).all(), (table, column)
            elif not column.endswith("_per_s"):
                assert second[column].equals(first[column]), (table, column)
    assert other.train_per_s == run.train_per_s * factor
    assert other.makespan_s * factor == run.makespan_s


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_times_of_a_chain_scale_to_the_bit(schedule, factor):
    chain = {"hidden": 32, "data": "synthetic", "batch": 20}
    run, other = (trained("mlp", chain, schedule, one) for one in (1.0, factor))
    assert_scaled(run, other, factor)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(
    "schedule", [name for name, kind in SCHEDULES.items() if not needs_chain(kind())]
)
def test_times_of_a_loop_scale_to_the_bit(schedule, factor):
    loop = {"hidden": 8, "batch": 20}
    run, other = (trained("rnn", loop, schedule, one) for one in (1.0, factor))
    assert_scaled(run, other, factor)


def test_what_is_learned_is_the_same():
    settings = {"hidden": 8, "data": "synthetic", "batch": 20}
    run, other = (trained("mlp", settings, "amp", one, mode="numeric") for one in (1.0, 8.0))
    assert_scaled(run, other, 8.0)
    assert run.epochs["loss"].tolist() == other.epochs["loss"].tolist()
