"""What barriers, slow ranks, ports and merges cost: each against its closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from solver_cases import FREE, cluster, draw_exponential, model, solver

import ampsim
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Ports

BYTES = 8 * 8  # of a linear node of 3 x 2 weights and 2 biases in float64


def seconds_by_direction(result: ampsim.Result, worker: int) -> dict[str, float]:
    """What a step of the linear node takes on a worker, without jitter."""
    spans = result.spans[result.spans["worker"] == worker]
    flop = spans.groupby("direction", observed=True)["flop"].max()
    return {str(way): float(each) / 1e8 for way, each in flop.items()}


def step_s(result: ampsim.Result) -> float:
    """Mean seconds from one collective to the next."""
    starts = result.collectives["start_s"].to_numpy()
    return float(np.diff(starts).mean())


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_barrier_of_exponential_ranks_costs_the_harmonic_number(ranks, monkeypatch):
    """The largest of P exponential times: C H_P = C (1 + 1/2 + ... + 1/P)."""
    draw_exponential(monkeypatch, {0.5: (1, 0, 0)})  # forward; not backward, nor the update
    rounds = 12_000 // ranks
    made, hosts = model(rounds * ranks, 1), cluster([1e8] * ranks, jitter_cv=0.5)
    result = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=ranks), mode="sleep")
    compute_s = seconds_by_direction(result, 0)["forward"]
    harmonic = sum(1 / k for k in range(1, ranks + 1))
    spread = math.sqrt(sum(1 / k**2 for k in range(1, ranks + 1)) / rounds)
    assert step_s(result) / compute_s == pytest.approx(harmonic, abs=4.5 * spread)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "deviations"), [(8, 1.42), (16, 1.77), (64, 2.34)])
def test_a_barrier_of_ranks_that_vary_little_costs_so_many_standard_deviations(ranks, deviations):
    """The expected largest of P normal times, in tables: 1.42, 1.77 and 2.34 at 8, 16 and 64."""
    rounds, cv = 6400 // ranks + 100, 0.01
    made, hosts = model(rounds * ranks, 1), cluster([1e8] * ranks, jitter_cv=cv)
    result = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=ranks), mode="sleep")
    parts = seconds_by_direction(result, 0)
    sigma_s = cv * math.sqrt(sum(each**2 for each in parts.values()))
    found = (step_s(result) - sum(parts.values())) / sigma_s
    assert found == pytest.approx(deviations, abs=0.2)


def test_first_come_first_served_a_slow_rank_loses_only_its_own_share():
    """X = (P - 1) / C + 1 / (k C), where round-robin would have P / (k C)."""
    ranks, slower = 4, 10
    hosts = cluster([1e8] * (ranks - 1) + [1e8 / slower, 1e15])
    result = ampsim.simulate(model(2000, 1), hosts, ampsim.AsyncSGD(ranks=ranks), mode="sleep")
    parts = seconds_by_direction(result, 0)
    compute_s = parts["forward"] + parts["backward"]
    ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
    rate = (len(ends) - 101) / (ends[-1] - ends[100])
    assert rate == pytest.approx((ranks - 1 + 1 / slower) / compute_s, rel=0.01)


@pytest.mark.parametrize("name", ["async-sgd", "hogwild"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_throughput_over_ranks_bends_where_one_port_is_full(name, ranks):
    """X = min(P / (C + 2 n / B + S), B / n); C begins with a rank's data, through its own port."""
    rate, data_bytes = 1e8, 8 * (3 + 2)
    ports = Ports(ingress_bytes_per_s=rate, egress_bytes_per_s=rate)
    hosts = cluster([1e8] * ranks + [1e15]).model_copy(
        update={"ports": ports, "sharing": "first-come"}
    )
    result = ampsim.simulate(model(400, 1), hosts, solver(name, ranks=ranks), mode="sleep")
    parts = seconds_by_direction(result, 0)
    compute_s, way_s = data_bytes / rate + parts["backward"], BYTES / rate
    assert data_bytes / rate > 8 * 3 / rate + parts["forward"]  # the target comes last
    ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
    found = (len(ends) - 101) / (ends[-1] - ends[100])
    assert 2 < (compute_s + 2 * way_s) / way_s < 5  # so that it bends among these ranks
    expected = min(ranks / (compute_s + 2 * way_s), 1 / way_s)
    assert found == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("latency_s", [1e-8, 1e-5])
