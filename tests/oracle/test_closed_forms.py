"""Schedules and links meet their closed forms on chains of stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import Amp, Pipeline, Sequential, simulate
from ampsim.hardware import HOST, Link
from ampsim.ir import Direction, Graph, Work
from ampsim.nodes import Embedding, Linear, SoftmaxCrossEntropy

EQUAL_STEPS = (1, 1, 0)  # FLOP of forward, backward, update
AS_APPENDIX_C = (1, 2, 0)  # a backward step has two matrix products

step_costs = st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(0))


def train_s(result: Any) -> float:
    return float(result.epochs["train_s"].sum())


@settings(max_examples=40, deadline=None)
@given(
    stages=st.integers(2, 8),
    in_flight=st.integers(1, 64),
    more_workers=st.sampled_from([0, 0, 5]),
    cost=step_costs,
)
def test_pipeline_speed_up_over_sequential(
    chain, make_cluster, stages, in_flight, *, more_workers, cost
):
    """p·m / (m + p − 1), for any ratio of forward to backward."""
    model = chain((cost,) * stages, instances=in_flight).model()
    cluster = make_cluster(stages + more_workers)
    one = simulate(model, cluster, Sequential(), mode="sleep")
    many = simulate(model, cluster, Pipeline(max_active_keys=in_flight), mode="sleep")
    expected = stages * in_flight / (in_flight + stages - 1)
    assert train_s(one) / train_s(many) == pytest.approx(expected, rel=1e-9)
    assert train_s(one) == pytest.approx(stages * in_flight * sum(cost), rel=1e-12)


@pytest.mark.parametrize("workers", [3, 7])
@pytest.mark.parametrize("in_flight", [1, 2, 3, 4, 8, 16])
def test_three_layers_reach_what_the_paper_says(chain, make_cluster, workers, in_flight):
    """3m / (m + 2) (paper, Section 6), over several groups."""
    model = chain((AS_APPENDIX_C,) * 3, instances=3 * in_flight).model()
    one = simulate(model, make_cluster(workers), Sequential())
    many = simulate(model, make_cluster(workers), Pipeline(max_active_keys=in_flight))
    expected = 3 * in_flight / (in_flight + 2)
    assert train_s(one) / train_s(many) == pytest.approx(expected, rel=1e-9)


class FreeUpdate(Linear):
    """A linear layer, its updates free."""

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return Work() if direction is Direction.UPDATE else super().work(direction, shape)


class FreeTable(Embedding):
    """A table, its updates free: it makes the first layer compute an input gradient too."""

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return Work()


def linear_layers() -> Graph:
    graph = Graph("layers")
    wire, label = graph.controller(tokens=("rows",), label=("rows",))
    wire = graph.add(FreeTable("table", 2, 16), wire)
    for number in range(3):
        wire = graph.add(FreeUpdate(f"linear-{number}", 16, 16), wire)
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    return graph


@pytest.mark.parametrize("workers", [4, 6])
def test_three_real_linear_layers_reach_it_too(chain, make_cluster, workers):
    data = chain((), instances=8, rows=5)

    def pump(instance: int, batch: Any) -> list[Any]:
        return [(0, (instance,), batch.labels), (1, (instance,), batch.labels)]

    model = replace(data.model(), make_graph=linear_layers, pump=pump)
    cluster = make_cluster(workers, flop_per_s=1e12)
    one = simulate(model, cluster, Sequential())
    many = simulate(model, cluster, Pipeline(max_active_keys=8))
    assert train_s(one) == pytest.approx(8 * 3 * 3 * (2 * 5 * 16 * 16) * 1e-12, rel=1e-9)
    assert train_s(one) / train_s(many) == pytest.approx(24 / 10, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    stages=st.integers(1, 6),
    instances=st.integers(1, 60),
    in_flight=st.integers(1, 20),
    cost=st.sampled_from([EQUAL_STEPS, AS_APPENDIX_C, (2, 1, 0)]),
)
def test_amp_is_as_fast_as_its_stages_and_keys_allow(
    chain, make_cluster, stages, instances, *, in_flight, cost
):
    """Two bounds from below, n·s and ⌈n / k⌉·p·s with s = forward + backward; their larger plus the
    time to fill and empty the pipe, (p − 1)·s, from above."""
    model = chain((cost,) * stages, instances=instances).model()
    result = simulate(model, make_cluster(stages), Amp(max_active_keys=in_flight), mode="sleep")
    step_s = sum(cost)
    by_stage = (instances + stages - 1) * step_s
    rounds, rest = divmod(instances, in_flight)
    by_keys = (rounds + (rest > 0)) * stages * step_s
    low, high = max(by_stage, by_keys), max(by_stage, by_keys) + (stages - 1) * step_s
    assert low * (1 - 1e-12) <= train_s(result) <= high * (1 + 1e-12)


def test_amp_without_limit_equals_one_pipeline_of_all_instances(chain, make_cluster):
    """Updates are free: nothing is left that tells (b) from (c) in Figure 1."""
    for stages in (1, 2, 5):
        model = chain((AS_APPENDIX_C,) * stages, instances=40).model()
        result = simulate(model, make_cluster(stages), Amp(max_active_keys=40), mode="sleep")
        assert train_s(result) == pytest.approx((40 + stages - 1) * 3, rel=1e-12)


unequal = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(costs=unequal, workers=st.integers(1, 8), in_flight=st.integers(1, 9), n=st.integers(1, 12))
def test_no_schedule_beats_the_critical_path_or_the_busiest_worker(
    chain, make_cluster, costs, workers, *, in_flight, n
):
    model = chain(tuple(costs), instances=n).model()
    cluster = make_cluster(workers)
    path_s = sum(forward + backward for forward, backward, _ in costs)
    for schedule in (Pipeline(max_active_keys=in_flight), Amp(max_active_keys=in_flight)):
        result = simulate(model, cluster, schedule, mode="sleep")
        spans = result.spans
        busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum()
        updates = len(result.updates) / len(costs)
        work_s = n * path_s + updates * sum(cost[2] for cost in costs)
        assert busy_s.sum() == pytest.approx(work_s, rel=1e-9, abs=1e-12)
        assert result.makespan_s >= path_s * (1 - 1e-9)
        assert result.makespan_s >= max(busy_s.max(), work_s / workers) * (1 - 1e-9)


def test_unequal_stages_run_at_the_rate_of_the_slowest(chain, make_cluster):
    """A bottleneck of s seconds an instance: n·s, and at most one pass through the rest more."""
    costs = ((2, 1, 0), (5, 7, 0), (1, 3, 0), (4, 4, 0))
    model = chain(costs, instances=200).model()
    result = simulate(model, make_cluster(4), Amp(max_active_keys=16), mode="sleep")
    assert 200 * 12 <= train_s(result) <= 200 * 12 + 27 - 12
    assert result.train_per_s == pytest.approx(1 / 12, rel=0.01)


def test_one_instance_takes_its_work_and_its_way(chain, make_cluster):
    """Compute, latency and bytes / bandwidth add up, whatever the link; each differs here."""
    ways = [(HOST, 0), (0, 1), (1, 2), (2, 1), (1, 0), (0, HOST), (HOST, 2)]
    links = {
        way: Link(latency_s=0.1 * (k + 1), bandwidth_bytes_per_s=100.0 * (k + 1))
        for k, way in enumerate(ways)
    }
    costs = ((2, 3, 0), (5, 7, 0), (11, 13, 0))
    model = chain(costs, instances=1, rows=4).model()
    result = simulate(model, make_cluster(3, links=links), Sequential())
    values = 4 * 2 * 8  # rows, columns, bytes of a float64

    def way_s(k: int, payload_bytes: int) -> float:
        return 0.1 * (k + 1) + payload_bytes / (100.0 * (k + 1))

    up = way_s(0, values) + 2 + way_s(1, values) + 5 + way_s(2, values) + 11
    down = 13 + way_s(3, values) + 7 + way_s(4, values) + 3
    back = way_s(5, 0)  # the values need no gradient: an empty message tells that all is done
    order = way_s(6, 0)  # the update of stage 3 is ordered last: it has the slowest way
    assert result.makespan_s == pytest.approx(up + down + back + order, rel=1e-12)
    carried = result.transfers.groupby(["source", "target"], observed=True)["bytes"].first()
    assert carried[("stage-1", "stage-2")] == carried[("stage-2", "stage-1")] == values


def test_two_messages_on_one_link_arrive_one_after_the_other(chain, make_cluster):
    """b bytes each, both sent at 0: the second arrives b / bandwidth after the first."""
    link = Link(latency_s=0.5, bandwidth_bytes_per_s=32.0)
    model = chain(((1, 1, 0),), instances=2, rows=4).model()
    cluster = make_cluster(1, flop_per_s=1e6, links={(HOST, 0): link})
    result = simulate(model, cluster, Amp(max_active_keys=2))
    sent = result.transfers[result.transfers["target"] == "stage-1"]
    assert sent["bytes"].tolist() == [64, 64]
    # The labels, 4 integers of 8 bytes, share the link: values, labels, values, labels.
    assert sent["start_s"].tolist() == pytest.approx([0.0, 3.0], rel=1e-12)
    assert sent["end_s"].tolist() == pytest.approx([2.5, 5.5], rel=1e-12)
    spans = result.spans[(result.spans["node"] == "stage-1") & (result.spans["end_s"] > 0)]
    forward = spans[spans["direction"] == "forward"]["start_s"].tolist()
    assert forward == pytest.approx([2.5, 5.5], rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 12), rows=st.integers(1, 9), bandwidth=st.floats(1.0, 1e6))
def test_a_link_is_first_come_first_served_and_never_shared(
    chain, make_cluster, count, rows, *, bandwidth
):
    """All values are sent from stage 1 to stage 2 at once, as stage 1 takes no time."""
    link = Link(latency_s=0.25, bandwidth_bytes_per_s=bandwidth)
    model = chain(((0, 0, 0), (0, 0, 0)), instances=count, rows=rows).model()
    cluster = make_cluster(2, links={(0, 1): link})
    result = simulate(model, cluster, Pipeline(max_active_keys=count), mode="sleep")
    sent = result.transfers[result.transfers["target"] == "stage-2"]
    each_s = rows * 2 * 8 / bandwidth
    ends = [0.25 + (k + 1) * each_s for k in range(count)]
    assert sent["end_s"].tolist() == pytest.approx(ends, rel=1e-9)
    served = result.spans[result.spans["node"] == "stage-2"]
    order = served[served["direction"] == "forward"]["instance"].tolist()
    assert order == list(range(count))
