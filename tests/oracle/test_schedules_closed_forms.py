"""Schedules of stages meet closed forms, and recursions that share no code with the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import (
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    Pipeline,
    Sequential,
    ZeroBubbleH1,
    simulate,
)
from ampsim.hardware import Link

step_costs = st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(0))
stage_counts, groups = st.integers(2, 8), st.integers(1, 24)  # fewer, as many and more than stages
unequal_stages = st.lists(step_costs, min_size=1, max_size=6).map(tuple)

SYNCHRONOUS = [Pipeline, GPipe, OneFOneB]


def train_s(result: Any) -> float:
    return float(result.epochs["train_s"].sum())


@pytest.mark.parametrize("kind", SYNCHRONOUS)
@settings(max_examples=40, deadline=None)
@given(p=stage_counts, m=groups, cost=step_costs, count=st.integers(1, 2))
def test_equal_stages_take_their_time_and_idle_their_bubble(
    chain, make_cluster, kind, p, *, m, cost, count
):
    """(m + p − 1)(f + b) a mini-batch, of which a worker idles (p − 1)/(m + p − 1)."""
    model = chain((cost,) * p, instances=count * m).model()
    result = simulate(model, make_cluster(p), kind(max_active_keys=m), mode="sleep")
    assert train_s(result) == pytest.approx(count * (m + p - 1) * sum(cost), rel=1e-9)
    assert 1 - result.utilisation == pytest.approx((p - 1) / (m + p - 1), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(p=stage_counts, m=groups, cost=step_costs, latency_s=st.sampled_from([0.0, 0.25]))
def test_activations_stashed_are_m_under_gpipe_and_p_minus_s_under_1f1b(
    chain, make_cluster, p, m, *, cost, latency_s
):
    model = chain((cost,) * p, instances=m + 2, valid=3).model()
    cluster = make_cluster(p, link=Link(latency_s=latency_s))
    forwards_first = simulate(model, cluster, GPipe(m), mode="sleep")
    assert list(forwards_first.peak_in_flight.values()) == [m] * p
    alternating = simulate(model, cluster, OneFOneB(m), mode="sleep")
    assert list(alternating.peak_in_flight.values()) == [min(m, p - s) for s in range(p)]
    one = simulate(model, cluster, Sequential(), mode="sleep")
    assert one.peak_in_flight == {f"stage-{s + 1}": 1 for s in range(p)}


@settings(max_examples=15, deadline=None)
@given(p=stage_counts, m=st.integers(1, 12), rows=st.integers(1, 3))
def test_bytes_of_activations_are_those_of_m_under_gpipe_and_of_p_minus_s_under_1f1b(
    chain, make_cluster, p, m, rows
):
    """A stage keeps its input, `rows` x 2 numbers of 8 bytes; its weights are 2 x 2 + 2 numbers.

    At its fullest moment the last input may still be a message.
    """
    model, each = chain(((1, 1, 0),) * p, instances=m + 2, rows=rows).model(), rows * 2 * 8
    forwards_first, alternating = (
        simulate(model, make_cluster(p), kind(m), mode="sleep", counts_memory=True).peak_memory
        for kind in (GPipe, OneFOneB)
    )
    for stage, (first, second) in enumerate(
        zip(forwards_first.to_dict("records"), alternating.to_dict("records"), strict=True)
    ):
        assert first["weights"] == second["weights"] == 6 * 8
        assert first["activations"] in (m * each, (m - 1) * each)
        assert first["activations"] + first["messages"] >= m * each
        held = min(m, p - stage)
        assert second["activations"] in (held * each, (held - 1) * each)
        assert first["bytes"] >= second["bytes"]


@settings(max_examples=40, deadline=None)
@given(
    workers=stage_counts,
    v=st.integers(1, 4),
    rounds=st.integers(1, 8),
    cost=step_costs,
)
def test_interleaving_divides_the_bubble_by_the_stages_of_a_worker(
    chain, make_cluster, workers, v, *, rounds, cost
):
    """(W − 1)/(v·m) of the ideal time (SC 2021, Section 2.2.2), for m a multiple of W."""
    m = rounds * workers
    model = chain((cost,) * (workers * v), instances=m).model()
    result = simulate(model, make_cluster(workers), InterleavedOneFOneB(m), mode="sleep")
    ideal_s = m * v * sum(cost)
    bubble_s = train_s(result) - ideal_s
    assert bubble_s / ideal_s == pytest.approx((workers - 1) / m / v, rel=1e-9)
    whole = chain((tuple(v * part for part in cost),) * workers, instances=m).model()
    plain = simulate(whole, make_cluster(workers), OneFOneB(m), mode="sleep")
    assert train_s(plain) - ideal_s == pytest.approx(v * bubble_s, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    workers=st.integers(1, 5),
    v=st.integers(1, 3),
    m=st.integers(1, 12),
    n=st.integers(1, 30),
    data=st.data(),
)
def test_interleaving_ends_whatever_the_sizes_and_never_overfills(
    chain, make_cluster, workers, v, *, m, n, data
):
    """Mini-batches that are no multiple of W, a last one that is smaller, stages that differ."""
    costs = tuple(data.draw(step_costs) for _ in range(workers * v))
    model = chain(costs, instances=n).model()
    result = simulate(model, make_cluster(workers), InterleavedOneFOneB(m), mode="sleep")
    assert len(result.spans[result.spans["direction"] == "backward"]) >= n * len(costs)
    assert max(result.peak_in_flight.values()) <= min(m, n)


@settings(max_examples=40, deadline=None)
@given(p=stage_counts, more=st.integers(0, 16), forward=st.integers(3, 6), weight=st.integers(1, 3))
def test_zb_h1_idles_its_published_bubble_with_the_activations_of_1f1b(
    chain, make_cluster, p, more, *, forward, weight
):
    """(p − 1)(f + b − w), at most p activations (Qi et al., 2024, Table 1); b = 2 w, w <= f."""
    m, backward = p + more, 3 * weight
    model = chain(((forward, backward, 0),) * p, instances=m).model()
    result = simulate(model, make_cluster(p), ZeroBubbleH1(m), mode="sleep")
    bubble_s = (p - 1) * (forward + 2 * weight - weight)
    assert train_s(result) == pytest.approx(m * (forward + backward) + bubble_s, rel=1e-9)
    assert list(result.peak_in_flight.values()) == [p] * p
    spans = result.spans[result.spans["direction"] == "backward"]
    for _step, halves in spans[spans["node"] != "loss"].groupby(
        ["node", "instance"], observed=True
    ):
        assert halves["staleness"].tolist() == [-1, 0]
        assert (halves["end_s"] - halves["start_s"]).tolist() == pytest.approx([2 * weight, weight])


Costs = tuple[tuple[int, int, int], ...]


def gpipe_s(costs: Costs, m: int) -> float:
    """A flow shop of forwards; when the last has left it, one of backwards."""

    @cache
    def forward(s: int, k: int) -> float:
        if s < 0 or k < 0:
            return 0.0
        return max(forward(s - 1, k), forward(s, k - 1)) + costs[s][0]

    @cache
    def backward(s: int, k: int) -> float:
        if s == len(costs) or k < 0:
            return forward(len(costs) - 1, m - 1)
        return max(backward(s + 1, k), backward(s, k - 1)) + costs[s][1]

    return backward(0, m - 1)


def one_f_one_b_s(costs: Costs, m: int) -> float:
    """Each stage's published order, each step after the one before it here and next door."""
    p = len(costs)

    def order(s: int) -> list[tuple[str, int]]:
        warm = min(p - s, m)
        steady = [step for j in range(m - warm) for step in (("b", j), ("f", j + warm))]
        tail = [("b", j) for j in range(m - warm, m)]
        return [*(("f", k) for k in range(warm)), *steady, *tail]

    orders = [order(s) for s in range(p)]
    places = [{step: place for place, step in enumerate(steps)} for steps in orders]

    @cache
    def end(s: int, place: int) -> float:
        if place < 0:
            return 0.0
        kind, k = orders[s][place]
        feeder = s - 1 if kind == "f" else s + 1
        ready = 0.0
        if 0 <= feeder < p:
            ready = end(feeder, places[feeder][kind, k])
        elif kind == "b":
            ready = end(s, places[s]["f", k])
        return max(ready, end(s, place - 1)) + costs[s][kind == "b"]

    return max(end(s, 2 * m - 1) for s in range(p))