def test_an_exchange_beside_the_gradient_is_hidden_as_far_as_the_gradient_lasts(latency_s):
    """A step is max(C, 2 a + 2 n / B + S) + U: a long way lengthens it."""
    link = Link(latency_s=latency_s, bandwidth_bytes_per_s=1e9)
    hosts = cluster([1e8, 1e8], link=link)
    result = ampsim.simulate(model(50, 1), hosts, ampsim.AsyncEASGD(ranks=1), mode="sleep")
    parts = seconds_by_direction(result, 0)
    spans = result.spans[result.spans["node"] == "centre"]
    merge_s = float((spans["end_s"] - spans["start_s"]).iloc[0])
    way_s = 2 * (latency_s + BYTES / 1e9) + merge_s
    expected = max(parts["forward"] + parts["backward"], way_s) + parts["update"]
    sent = result.exchanges["start_s"].to_numpy()
    assert np.diff(sent)[5:] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "ea-wild", "local-sgd"])
def test_ranks_share_the_rows_of_an_epoch_and_its_time(name):
    """With B / P rows each there are n / (B / P) batches, and P ranks take a P-th of the time."""
    rows, batch, ranks = 192, 4, 4
    one, many = (
        ampsim.simulate(
            model(rows, batch), cluster([1e8] * count + [1e15] * 2), solver(name, ranks=count),
            mode="sleep",
        )
        for count in (1, ranks)
    )  # fmt: skip
    spans = many.spans
    is_forward = (spans["direction"] == "forward") & (spans["node"] == "linear-1")
    assert is_forward.sum() >= rows // batch
    assert is_forward.sum() < rows // batch + ranks
    assert many.makespan_s == pytest.approx(one.makespan_s / ranks, rel=0.05)


@pytest.mark.parametrize("name", ["async-sgd", "hogwild", "async-easgd", "ea-wild"])
def test_ten_epochs_take_less_than_ten_times_one_as_none_of_them_drains(name):
    made, hosts = model(33, 3), cluster([1e8, 3e7, 1e8, 1e15])
    chosen = solver(name, ranks=3)
    one, ten = (ampsim.simulate(made, hosts, chosen, epochs=epochs) for epochs in (1, 10))
    assert ten.makespan_s < 0.97 * 10 * one.makespan_s


def test_hogwild_saturates_its_memory_as_a_lock_does():
    made, ranks = model(300, 1, layers=2), 6
    hosts = cluster([1e8] * ranks + [4e6])
    result = ampsim.simulate(made, hosts, ampsim.Hogwild(ranks=ranks), mode="sleep")
    merges = result.spans[result.spans["node"] == "centre"]
    each_s = (merges["end_s"] - merges["start_s"]).sum() / len(result.exchanges)
    ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
    found = (len(ends) - 51) / (ends[-1] - ends[50])
    assert found == pytest.approx(1 / each_s, rel=0.03)


def test_one_rank_of_async_sgd_computes_when_sequential_does():
    """On a server like itself a merge takes as long as the update there would."""
    made = model(40, 3)
    plain = ampsim.simulate(made, cluster([1e9]), ampsim.Sequential())
    one = ampsim.simulate(made, cluster([1e9, 1e9], link=FREE), ampsim.AsyncSGD(ranks=1))
    for way in ("forward", "backward"):
        starts = [starts_of(result, way) for result in (plain, one)]
        assert starts[0] == pytest.approx(starts[1], rel=1e-12)


