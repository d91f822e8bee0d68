"""What solvers learn, against loops and closed forms that share no code with them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from plain_solvers import async_loop, problem
from solver_cases import cluster, model, solver, stacked, weights

import ampsim
from ampsim.data_parallel import COLLECTIVES
from ampsim.hardware import Link

SLOW = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad"])
@pytest.mark.parametrize("rows", [48, 41, 5])
def test_sync_sgd_on_four_ranks_is_one_worker_with_four_times_the_batch(optimizer, rows):
    whole = ampsim.simulate(
        model(rows, 12, optimizer=optimizer), cluster([1e9]), ampsim.Sequential(), epochs=3
    )
    parts = ampsim.simulate(
        model(rows, 3, optimizer=optimizer),
        cluster([1e9, 3e9, 2e9, 5e8], link=SLOW),
        ampsim.SyncSGD(ranks=4),
        epochs=3,
    )
    assert np.allclose(weights(parts), weights(whole), rtol=1e-12, atol=1e-13)
    assert parts.epochs["instances"].tolist() == [rows] * 3


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_collective_changes_a_bit_of_the_weights(collective):
    options: dict[str, Any] = {"ranks_per_group": 2} if collective == "hierarchical" else {}
    clusters = cluster([1e9] * 4, link=SLOW)
    one = ampsim.simulate(model(40, 3), clusters, ampsim.SyncSGD(ranks=4), epochs=2)
    other = ampsim.SyncSGD(ranks=4, collective=collective, **options)
    two = ampsim.simulate(model(40, 3), clusters, other, epochs=2)
    assert weights(one).tobytes() == weights(two).tobytes()


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "hogwild", "ssp", "local-sgd"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_one_rank_has_the_weights_of_sequential_sgd_to_the_bit(name, optimizer):
    made = model(40, 3, optimizer=optimizer, dtype="float32", layers=2)
    plain = ampsim.simulate(made, cluster([1e9]), ampsim.Sequential(), epochs=2)
    one = ampsim.simulate(made, cluster([1e9, 1e9], link=SLOW), solver(name, ranks=1), epochs=2)
    assert weights(one).tobytes() == weights(plain).tobytes()


def test_one_rank_of_sync_sgd_has_the_very_spans_and_updates_of_sequential():
    made, device = model(40, 3, layers=2), cluster([1e9])
    plain = ampsim.simulate(made, device, ampsim.Sequential())
    one = ampsim.simulate(made, device, ampsim.SyncSGD(ranks=1))
    trained = plain.spans[plain.spans["end_s"] <= one.makespan_s].iloc[: len(one.spans)]
    for column in trained.columns.drop(["node"]):
        assert one.spans[column].tolist() == trained[column].tolist(), column
    assert one.spans["node"].tolist() == trained["node"].tolist()
    assert one.updates.to_numpy().tolist() == plain.updates.to_numpy().tolist()


@cache
def scale_of_loss() -> float:
    """What the loss's gradient is of the residual over rows: measured, not assumed."""
    made = model(3, 3)
    before = problem(made)
    after = ampsim.simulate(made, cluster([1e9]), ampsim.Sequential())
    plain = before.gradient(before.theta, 0)
    ratio = (before.theta - stacked(after.model)) / 0.05 / plain
    assert np.allclose(ratio, ratio.flat[0], rtol=1e-9)
    return float(ratio.flat[0])


@pytest.mark.parametrize("seed", range(20))
def test_async_sgd_is_an_event_loop_of_sixty_lines(seed):
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 6))
    speeds = random.uniform(0.3e9, 3e9, ranks).tolist()
    made = model(60, 3)
    result = ampsim.simulate(made, cluster([*speeds, 4e8]), ampsim.AsyncSGD(ranks=ranks), epochs=3)
    spans = result.spans
    flop = sum(
        int(spans[(spans["direction"] == way) & (spans["node"] == "linear-1")]["flop"].iloc[0])
        for way in ("forward", "backward")
    )
    merged = spans.loc[spans["node"] == "centre", "staleness"].tolist()
    assert len(merged) >= 60  # those of the next epoch that came before the last of this one
    merge_flop = int(spans[spans["node"] == "centre"]["flop"].iloc[0])
    theta, stale = async_loop(
        problem(made), [flop / one for one in speeds], merge_flop / 4e8, len(merged),
        lambda _at, _staleness: 0.05 * scale_of_loss(),
    )  # fmt: skip
    assert np.allclose(stacked(result.model), theta, rtol=1e-12, atol=1e-14)
    assert merged == stale