@pytest.mark.parametrize(("kind", "recursion"), [(GPipe, gpipe_s), (OneFOneB, one_f_one_b_s)])
@settings(max_examples=60, deadline=None)
@given(costs=unequal_stages, m=st.integers(1, 16))
def test_unequal_stages_take_what_a_recursion_says(
    chain, make_cluster, kind: Any, recursion: Callable[[Costs, int], float], *, costs, m
):
    model = chain(costs, instances=m).model()
    result = simulate(model, make_cluster(len(costs)), kind(m), mode="sleep")
    assert train_s(result) == pytest.approx(recursion(costs, m), rel=1e-9)


ASYNCHRONOUS = [PipeDream(), PipeDream(vertical_sync=True), PipeDream2BW()]
WEIGHTS_BYTES = (2 * 2 + 2) * 8  # of a stage


def by_stage(result: Any) -> list[list[int]]:
    """Staleness of the gradients of each stage, in the order of instances."""
    spans = result.spans[result.spans["staleness"] >= 0].sort_values("instance")
    stages = sorted(spans["node"].unique())
    return [spans[spans["node"] == stage]["staleness"].tolist() for stage in stages]


@pytest.mark.parametrize("schedule", ASYNCHRONOUS, ids=str)
@settings(max_examples=30, deadline=None)
@given(p=stage_counts, n=st.integers(1, 24), cost=step_costs)
def test_pipedream_fills_once_an_epoch_and_never_drains(
    chain, make_cluster, schedule, p, *, n, cost
):
    model = chain((cost,) * p, instances=n).model()
    result = simulate(model, make_cluster(p), schedule, mode="sleep", epochs=2)
    expected = (n + p - 1) * sum(cost)
    assert result.epochs["train_s"].tolist() == pytest.approx([expected] * 2, rel=1e-9)
    assert list(result.peak_in_flight.values()) == [min(n, p - s) for s in range(p)]