def starts_of(result: Any, way: str) -> list[float]:
    spans = result.spans[(result.spans["worker"] == 0) & (result.spans["node"] == "linear-1")]
    return spans[spans["direction"] == way]["start_s"].tolist()[: 14 if way == "forward" else None]


@pytest.mark.parametrize("elastic", ["server", "worker"])
@pytest.mark.parametrize("speed", [1e9, 2e7])
def test_ranks_of_ea_wild_are_no_faster_than_their_server_merges(elastic, speed):
    """X = min(P / (C + U), 1 / S): a server takes one parcel of each rank, and the next waits."""
    ranks = 4
    hosts = cluster([1e8] * ranks + [speed])
    chosen = ampsim.EAWild(ranks=ranks, elastic=elastic)
    result = ampsim.simulate(model(600, 1), hosts, chosen, mode="sleep", counts_memory=True)
    parts = seconds_by_direction(result, 0)
    merges = result.spans[result.spans["node"] == "centre"]
    merge_s = float((merges["end_s"] - merges["start_s"]).max())
    ends = np.sort(result.exchanges["merge_end_s"].to_numpy())
    found = (len(ends) - 101) / (ends[-1] - ends[100])
    expected = min(ranks / sum(parts.values()), 1 / merge_s)
    assert found == pytest.approx(expected, rel=0.02)
    held = dict(zip(result.peak_memory["worker"], result.peak_memory["messages"], strict=True))
    assert held[ranks] <= ranks * BYTES


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "lars"])
def test_a_rank_and_its_server_take_as_long_for_an_update_as_whoever_trains_alone(optimizer):
    """The server's optimizer is that of the run; the arrays that it keeps are passed over there."""
    device = Device(
        name="d", flop_per_s=1e9, memory_bandwidth_bytes_per_s=3e9, pass_bandwidth_bytes_per_s=1e9,
        operation_overhead_s=1e-6, functions_per_s=1e8, cache_bytes=200,
        cache_bandwidth_bytes_per_s=7e9,
    )  # fmt: skip
    made = model(6, 1, layers=2, optimizer=optimizer)
    alone, pushed = (
        ampsim.simulate(
            made, Cluster(name="test", devices=(device,) * workers, link=FREE), chosen, mode="sleep"
        )
        for workers, chosen in ((1, ampsim.Sequential()), (2, ampsim.Hogwild(ranks=1)))
    )
    spans = pushed.spans[pushed.spans["direction"] == "update"]
    steps = alone.spans[alone.spans["direction"] == "update"]
    parts = steps, spans[spans["node"] == "centre"], spans[spans["node"] != "centre"]
    taken, merged, summed = (np.sort(one["end_s"] - one["start_s"]) for one in parts)
    assert len(taken) == 12
    assert summed == pytest.approx(4 * 1e-6)  # the rank's operations, as it has x and g
    assert merged + summed[:12] == pytest.approx(taken, rel=1e-9)


@pytest.mark.parametrize(("inner", "taken"), [("sequential", 1), ("pipeline:4", 4)])
def test_a_rank_under_ssp_may_be_so_many_pushes_ahead_of_what_it_takes_at_once(inner, taken):
    """It was told of batches; the last push that the bound lets go is one that it waits after."""
    bound, hosts = 2, cluster([1e9, 1e4, 1e15])
    chosen = ampsim.SSP(ranks=2, staleness_bound=bound, inner=inner)
    result = ampsim.simulate(model(40, 1), hosts, chosen, mode="sleep")
    merged, spans = result.exchanges.set_index("rank")["merge_end_s"], result.spans
    is_ahead = (spans["worker"] == 0) & (spans["end_s"] < merged.loc[1].min())
    begun = spans.loc[is_ahead & (spans["node"] == "linear-1"), "instance"].nunique()
    assert begun == (bound + 1) * taken
