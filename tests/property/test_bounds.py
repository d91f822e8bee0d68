"""What bounds a run, over random runs: never more than all of the time, and closed forms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampsim import Amp, Pipeline, Sequential, load_model, simulate
from ampsim.data import ListReduction
from ampsim.hardware import Link
from ampsim.trace import Window, window_of
from ampsim.trace.critical_path import critical_path_s
from ampsim.trace.links import held_s

schedules = st.one_of(
    st.just(Sequential()),
    st.builds(Pipeline, max_active_keys=st.integers(1, 9)),
    st.builds(
        Amp,
        max_active_keys=st.integers(1, 9),
        min_update_interval=st.integers(1, 20),
        max_group=st.sampled_from([1, 1, 4]),
    ),
)
stages = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=6
)


def whole(result: Any) -> Window:
    return window_of(
        result.recorder.columns("spans"),
        result.recorder.columns("transfers"),
        workers=result.workers,
        nodes=len(result.recorder.nodes),
        end_s=float(result.epochs["train_s"].iloc[0]),
    )


@dataclass(frozen=True)
class Case:
    schedule: Any
    workers: int
    replicas: int
    seed: int
    latency_s_max: float
    bandwidth: float | None


cases = st.builds(
    Case,
    schedule=schedules,
    workers=st.integers(1, 8),
    replicas=st.integers(1, 3),
    seed=st.integers(0, 9),
    latency_s_max=st.sampled_from([0.0, 1e-9, 1e-7]),
    bandwidth=st.sampled_from([None, 1e9, 1e12]),
)


def run(case: Case, random_cluster: Any) -> Any:
    model = load_model("rnn", hidden=4, replicas=case.replicas)
    data = ListReduction.generate(case.seed, 40, 9, batch=4)
    cluster = random_cluster(
        case.workers,
        seed=case.seed,
        latency_s_max=case.latency_s_max,
        bandwidth_bytes_per_s=case.bandwidth,
    )
    model = replace(model, make_data=lambda _seed, _count: data)
    return simulate(model, cluster, case.schedule, mode="sleep")


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_makespan_is_at_least_the_critical_path_and_that_at_least_any_step(random_cluster, case):
    result = run(case, random_cluster)
    found, bounds = whole(result), result.bounds
    path_s = critical_path_s(found)
    rounding = 1 + 1e-9
    assert found.end_s * rounding >= path_s
    spans = result.spans[result.spans["end_s"] <= found.end_s]
    assert path_s * rounding >= (spans["end_s"] - spans["start_s"]).max()
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum().max()
    assert bounds.worker_share == pytest.approx(busy_s / found.end_s)
    assert bounds.path_share == pytest.approx(path_s / found.end_s)
    assert max(bounds.worker_share, bounds.link_share) + bounds.admission_share <= rounding
    shares = (bounds.worker_share, bounds.path_share, bounds.link_share, bounds.admission_share)
    assert all(0 <= share <= 1 for share in shares)
    assert max(shares) >= 1 / len(found.places)  # something always goes on


@settings(max_examples=15, deadline=None)
@given(costs=stages, latency_s=st.sampled_from([0.0, 3.0]))
def test_sequential_training_of_a_chain_is_its_critical_path(chain, make_cluster, costs, latency_s):
    """A stage a worker: updates on one worker wait for each other, but not as parts of a chain."""
    model = chain(tuple(costs), instances=4).model()
    cluster = make_cluster(len(costs), link=Link(latency_s=latency_s))
    result = simulate(model, cluster, Sequential())
    assert critical_path_s(whole(result)) == pytest.approx(whole(result).end_s, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(
    stage_count=st.integers(2, 6),
    in_flight=st.integers(1, 12),
    cost=st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9)),
)
def test_bounds_of_a_pipeline_of_equal_stages_have_a_closed_form(
    chain, make_cluster, stage_count, in_flight, cost
):
    forward, backward, update = cost
    model = chain((cost,) * stage_count, instances=3 * in_flight).model()
    result = simulate(model, make_cluster(stage_count), Pipeline(in_flight))
    both = forward + backward
    group_s = (in_flight + stage_count - 1) * both + update
    assert result.bounds.window_s == pytest.approx(3 * group_s)
    assert result.bounds.worker_share == pytest.approx((in_flight * both + update) / group_s)
    assert result.bounds.path_share == pytest.approx((stage_count * both + update) / group_s)


@settings(max_examples=15, deadline=None)
@given(stage_count=st.integers(2, 6), in_flight=st.integers(1, 12))
def test_amp_of_equal_stages_is_bound_by_admission_until_each_stage_has_an_instance(
    chain, make_cluster, stage_count, in_flight
):
    """At most `in_flight` of the stages work at a time."""
    model = chain(((10, 10, 0),) * stage_count, instances=60).model()
    bounds = simulate(model, make_cluster(stage_count), Amp(in_flight)).bounds
    if in_flight < stage_count / 2:
        assert bounds.bound_by == "admission limit"
        assert bounds.admission_share == pytest.approx(1 - in_flight / stage_count, abs=0.1)
    if in_flight >= 2 * stage_count:
        assert str(bounds.bound_by).startswith("worker ")


@settings(max_examples=15, deadline=None)
@given(
    latency_s=st.sampled_from([0.0, 1.0, 50.0]),
    bandwidth=st.floats(0.1, 10.0),
    schedule=schedules,
)
def test_a_link_is_occupied_for_its_bytes_over_its_bandwidth(
    chain, make_cluster, latency_s, bandwidth, schedule
):
    model = chain(((10, 10, 1),) * 2, instances=5, rows=2).model()
    link = Link(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
    result = simulate(model, make_cluster(2, link=link), schedule)
    sent = result.transfers[result.transfers["source"] == "controller"]
    of_first = sent[sent["target"] == "stage-1"]
    starts, ends = held_s(whole(result))[-1, 0]
    assert set(of_first["bytes"]) >= {32}
    if len(set(of_first["bytes"])) > 1:
        assert (ends - starts).sum() == pytest.approx(of_first["bytes"].sum() / bandwidth)
    assert (ends - starts).sum() >= of_first["bytes"].sum() / bandwidth * (1 - 1e-9)
