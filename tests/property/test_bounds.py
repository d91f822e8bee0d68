"""Critical path and bounds of whole runs: exact for every schedule, on every graph it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from short_runs import RUNS, run_of, schedule_of

from ampsim import Amp, AmpBudget, Pipeline, Sequential, load_model, simulate
from ampsim.data import ListReduction
from ampsim.errors import OptionError
from ampsim.hardware import Link
from ampsim.metric import Goal
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.runs.rows import row_of
from ampsim.runs.run import run_of as run_of_result
from ampsim.trace import START
from ampsim.trace.kinds import record_of

SETTINGS = settings(max_examples=15, deadline=None)


@dataclass(frozen=True)
class Case:
    schedule: Any
    workers: int
    seed: int
    latency_s_max: float
    bandwidth: float | None


CASES = st.builds(
    Case,
    schedule=st.one_of(
        *(st.builds(schedule_of, st.just(name), st.integers(1, 7)) for name in SCHEDULES),
        st.builds(
            Amp,
            max_active_keys=st.integers(1, 9),
            min_update_interval=st.integers(1, 20),
            max_group=st.sampled_from([1, 4]),
        ),
        st.just(Amp(6, max_group=3, group_wait_s=1e-7)),
    ),
    workers=st.integers(1, 8),
    seed=st.integers(0, 9),
    latency_s_max=st.sampled_from([0.0, 1e-9, 1e-7]),
    bandwidth=st.sampled_from([None, 1e9, 1e12]),
)


def require_exact(result: Any) -> None:
    """The path has no gap and no overlap from zero to the end, and its parts are records' times."""
    path, parts = result.critical_path, result.critical_path_parts
    assert path["start_s"].iloc[0] == 0.0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert (path["start_s"].to_numpy()[1:] == path["end_s"].to_numpy()[:-1]).all()
    takes_time = path["end_s"] > path["start_s"]
    assert takes_time.equals(~path["kind"].isin(["admission", "limit"]))
    assert parts["seconds"].sum() == pytest.approx(result.makespan_s, rel=1e-12)
    steps = path[path["kind"] == "compute"]
    keys = ["start_s", "end_s", "node", "direction", "worker", "instance"]
    known = set(result.spans[keys].astype(object).itertuples(index=False, name=None))
    assert set(steps[keys].astype(object).itertuples(index=False, name=None)) <= known


def require_causes(result: Any) -> None:
    """A cause is a record that stands earlier and had ended when what it led to could start."""
    spans, transfers, admissions = result.spans, result.transfers, result.admissions
    ends: dict[str, Any] = {
        "span": spans["end_s"].to_numpy(),
        "transfer": transfers["end_s"].to_numpy(),
        "admission": admissions["time_s"].to_numpy(),
    }
    for table, from_s in ((spans, "start_s"), (transfers, "sent_s"), (admissions, "time_s")):
        for place, (cause, start_s) in enumerate(zip(table["cause"], table[from_s], strict=True)):
            kind, number = record_of(cause)
            if cause == START:
                assert (table is admissions, place) == (True, 0)
                continue
            assert ends[kind][number] <= start_s * (1 + 1e-12) + 2e-18
            assert table is not spans or kind != "span" or number < place
    arrivals = spans[spans["cause"] <= -2]
    for node, cause in zip(arrivals["node"], arrivals["cause"], strict=True):
        kind, number = record_of(cause)
        assert kind != "transfer" or transfers["target"].iloc[number] == node


@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_the_critical_path_of_a_chain_is_exact_under_every_schedule(random_cluster, chain, case):
    model = chain(((3, 4, 1), (2, 5, 1), (6, 1, 2), (1, 1, 1)), instances=7, valid=2).model()
    cluster = random_cluster(
        case.workers, seed=case.seed, latency_s_max=case.latency_s_max,
        bandwidth_bytes_per_s=case.bandwidth,
    )  # fmt: skip
    try:
        result = simulate(model, cluster, case.schedule, epochs=2)
    except OptionError:  # turns need stages and workers to match
        assert needs_chain(case.schedule)
        return
    require_exact(result)
    require_causes(result)


@pytest.mark.parametrize(("schedule", "model", "links"), RUNS)
def test_the_critical_path_is_exact_on_every_model(schedule, model, links):
    result = run_of(schedule, model, links).result
    require_exact(result)
    require_causes(result)


@SETTINGS
@given(seed=st.integers(0, 9), in_flight=st.integers(1, 6), kept=st.sampled_from([0, 1, 50]))
def test_path_and_bounds_do_not_depend_on_what_is_kept(random_cluster, seed, in_flight, kept):
    from ampsim.study.simulation import Simulation

    model = few_lists(seed)
    cluster = random_cluster(3, seed=seed, latency_s_max=1e-8, bandwidth_bytes_per_s=None)
    results = []
    for spans_kept in (None, kept):
        run = Simulation(model, cluster, Amp(in_flight), mode="sleep", spans_kept=spans_kept)
        run.run_epoch()
        results.append(run.result())
    whole, few = results
    pd.testing.assert_frame_equal(few.critical_path, whole.critical_path)
    assert few.bounds == whole.bounds


def few_lists(seed: int) -> Any:
    data = ListReduction.generate(seed, 40, 9, batch=4)
    return replace(load_model("rnn", hidden=4), make_data=lambda _seed, _count: data)


