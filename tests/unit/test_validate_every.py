"""Validation within an epoch: when it comes, what it costs, and what stays as it was."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import ampsim
from ampsim.errors import OptionError
from ampsim.study.training import Parts

SMALL = {"data": "synthetic", "hidden": 16, "batch": 20}


def run(schedule, every=None, epochs=2, **more):
    model = ampsim.load_model("mlp", **SMALL)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    return ampsim.simulate(
        model, cluster, schedule, epochs=epochs, instances=200, validate_every=every, **more
    )


def test_an_epoch_has_a_validation_whenever_so_many_items_have_finished():
    made = run(ampsim.Amp(4), every=60)
    assert made.validations["instances"].tolist() == [60, 120, 180, 200, 260, 320, 380, 400]
    assert made.validations["epochs"].tolist() == pytest.approx(
        [0.3, 0.6, 0.9, 1.0, 1.3, 1.6, 1.9, 2.0]
    )
    assert made.epochs["epoch"].tolist() == [1, 2]
    assert made.epochs["instances"].tolist() == [200, 200]


def test_each_validation_takes_its_time_on_the_clock():
    made = run(ampsim.Sequential(), every=100)
    seen = made.validations["time_s"].to_numpy()
    assert (np.diff(seen) > made.validations["valid_s"].to_numpy()[1:]).all()
    spent = made.epochs["train_s"].sum() + made.epochs["valid_s"].sum()
    assert spent == pytest.approx(made.makespan_s, rel=1e-12)
    assert made.epochs["valid_instances"].tolist() == [1000, 1000]  # 500 items, twice an epoch


def test_where_nothing_is_in_flight_learning_is_the_same_with_more_validations():
    """Sequential training drains after each instance anyway: more looks change no weight."""
    often, seldom = run(ampsim.Sequential(), every=20), run(ampsim.Sequential())
    for name, weights in seldom.model.parameters().items():
        assert (often.model.parameters()[name] == weights).all()
    assert often.epochs["accuracy"].tolist() == seldom.epochs["accuracy"].tolist()
    assert often.epochs["train_s"].tolist() == pytest.approx(seldom.epochs["train_s"].tolist())


def test_a_validation_for_each_epoch_is_no_other_run():
    assert run(ampsim.Amp(4), every=200).digest == run(ampsim.Amp(4)).digest
    assert run(ampsim.Amp(4), every=10**6).digest == run(ampsim.Amp(4)).digest


def test_a_target_is_reached_within_an_epoch_which_is_finished():
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20)
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    made = ampsim.forecast(
        model,
        cluster,
        [ampsim.Sequential()],
        target=0.5,
        instances=400,
        validate_every=100,
        max_epochs=8,
    )
    (one,) = made.runs
    looks = one.result.validations
    first = looks[looks["accuracy"] >= 0.5].iloc[0]
    assert made.table["epochs_to_target"].tolist() == [first["epochs"]]
    assert made.table["time_to_target_s"].tolist() == [first["time_s"]]
    assert len(one.epochs) == math.ceil(first["epochs"])


def test_a_part_ends_with_the_batch_that_reaches_the_count():
    batches = [SimpleNamespace(rows=rows) for rows in (3, 3, 3, 7, 1)]
    parts, found = Parts(batches, 5), []
    while not parts.is_over:
        found.append([one.rows for one in parts.next_part()])
    assert found == [[3, 3], [3, 7], [1]]


@pytest.mark.parametrize("every", [0, -1, 1.5, True])
def test_a_count_that_is_none_is_refused(every):
    with pytest.raises(OptionError, match="validate_every"):
        run(ampsim.Amp(4), every=every)


def test_solvers_and_schedules_of_one_table_are_read_within_epochs():
    """A solver's row goes on meanwhile: its last epoch ends when it does without validations."""
    model = ampsim.load_model("mlp", data="synthetic", hidden=32, batch=20)
    rows = [ampsim.Amp(4), ampsim.SyncSGD(ranks=2)]
    words = {"target": 0.5, "instances": 400, "max_epochs": 8}
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    often = ampsim.forecast(model, cluster, rows, validate_every=80, **words)
    seldom = ampsim.forecast(model, cluster, rows, **words)
    for one, epochs in zip(often.runs, often.table["epochs_to_target"], strict=True):
        looks = one.result.validations
        assert epochs == looks[looks["accuracy"] >= 0.5]["epochs"].iloc[0] < 8
        assert len(looks) == 5 * len(one.epochs)
        assert (looks["valid_s"] == 0).all()
    solver, alone = often.runs[1].epochs, seldom.runs[1].epochs
    both = min(len(solver), len(alone))
    assert solver["time_s"].tolist()[:both] == alone["time_s"].tolist()[:both]
    assert often.table["epochs_to_target"][1] <= seldom.table["epochs_to_target"][1]


@pytest.mark.parametrize(("every", "count"), [(20, 1), (45, 3), (150, 8), (1000, 10)])
@pytest.mark.parametrize("solves", [False, True])
def test_no_rate_is_scaled_by_more_gradients_than_come_up_to_a_validation(every, count, solves):
    """Of 64 in flight by parts of a batch, 0.1 was made 1. A solver does not end what is so."""
    schedule = ampsim.SyncSGD(ranks=2, inner="pipeline:8") if solves else ampsim.Pipeline(64)
    made = ampsim.forecast(
        ampsim.load_model("mlp", **SMALL), ampsim.load_cluster("tflops-1", workers=4), [schedule],
        max_epochs=1, instances=200, validate_every=every,
    )  # fmt: skip
    assert made.table["learning_rate"].tolist() == pytest.approx([0.1 * (10 if solves else count)])
    assert made.runs[0].result.updates["gradient_count"].max() == count or solves
