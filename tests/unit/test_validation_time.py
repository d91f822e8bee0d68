"""Rows of schedules and solvers in one table have times of one kind: those of training."""

from __future__ import annotations

from typing import Any

import pytest

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.forecasting.making import ASSUMPTION, OFF_THE_CLOCK, times_validation
from ampsim.runs.task import RunPlan
from ampsim.study.simulation import RunOptions

SHORT: Any = {"instances": 400, "max_epochs": 3, "target": 0.999}


@pytest.mark.parametrize("workers", [1, 4])
def test_beside_a_solver_no_row_is_charged_for_validation(workers):
    """One rank that meets nobody is `sequential`: the same instants, to the bit."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    cluster = ampsim.load_cluster("tflops-1", workers=workers, latency_s=1e-7)
    alone = ampsim.SyncSGD(ranks=1, workers_per_rank=workers)
    both = ampsim.forecast(model, cluster, [ampsim.Sequential(), alone], **SHORT)
    plain, solver = (run.result.epochs for run in both.runs)
    assert plain["time_s"].tolist() == solver["time_s"].tolist()
    assert (plain["valid_s"] == 0).all() and (solver["valid_s"] == 0).all()
    assert plain["accuracy"].tolist() == solver["accuracy"].tolist()
    notes = list(both.table["note"])
    assert notes[0].endswith(OFF_THE_CLOCK) and OFF_THE_CLOCK not in notes[1]
    assert ASSUMPTION in both.manifest["assumptions"]


def test_beside_a_solver_an_epoch_takes_the_time_of_its_training_alone():
    """Closed form: one device does one step after the other, and is never idle."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    cluster = ampsim.load_cluster("tflops-1", workers=1)
    schedules = [ampsim.Sequential(), ampsim.LocalSGD(ranks=1)]
    row = ampsim.forecast(model, cluster, schedules, **SHORT).runs[0].result
    done = row.spans[row.spans["end_s"] > row.spans["start_s"]]
    assert row.makespan_s == pytest.approx((done["end_s"] - done["start_s"]).sum(), rel=1e-12)
    assert row.epochs["time_s"].tolist() == pytest.approx(
        [row.makespan_s * e / 3 for e in (1, 2, 3)]
    )
    alone = ampsim.forecast(model, cluster, [ampsim.Sequential()], **SHORT)
    timed = alone.runs[0].result.epochs
    assert (timed["valid_s"] > 0).all() and alone.table["note"].iloc[0].count(OFF_THE_CLOCK) == 0
    assert timed["train_s"].tolist() == pytest.approx(row.epochs["train_s"].tolist())
    assert timed["loss"].tolist() == row.epochs["loss"].tolist()


def test_beside_a_solver_ranks_and_speed_ups_are_of_equal_times():
    model = ampsim.load_model("mlp", data="synthetic", hidden=16, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=1)
    made = ampsim.forecast(
        model, cluster, [ampsim.Sequential(), ampsim.SyncSGD(ranks=1)], target=0.3, max_epochs=8,
        instances=200,
    )  # fmt: skip
    first, second = made.table.to_dict("records")
    assert first["time_to_target_s"] == second["time_to_target_s"] > 0
    assert (second["speed_up"], second["speed_up_by_validation"]) == (1.0, 1.0)
    assert second["speed_up_by_throughput"] == second["speed_up_by_epochs"] == 1.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_beside_any_solver_validation_of_a_schedule_takes_no_time(solver):
    cluster = ampsim.load_cluster("tflops-1", workers=2)
    plan: Any = RunPlan(None, cluster, RunOptions(mode="sleep"))  # pyright: ignore[reportArgumentType]  # nothing runs
    amp, own = ampsim.Amp(4), SOLVERS[solver](ranks=2)
    assert not times_validation(plan, amp, [amp, own]).options.times_validation
    assert times_validation(plan, amp, [amp]) is plan
    assert times_validation(plan, own, [amp, own]) is plan


@pytest.mark.parametrize("schedule", [ampsim.Pipeline(), ampsim.Amp(), ampsim.SyncSGD(ranks=2)])
def test_an_epoch_ends_a_latency_after_the_last_step_of_all_methods_alike(schedule):
    """Its last message crosses a link back to the controller, which is on no worker."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=8)
    cluster = ampsim.load_cluster("tflops-1", workers=2, latency_s=1e-6)
    made = ampsim.simulate(model, cluster, schedule, instances=4)
    assert made.epochs["time_s"].iloc[-1] - made.makespan_s == pytest.approx(1e-6)
