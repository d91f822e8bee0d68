"""What would change a forecast's answer, where its short runs tell it, and where not."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import ampsim
from ampsim.dataflow import PROGRAMS
from ampsim.forecasting.change import (
    SEEDS_DIFFER,
    Contender,
    _axes,
    contenders,
    what_would_change,
)
from ampsim.forecasting.making import ForecastRuns, entries_of, short_task
from ampsim.forecasting.tuning import Tuned, no_trials
from ampsim.hardware import Cluster, Device, Failures, Link
from ampsim.hardware.load import relinked
from ampsim.model_parallel import placement_of
from ampsim.runs import task
from ampsim.runs.task import Row, RunPlan
from ampsim.study.learning_rates import Rate
from ampsim.study.simulation import RunOptions

SMALL = {"data": "synthetic", "hidden": 16, "batch": 20}
CLUSTER = ampsim.load_cluster("tflops-1", workers=4)
forecasting = importlib.import_module("ampsim.forecasting.forecast")


def rows_of(count: int = 1, placement: str = "paper", **settings: Any) -> list[Row]:
    """Rows in turn, all alike but for their labels."""
    options = RunOptions(placement=placement_of(placement), instances=40, target=0.05)
    plan = RunPlan(ampsim.load_model("mlp", **SMALL, **settings), CLUSTER, options)
    return entries_of(plan, [ampsim.Sequential()] * count)


def test_a_program_learns_the_same_on_other_hardware():
    """It has no digest of an order, as its order is always one; nobody knew, as of solvers."""
    plan = rows_of()[0].plan
    entries = entries_of(plan, [PROGRAMS[name]() for name in PROGRAMS])
    rows = [Contender(one.label, 1.0, (400.0, 0.0), short_task(one, 0)) for one in entries]
    assert all(one.at(relinked(CLUSTER, latency_s=1e-3))[1] for one in rows)


@pytest.mark.parametrize(
    ("epochs", "is_told", "said"),
    [
        (0, True, "what would change it: "),
        (2, False, "what would change it is unknown: mode 'sleep' runs the first epoch alone, of "
         "which batches are smaller than of later ones"),
    ],
)  # fmt: skip
def test_of_batches_that_grow_it_is_said_why_nothing_is_told(epochs, is_told, said):
    """Those of the first epoch are smaller, so that what a step takes, whatever its batch, was too
    much of all."""
    (row,) = rows_of(batch_warmup_epochs=epochs)
    how: dict[str, Any] = {"instances": 40, "target": 0.05, "max_epochs": 9, "budget_s": 0.5}
    made = ampsim.forecast(row.plan.model, CLUSTER, ["sequential", "amp"], **how)
    assert made.table["time_to_target_s"].notna().all()
    assert any(one.startswith(said) for one in made.manifest["changes"])
    assert is_told == (len(made.buys) > 0) == (len(made.manifest["changes"]) > 1)


def test_where_stages_of_an_optimizer_take_unlike_times_nothing_is_told():
    """Short runs have the first stage's updates alone."""
    model = ampsim.load_model("mlp", **SMALL, optimizer="two-stage", warmup_epochs=1)
    device = Device(name="a", flop_per_s=1e11, step_overhead_s=1e-6)
    cluster = Cluster(name="c", devices=(device,) * 2)
    how: dict[str, Any] = {"instances": 40, "target": 0.05, "max_epochs": 9, "budget_s": 0.5}
    made = ampsim.forecast(model, cluster, ["sequential", "amp"], **how)
    assert made.manifest["changes"] == ["what would change it is unknown, as times vary"]
    assert made.buys.empty


@pytest.mark.parametrize(("time_s", "count"), [(1.004, 0), (1.03, 1)])
def test_rows_that_are_as_soon_here_are_not_told_to_be_so_right_beside(time_s, count):
    """What is known is told from half a per cent on: a latency of 1 ps was said to turn a tie."""
    entries = rows_of(2)
    times = zip(entries, (1.0, time_s), strict=True)
    rows = [Contender(one.label, it, (400.0, 0.0), short_task(one, 0)) for one, it in times]
    told = what_would_change(entries, rows, pd.DataFrame())
    assert sum("what would change it" in one for one in told) == count