@pytest.mark.parametrize("name", ["async-sgd"])
def test_staleness_adds_up_to_the_last_merges_less_the_merges(name):
    """Sum of staleness = sum over ranks of the number of its last merge - merges."""
    made, many = model(200, 1), [1e9, 2.3e9, 0.4e9, 1.7e9, 5e8]
    result = ampsim.simulate(made, cluster(many), solver(name, ranks=4), epochs=2)
    exchanges = result.exchanges.sort_values("merge_start_s", kind="stable").reset_index(drop=True)
    last = {rank: place + 1 for place, rank in enumerate(exchanges["rank"])}
    assert int(exchanges["staleness"].sum()) == sum(last.values()) - len(exchanges)


def test_equal_ranks_have_a_staleness_of_all_others():
    result = ampsim.simulate(model(200, 1), cluster([1e9] * 4 + [1e9]), ampsim.AsyncSGD(ranks=4))
    stale = result.exchanges.sort_values("merge_start_s")["staleness"].tolist()
    assert stale[:4] == [0, 1, 2, 3]
    assert set(stale[4:]) == {3}


def test_without_elasticity_ranks_are_alone_and_the_centre_stays():
    made = model(40, 4)
    for name in ("easgd", "async-easgd", "ea-wild", "sync-easgd"):
        result = ampsim.simulate(
            made, cluster([1e9] * 3), solver(name, ranks=2, moving_rate=0.0), epochs=2
        )
        assert (
            weights(result).tobytes()
            == np.concatenate([value.ravel() for value in made.parameters().values()]).tobytes()
        )


def test_ssp_without_staleness_is_sync_sgd_of_as_many_times_the_rate():
    hosts = cluster([1e9, 2e9, 0.5e9, 1e9])
    ssp = ampsim.SSP(ranks=3, staleness_bound=0)
    one = ampsim.simulate(model(45, 3, rate=0.02), hosts, ssp, epochs=2)
    two = ampsim.simulate(model(45, 3, rate=0.06), hosts, ampsim.SyncSGD(ranks=3), epochs=2)
    assert np.allclose(weights(one), weights(two), rtol=1e-12, atol=1e-14)


def test_ssp_without_a_limit_is_async_sgd():
    hosts, made = cluster([1e9, 2e9, 0.5e9, 1e9], link=SLOW), model(45, 3)
    one = ampsim.simulate(made, hosts, ampsim.SSP(ranks=3, staleness_bound=1000), epochs=2)
    two = ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=3), epochs=2)
    assert one.digest == two.digest


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_local_sgd_of_one_step_is_sync_sgd(optimizer):
    hosts, made = cluster([1e9, 2e9, 0.5e9], link=SLOW), model(36, 3, optimizer=optimizer)
    one = ampsim.simulate(made, hosts, ampsim.LocalSGD(ranks=3, period=1), epochs=2)
    two = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=3), epochs=2)
    assert np.allclose(weights(one), weights(two), rtol=1e-12, atol=1e-14)


def test_diloco_with_a_plain_outer_step_is_local_sgd():
    hosts, made = cluster([1e9, 2e9, 0.5e9], link=SLOW), model(72, 3)
    plain: dict[str, Any] = {"outer_rate": 1.0, "outer_momentum": 0.0}
    one = ampsim.simulate(made, hosts, ampsim.DiLoCo(ranks=3, period=4, **plain), epochs=1)
    two = ampsim.simulate(made, hosts, ampsim.LocalSGD(ranks=3, period=4), epochs=1)
    assert np.allclose(weights(one), weights(two), rtol=1e-12, atol=1e-14)


def test_hogwild_reads_weights_of_different_versions():
    made = model(120, 1, layers=3)
    hosts = cluster([1e9, 1.3e9, 0.7e9, 1e9, 2e8])
    assert ampsim.simulate(made, hosts, ampsim.Hogwild(ranks=4)).exchanges["is_mixed"].any()
    assert not ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=4)).exchanges["is_mixed"].any()
