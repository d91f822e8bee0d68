"""Validation within an epoch under solvers: what is looked at, and that looking changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_solvers import async_loop, problem
from solver_cases import CASES, Points, cluster, model, replace, solver, weights

import ampsim
from ampsim.hardware import Link

SLOW = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)
UNEVEN = [1e9, 3e9, 2e9, 5e8, 4e9]
"""Four ranks, and a server where the solver has one."""

MANY = {
    **{name: solver(name, ranks=4, period=3) for name in CASES},
    "backup ranks": ampsim.SyncSGD(ranks=4, backup_ranks=1),
    "overlap": ampsim.SyncSGD(ranks=4, overlap=True),
    "four batches to a rank": ampsim.SyncSGD(ranks=2, inner=ampsim.Pipeline(4)),
    "amp inside": ampsim.DiLoCo(ranks=2, period=2, inner=ampsim.Amp(2)),
    "groups": ampsim.LocalSGD(ranks=2, period=2, inner=ampsim.SyncSGD(ranks=2)),
    "groups at a server": ampsim.AsyncSGD(ranks=2, inner=ampsim.SyncSGD(ranks=2)),
}


def run(how: Any, every: int | None = None, *, rows: int = 45, **more: Any):
    made = model(rows, 3, layers=2)
    hosts = cluster(UNEVEN, link=SLOW, jitter_cv=0.2)
    return ampsim.simulate(made, hosts, how, epochs=2, validate_every=every, **more)


@pytest.mark.parametrize("name", MANY)
def test_looking_more_often_changes_nothing_of_the_run(name):
    seldom, often = run(MANY[name]), run(MANY[name], every=9)
    for table in ("spans", "updates", "transfers", "exchanges", "waits"):
        assert getattr(often, table).equals(getattr(seldom, table)), table
    kept = often.epochs.columns.drop("valid_instances")  # sums are added up in another order
    assert np.allclose(often.epochs[kept], seldom.epochs[kept], rtol=1e-13, atol=0, equal_nan=True)
    assert weights(often).tobytes() == weights(seldom).tobytes()
    ends = often.validations[often.validations["epochs"] % 1 == 0]
    for column in ("time_s", "instances", "valid_loss", "error"):
        assert ends[column].tolist() == seldom.validations[column].tolist(), column
    assert len(often.validations) > len(seldom.validations)
    assert often.validations["time_s"].is_monotonic_increasing


@pytest.mark.parametrize("name", MANY)
def test_parts_of_an_epoch_have_all_of_its_items_once(name):
    looks = run(MANY[name], every=9).validations
    counts = looks["instances"].to_numpy()
    assert (np.diff(counts) > 0).all()
    assert {45, 90} <= {*counts.tolist()}


@pytest.mark.parametrize("name", ["sync-sgd", "sync-easgd", "overlap", "four batches to a rank"])
def test_ranks_that_meet_are_looked_at_after_the_round_that_reaches_the_count(name):
    looks = run(MANY[name], every=9).validations
    expected = [24, 45, 69, 90] if "four" in name else [12, 24, 36, 45, 57, 69, 81, 90]
    assert looks["instances"].tolist() == expected


@pytest.mark.parametrize("name", ["async-sgd", "hogwild", "easgd", "ea-wild"])
def test_a_server_is_looked_at_with_the_deal_that_reaches_the_count(name):
    counts = run(MANY[name], every=9).validations["instances"].tolist()
    assert counts == [9, 18, 27, 36, 45, 54, 63, 72, 81, 90]


def test_mode_sleep_ends_its_parts_at_the_same_times():
    for how in (MANY["sync-sgd"], MANY["async-sgd"], MANY["groups"]):
        real, asleep = run(how, every=9), run(how, every=9, mode="sleep")
        assert asleep.validations["time_s"].tolist() == real.validations["time_s"].tolist()


@pytest.mark.parametrize("inner", [None, ampsim.Pipeline(2)])
def test_within_an_epoch_sync_sgd_knows_what_it_knows_after_as_many_items_alone(inner):
    """The data is in its order, so that an epoch of its first 24 rows is the first half of 48."""
    options: dict[str, Any] = {"ranks": 4} if inner is None else {"ranks": 2, "inner": inner}
    how, hosts = ampsim.SyncSGD(**options), cluster(UNEVEN, link=SLOW)
    whole = model(48, 3, layers=2)
    points: Any = whole.make_data(0, None)
    half = replace(whole, make_data=lambda _s, _n: Points(points.x[:24], points.y[:24], 3))
    long = ampsim.simulate(whole, hosts, how, validate_every=24)
    short = ampsim.simulate(half, hosts, how)
    assert long.validations["instances"].tolist()[:2] == [24, 48]
    assert long.validations["error"].iloc[0] == short.validations["error"].iloc[0]
    assert long.validations["error"].iloc[1] != long.validations["error"].iloc[0]
    assert long.validations["time_s"].iloc[0] == short.validations["time_s"].iloc[0]


@pytest.mark.parametrize("every", [3, 9, 21])
def test_within_an_epoch_async_sgd_is_the_plain_loop_after_as_many_merges(every):
    """Ranks of one speed merge in the order in which they were dealt batches."""
    made = model(45, 3)
    hosts = cluster([1e9, 1e9, 1e9, 1e12])
    looks = ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=3), validate_every=every).validations
    assert looks["instances"].tolist() == [*range(every, 45, every), 45]
    plain = problem(made)
    (x, y), *_rest = plain.batches
    for items, error in zip(looks["instances"], looks["error"], strict=True):
        rule = [1e-3] * 3, 1e-9, items // 3
        theta, _stale = async_loop(plain, *rule, lambda _at, _staleness: 0.05)
        expected = np.abs(x[:2] @ theta[:3] + theta[3] - y[:2]).mean()
        assert error == pytest.approx(expected, rel=1e-12)
