"""FLOP rates times c and latencies over c give the same run with all its times over c."""

from __future__ import annotations

from typing import Any

import pytest
from short_runs import schedule_of

import ampsim
from ampsim.hardware import Checkpoints, Cluster, Device, Event, Link, Ports
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.recipes.grid import flop_rate_of

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


USUAL = Device(name="usual", flop_per_s=1e12, idle_power_w=1.0, busy_power_w=2.0)
BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "bandwidth": ({"link": Link(bandwidth_bytes_per_s=1e9)}, "a link has a bandwidth"),
    "ports": ({"ports": Ports(egress_bytes_per_s=1e9)}, "it names ports"),
    "checkpoints": (
        {"checkpoints": Checkpoints(every_s=1.0, takes_s=0.1)},
        "it names checkpoints",
    ),
    "events": (
        {"events": (Event(kind="pause", worker=0, from_s=0.0, until_s=1.0),)},
        "it names events",
    ),
    "overhead": (
        {"devices": (Device(name="odd", flop_per_s=1e12, step_overhead_s=1e-6),)},
        "odd names step_overhead_s",
    ),
    "jitter": (
        {"devices": (Device(name="odd", flop_per_s=1e12, jitter_cv=0.1),)},
        "odd names jitter_cv",
    ),
    "rates": (
        {"devices": (USUAL, Device(name="other", flop_per_s=2e12))},
        "its devices have several FLOP rates",
    ),
}


@pytest.mark.parametrize("beyond", BEYOND)
def test_the_law_does_not_hold_of_hardware_that_says_more(beyond):
    fields, said = BEYOND[beyond]
    cluster = Cluster(**{"name": "test", "devices": (USUAL,) * 2, **fields})
    with pytest.raises(ValueError, match=said):
        flop_rate_of(cluster)


def test_the_law_holds_of_a_cluster_with_power_and_latency():
    cluster = Cluster(name="test", devices=(USUAL,) * 2, link=Link(latency_s=1e-6))
    assert flop_rate_of(cluster) == 1e12
