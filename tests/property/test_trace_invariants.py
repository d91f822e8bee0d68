"""What every trace of the RNN obeys, whatever its options, the cluster and the schedule.

`test_every_schedule.py` has what holds on every model, under every schedule that accepts it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from short_runs import schedule_of

from ampsim import Amp, load_model, simulate
from ampsim.data import ListReduction
from ampsim.ir import Graph
from ampsim.model_parallel import SCHEDULES, needs_chain

HIDDEN, TOKENS, CLASSES = 4, 14, 10
ROUNDING_S = 1e-16  # a tick is 1e-18 s; runs here last about 1e-5 s

schedules = st.one_of(
    *(
        st.builds(schedule_of, st.just(name), st.integers(1, 9))
        for name, kind in SCHEDULES.items()
        if not needs_chain(kind())
    ),
    st.builds(Amp, max_active_keys=st.integers(1, 9), min_update_interval=st.integers(1, 20)),
    st.builds(
        Amp,
        max_active_keys=st.integers(1, 9),
        min_update_interval=st.integers(1, 20),
        max_group=st.integers(2, 9),
        group_wait_s=st.sampled_from([0.0, 1e-9, 1e-7]),
    ),
)


@dataclass(frozen=True)
class Case:
    schedule: Any
    workers: int
    replicas: int
    seed: int
    latency_s_max: float
    mode: Any
    epochs: int


cases = st.builds(
    Case,
    schedule=schedules,
    workers=st.integers(1, 8),
    replicas=st.integers(1, 4),
    seed=st.integers(0, 9),
    latency_s_max=st.sampled_from([0.0, 1e-9, 1e-7]),
    mode=st.sampled_from(["numeric", "sleep"]),
    epochs=st.integers(1, 2),
)


@dataclass(frozen=True)
class Run:
    """A finished run, with the graph that ran and the buckets of its first training pass."""

    case: Case
    result: Any
    graph: Graph
    buckets: list[Any]

    @property
    def spans(self) -> pd.DataFrame:
        return self.result.spans

    @property
    def training(self) -> pd.DataFrame:
        """Spans of the first training pass, but updates."""
        spans = self.result.spans
        is_step = (spans["direction"] != "update") & (spans["instance"] < len(self.buckets))
        return spans[is_step]


def run(case: Case, random_cluster: Any) -> Run:
    graphs: list[Graph] = []
    model = load_model("rnn", hidden=HIDDEN, replicas=case.replicas)
    data = ListReduction.generate(case.seed, 40, 9, batch=4)

    def keep() -> Graph:
        assert model.make_graph is not None
        graphs.append(model.make_graph())
        return graphs[-1]

    result = simulate(
        replace(model, make_graph=keep, make_data=lambda _seed, _count: data),
        random_cluster(case.workers, seed=case.seed, latency_s_max=case.latency_s_max),
        case.schedule,
        seed=case.seed,
        mode=case.mode,
        epochs=case.epochs,
    )
    buckets = list(data.batches("train", epoch=0, seed=case.seed))
    return Run(case, result, graphs[0], buckets)


def in_flight_s(steps: pd.DataFrame) -> pd.DataFrame:
    """First start and last end of each instance."""
    return steps.groupby("instance").agg(start_s=("start_s", "min"), end_s=("end_s", "max"))


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_time_is_spent_once_and_never_runs_backwards(random_cluster, case):
    done = run(case, random_cluster)
    result = done.result
    assert (done.spans["end_s"] >= done.spans["start_s"]).all()
    for _worker, spans in done.spans.groupby("worker"):
        starts, ends = spans["start_s"].to_numpy(), spans["end_s"].to_numpy()
        assert (starts[1:] >= ends[:-1]).all(), "spans overlap, or are recorded out of order"
    busy_s = (done.spans["end_s"] - done.spans["start_s"]).groupby(done.spans["worker"]).sum()
    assert result.makespan_s == done.spans["end_s"].max()
    assert result.makespan_s >= busy_s.max() - ROUNDING_S
    assert 0 < result.utilisation <= 1 + 1e-12
    expected = busy_s.sum() / (case.workers * result.makespan_s)
    assert np.isclose(result.utilisation, expected, rtol=1e-12)
    assert (result.transfers["end_s"] >= result.transfers["start_s"]).all()
    assert (result.epochs["time_s"] >= result.makespan_s - case.latency_s_max - ROUNDING_S).any()


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_every_forward_has_its_backward_and_nothing_is_left(random_cluster, case):
    done = run(case, random_cluster)
    counts = done.training.groupby(["node", "instance", "direction"], observed=True).size()
    found = Counter({key: int(count) for key, count in counts.items()})
    copies = [f"linear-1.{r}" for r in range(case.replicas)]
    for instance, bucket in enumerate(done.buckets):
        used = copies[instance % case.replicas] if case.replicas > 1 else "linear-1"
        steps = dict.fromkeys(("phi", "isu", "cond", "relu", used), bucket.steps)
        if case.replicas > 1:
            steps |= dict.fromkeys(("linear-1-choose", "linear-1-merge"), bucket.steps)
        forward = {**steps, "embedding": 1, "linear-2": 1, "ungroup": 1}
        backward = {**forward, "ungroup": bucket.steps, "concat": bucket.steps}
        forward |= {"concat": 2 * bucket.steps, "loss": 2}
        for direction, expected in (("forward", forward), ("backward", backward)):
            for node, count in expected.items():
                assert found.pop((node, instance, direction)) == count, (node, instance, direction)
    assert not found, "steps that nobody asked for"
    for node in done.graph.nodes:
        assert not list(node.pending()), node.name
    assert not any(node.gradient_count for node in done.graph.parameterized)


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_validation_leaves_no_gradient_and_goes_forward_only(random_cluster, case):
    done = run(replace(case, epochs=1), random_cluster)
    spans = done.spans[done.spans["instance"] >= len(done.buckets)]
    assert set(spans["direction"]) == {"forward"}
    assert (spans["staleness"] == -1).all()
    train_end_s = done.result.epochs["train_s"].iloc[0]
    assert spans["start_s"].min() >= train_end_s - ROUNDING_S
    assert (done.result.updates["time_s"] <= train_end_s + ROUNDING_S).all()
    assert done.result.epochs["instances"].tolist() == [40]
    assert done.result.epochs["valid_instances"].tolist() == [9]


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_gradients_are_applied_once_and_their_staleness_counted(random_cluster, case):
    done = run(case, random_cluster)
    spans, updates = done.spans, done.result.updates
    gradients = spans[spans["staleness"] >= 0]
    heavy = {node.name for node in done.graph.parameterized}
    is_gradient = (spans["direction"] == "backward") & spans["node"].isin(list(heavy))
    assert (is_gradient == (spans["staleness"] >= 0)).all()
    for node in heavy:
        of_node = updates[updates["node"] == node]
        staleness = gradients[gradients["node"] == node]["staleness"]
        assert of_node["gradient_count"].sum() == len(staleness)
        total = (of_node["gradient_count"] * of_node["staleness"]).sum()
        assert np.isclose(total, staleness.sum())
        assert len(staleness) == 0 or of_node["staleness_max"].max() == staleness.max()
        assert len(of_node) == done.graph[node].version  # pyright: ignore[reportAttributeAccessIssue]  # it learns
    if case.schedule.admission.drains:
        assert (gradients["staleness"] == 0).all()
    assert done.result.staleness_mean == gradients["staleness"].mean()
    assert done.result.staleness_max == gradients["staleness"].max()


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_staleness_is_the_count_of_updates_between_forward_and_backward(random_cluster, case):
    """Recounted from the trace; weights are read when service starts."""
    done = run(replace(case, replicas=1, epochs=1), random_cluster)
    spans = done.spans[done.spans["node"] == "linear-2"]
    versions, recounted = {}, []
    version = 0
    for span in spans.itertuples():
        if span.direction == "update":
            version += 1
        elif span.direction == "forward":
            versions[span.instance] = version
        else:
            recounted.append(version - versions[span.instance])
    recorded = spans[spans["staleness"] >= 0]["staleness"].tolist()
    assert recorded == recounted and len(recounted) == len(done.buckets)


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_no_more_instances_are_in_flight_than_allowed(random_cluster, case):
    done = run(case, random_cluster)
    alive = in_flight_s(done.training)
    assert len(alive) == len(done.buckets)
    events = [(end_s, -1) for end_s in alive["end_s"]]
    events += [(start_s, +1) for start_s in alive["start_s"]]
    most = int(np.cumsum([change for _at, change in sorted(events)]).max())
    assert most <= case.schedule.admission.in_flight_max
    is_filled = case.latency_s_max == 0.0  # else the way to and from the host is not in the spans
    if is_filled and case.schedule.admission.staleness_budget is None:
        assert most == min(case.schedule.admission.in_flight_max, len(done.buckets))


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_a_schedule_that_drains_updates_only_when_nothing_is_in_flight(random_cluster, case):
    done = run(replace(case, epochs=1), random_cluster)
    alive = in_flight_s(done.training)
    updates = done.spans[done.spans["direction"] == "update"]
    if not case.schedule.admission.drains:
        return
    assert (updates["instance"] == -1).all()
    for start_s, end_s in zip(updates["start_s"], updates["end_s"], strict=True):
        is_before = alive["end_s"] <= start_s
        assert (is_before | (alive["start_s"] >= end_s)).all()
        finished = int(is_before.sum())
        assert finished % case.schedule.admission.in_flight_max == 0 or finished == len(alive)


@settings(max_examples=15, deadline=None)
@given(case=cases, interval=st.integers(1, 20))
def test_under_amp_a_node_updates_itself_at_its_interval(random_cluster, case, interval):
    """Only the updates after the pass, which the controller orders, may hold fewer gradients."""
    in_flight = case.schedule.admission.in_flight_max
    schedule = Amp(max_active_keys=in_flight, min_update_interval=interval)
    done = run(replace(case, schedule=schedule, epochs=1), random_cluster)
    spans = done.spans[done.spans["direction"] == "update"]
    for node in done.graph.parameterized:
        counts = done.result.updates[done.result.updates["node"] == node.name]["gradient_count"]
        by_itself = spans[(spans["node"] == node.name) & (spans["instance"] >= 0)]
        ordered = counts.tolist()[len(by_itself) :]
        assert counts.tolist()[: len(by_itself)] == [interval] * len(by_itself)
        assert len(ordered) <= 1 and all(1 <= count < interval for count in ordered)


@settings(max_examples=15, deadline=None)
@given(case=cases)
def test_flop_charged_are_those_of_appendix_c(random_cluster, case):
    """2·k·d_in·d_out a product, d_in·d_out an update, summed by hand over buckets and updates."""
    done = run(replace(case, epochs=1), random_cluster)
    recurrent, last = 2 * HIDDEN * HIDDEN, HIDDEN * CLASSES
    product = sum(2 * b.rows * (b.steps * recurrent + last) for b in done.buckets)
    forward = done.training[done.training["direction"] == "forward"]
    backward = done.training[done.training["direction"] == "backward"]
    assert forward["flop"].sum() == product
    assert backward["flop"].sum() == 2 * product  # input gradient, and gradient accumulation
    updates = done.spans[done.spans["direction"] == "update"]
    each = {"embedding": TOKENS * HIDDEN, "linear-2": last}
    names = updates["node"].astype(str)
    expected = sum(each.get(name, recurrent) for name in names)
    assert updates["flop"].sum() == expected
    seconds = done.spans["end_s"] - done.spans["start_s"]
    np.testing.assert_allclose(seconds, done.spans["flop"] * 1e-12, rtol=1e-9, atol=1e-17)
    light = done.spans[~names_of_heavy(done)]
    assert (light["flop"] == 0).all() and (light["start_s"] == light["end_s"]).all()


def names_of_heavy(done: Run) -> pd.Series:
    return done.spans["node"].isin([node.name for node in done.graph.parameterized])