@SETTINGS
@given(case=CASES)
def test_shares_are_what_the_trace_says(random_cluster, case):
    if needs_chain(case.schedule):
        return
    cluster = random_cluster(
        case.workers, seed=case.seed, latency_s_max=case.latency_s_max,
        bandwidth_bytes_per_s=case.bandwidth,
    )  # fmt: skip
    result = simulate(few_lists(case.seed), cluster, case.schedule, mode="sleep")
    bounds, spans, rounding = result.bounds, result.spans, 1 + 1e-9
    busy_s = (spans["end_s"] - spans["start_s"]).groupby(spans["worker"]).sum().max()
    assert bounds.worker_share == pytest.approx(busy_s / result.makespan_s)
    assert max(bounds.worker_share, bounds.link_share) + bounds.admission_share <= rounding
    shares = (bounds.worker_share, bounds.path_share, bounds.link_share, bounds.admission_share)
    assert all(0 <= share <= 1 for share in shares)
    path = result.critical_path
    works = path["kind"].isin(["compute", "transfer"])
    works_s = (path["end_s"] - path["start_s"])[works].sum()
    assert bounds.path_share * result.makespan_s <= works_s * rounding
    sent = result.transfers
    if len(sent):
        held_s = sent["held_s"].clip(upper=result.makespan_s) - sent["start_s"]
        ends = [sent["source_worker"], sent["target_worker"]]
        assert bounds.link_share == pytest.approx(
            held_s.groupby(ends).sum().max() / result.makespan_s
        )


@SETTINGS
@given(
    costs=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=6
    ),
    latency_s=st.sampled_from([0.0, 3.0]),
)
@example(costs=[(1, 2, 1), (2, 1, 0)], latency_s=3.0)
@example(costs=[(9, 2, 1), (2, 9, 0)], latency_s=3.0)
def test_sequential_training_of_a_chain_is_all_work_and_transfers(
    chain, make_cluster, costs, latency_s
):
    """A stage a worker: nothing is ever in the way, and no instance is kept out but by updates.

    Where messages take longer than all steps, no stage is said to take the path's time.
    """
    model = chain(tuple(costs), instances=4).model()
    cluster = make_cluster(len(costs), link=Link(latency_s=latency_s))
    result = simulate(model, cluster, Sequential())
    assert set(result.critical_path["kind"]) <= {"compute", "transfer", "admission"}
    assert result.bounds.path_share == pytest.approx(1.0)
    if result.bounds.bound_by == "critical path":
        spent_s = result.critical_path_parts.groupby("kind", observed=False)["seconds"].sum()
        said = row_of("sequential", Goal(result.model.measure, None), [run_of_result(result)])
        is_behind = said["bound_at"] == f"messages, {result.bound_at}"
        assert is_behind == (spent_s["transfer"] > spent_s["compute"])
        assert is_behind or said["bound_at"] == result.bound_at


@SETTINGS
@given(
    costs=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=5
    ),
    in_flight=st.integers(1, 7),
    workers=st.integers(1, 5),
)
def test_on_a_chain_the_path_equals_a_recursion_without_causes(
    chain, make_cluster, costs, in_flight, workers
):
    """A stage's step follows its neighbour's; instance m + i comes when the i-th ends."""
    count = 11
    model = chain(tuple(costs), instances=count).model()
    result = simulate(model, make_cluster(workers), Amp(in_flight))
    spans = result.spans[result.spans["node"].str.startswith("stage")]
    names = [f"stage-{place}" for place in range(1, len(costs) + 1)]
    way = [*((name, "forward") for name in names), *((name, "backward") for name in names[::-1])]
    times: dict[Any, Any] = {
        (row.instance, row.node, row.direction): (row.start_s, row.end_s)
        for row in spans.itertuples()
    }
    last = way[-1]
    in_order = sorted(range(count), key=lambda one: times[one, *last][1])

    def before(instance: int, step: tuple[str, str]) -> tuple[int, tuple[str, str]] | None:
        if step[1] == "update":
            return instance, (step[0], "backward")
        place = way.index(step)
        if place:
            return instance, way[place - 1]
        return None if instance < in_flight else (in_order[instance - in_flight], last)

    steps = result.critical_path[result.critical_path["kind"] == "compute"]
    found: list[Any] = [(row.instance, (row.node, row.direction)) for row in steps.itertuples()]
    for earlier, later in pairwise(found):
        assert before(*later) == earlier
    assert before(*found[0]) is None
    waits = [0.0, *(times[key, *step][1] for key, step in found[:-1])]
    starts = np.array([times[key, *step][0] for key, step in found])
    queues = result.critical_path[result.critical_path["kind"] == "device queue"]
    queued_s = (queues["end_s"] - queues["start_s"]).sum()
    assert queued_s == pytest.approx((starts - np.array(waits)).sum())


@SETTINGS
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
    assert result.makespan_s == pytest.approx(3 * group_s)
    assert result.bounds.worker_share == pytest.approx((in_flight * both + update) / group_s)
    assert result.bounds.path_share == pytest.approx((stage_count * both + update) / group_s)


@SETTINGS
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


def test_a_budget_that_keeps_instances_out_is_an_admission_limit(chain, make_cluster):
    model = chain(((1, 1, 0),) * 3, instances=12).model()
    result = simulate(model, make_cluster(3), AmpBudget(8, staleness_budget=0))
    assert (result.critical_path["kind"] == "limit").sum() == 11
    assert result.admissions["is_limited"].tolist() == [False, *[True] * 11]