@settings(max_examples=40, deadline=None)
@given(costs=st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=1, max_size=6).map(tuple))
def test_pipedream_finishes_an_instance_in_each_time_of_the_slowest_stage(
    chain, make_cluster, costs
):
    """Forward, backward and update of the stage with the most of them."""
    model, cluster = chain(costs, instances=96).model(), make_cluster(len(costs))
    spans = simulate(model, cluster, PipeDream(), mode="sleep").spans
    first = spans[(spans["node"] == "stage-1") & (spans["direction"] == "backward")]
    ends_s = first.sort_values("instance")["end_s"].tolist()
    assert ends_s[80] - ends_s[40] == pytest.approx(40 * max(map(sum, costs)), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(costs=unequal_stages, n=st.integers(1, 24), latency_s=st.sampled_from([0.0, 0.7]))
def test_staleness_under_pipedream_is_p_minus_1_minus_s_whatever_the_stages_cost(
    chain, make_cluster, costs, n, *, latency_s
):
    p = len(costs)
    cluster = make_cluster(p, link=Link(latency_s=latency_s))
    model = chain(costs, instances=n).model()
    result = simulate(model, cluster, PipeDream(), mode="sleep")
    assert by_stage(result) == [[min(k, p - 1 - s) for k in range(n)] for s in range(p)]
    held = [max(0, min(n, p - s) - 1) for s in range(p)]
    full = n >= 2 * p
    for found, versions in zip(result.stashed_bytes_max.values(), held, strict=True):
        assert found == versions * WEIGHTS_BYTES if full else found <= versions * WEIGHTS_BYTES
    noted = result.stashes.groupby("node", observed=True)["bytes"].max()
    assert noted.to_dict() == {n: most for n, most in result.stashed_bytes_max.items() if most}
    result = simulate(model, cluster, PipeDream(vertical_sync=True), mode="sleep")
    assert by_stage(result) == [[min(k, p - 1) for k in range(n)]] * p


@settings(max_examples=40, deadline=None)
@given(costs=unequal_stages, n=st.integers(1, 40), more=st.integers(0, 4))
def test_staleness_under_2bw_is_1_and_two_versions_suffice(chain, make_cluster, costs, n, *, more):
    m = len(costs) + more
    model = chain(costs, instances=n).model()
    result = simulate(model, make_cluster(len(costs)), PipeDream2BW(m), mode="sleep")
    assert by_stage(result) == [[int(k >= m) for k in range(n)]] * len(costs)
    assert all(held <= WEIGHTS_BYTES for held in result.stashed_bytes_max.values())
    synchronous = simulate(model, make_cluster(len(costs)), OneFOneB(m), mode="sleep")
    assert set(synchronous.stashed_bytes_max.values()) == {0}
    assert synchronous.stashes.empty