@pytest.mark.parametrize(("name", "is_told"), [("rnn", True), ("mlp", False)])
def test_where_seeds_are_timed_unlike_it_is_said_that_short_runs_have_one(
    name, is_told, monkeypatch
):
    """Lists of unlike lengths come in another order with each seed; images are all alike."""
    (mlp,) = rows_of()
    model = ampsim.load_model("rnn", hidden=4, replicas=1, batch=20) if name == "rnn" else None
    row = mlp if model is None else replace(mlp, plan=replace(mlp.plan, model=model))
    contender = Contender("one", 1.0, (400.0, 0.0), short_task(row, 3))
    monkeypatch.setattr(forecasting, "contenders", lambda *_told: [contender])
    said, buys = forecasting._changes(Tuned((row,), no_trials()), ForecastRuns((), None, ()))
    assert len(buys) and (SEEDS_DIFFER in said) == is_told


@pytest.mark.parametrize("valid_images", [100, 6000])
def test_what_a_number_buys_and_its_share_are_of_as_much_validation_as_an_epoch_has(
    valid_images, monkeypatch
):
    """A short run has 20 batches of it to 40 of training, and shares were of these alone.

    They are of all its records, however few a chart needs: a run with more ended in a traceback.
    """
    monkeypatch.setattr(task, "SPANS_KEPT", 50)
    model = ampsim.load_model("mlp", **SMALL, valid_images=valid_images)
    device = Device(name="a", flop_per_s=1e11, memory_bandwidth_bytes_per_s=1e11)
    link = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e10)
    cluster = Cluster(name="c", devices=(device,) * 2, link=link)
    options = RunOptions(placement=placement_of("paper"), instances=2000)
    (row,) = entries_of(RunPlan(model, cluster, options), [ampsim.Sequential()])
    contender = Contender("one", 1.0, (2000.0, float(valid_images)), short_task(row, 0))
    found = [*contender.bought()]
    assert len(found) == 4
    for what, share, change in found:  # in one order half of a part is half of its share
        assert change == pytest.approx(-share / 2, rel=1e-6), what
    assert sum(share for _what, share, _change in found) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(("rule", "left"), [("not tuned (x): 1", 1), ("tuned: 1", 2)])
def test_a_row_that_is_not_compared_is_none_that_would_stay_ahead(rule, left):
    """No trial of it had reached the target, and a lead over the row that is first was its own."""
    named = [replace(one, label=label) for one, label in zip(rows_of(2), "ab", strict=True)]
    entries = [named[0].at(Rate(rule=rule)), named[1]]
    how: dict[str, Any] = {"instances": 40, "target": 0.05, "max_epochs": 9}
    (run,) = ampsim.forecast(named[0].plan.model, CLUSTER, "sequential", **how).runs
    found = contenders(entries, {"a": [run], "b": [run]})
    assert [one.label for one in found] == ["a", "b"][-left:]
    none = [one.at(Rate(rule="not tuned (x): 1")) for one in named]
    assert len(contenders(none, {"a": [run], "b": [run]})) == 2  # as in the table


def test_on_other_numbers_of_workers_a_placement_keeps_its_hops():
    (row,) = rows_of(placement="1-hop")
    contender = Contender("one", 1.0, (40.0, 0.0), short_task(row, 0))
    there = contender._run_on(ampsim.load_cluster("tflops-1", workers=3))
    assert there.origin["placement"]["hops"] == 1


@pytest.mark.parametrize(("worker", "count"), [("all", 3), ((3,), 2), ((0, 1, 2, 3), 2)])
def test_workers_that_a_file_names_one_by_one_are_not_left_out_or_added(worker, count):
    failures = Failures(worker=worker, mean_time_between_s=1.0, mean_time_to_repair_s=1e-3)
    cluster = CLUSTER.model_copy(update={"failures": failures})
    assert len([*_axes(cluster, can_move=True)]) == count
