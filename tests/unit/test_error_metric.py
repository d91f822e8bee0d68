"""Regressions are measured by an error: in the trace, towards a target, in tables and sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ampsim
from ampsim.errors import OptionError
from ampsim.forecasting.forecast import to_json
from ampsim.ir import Graph
from ampsim.metric import Goal, Metric
from ampsim.nodes import Linear, SquaredError
from ampsim.optim import sgd
from ampsim.report.verdict import verdict
from ampsim.runs.folder import run_to_keep
from ampsim.study.progress import Tracker
from ampsim.study.simulation import RunOptions, Simulation, run_epochs, schedule_of

SCALE = 4.0


class One(NamedTuple):
    instance: int


class Points(NamedTuple):
    x: np.ndarray
    y: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Line:
    """Points on a line, with noise: a data set, and the configuration too."""

    batch_rows: int = 5
    name = "line"
    description = "points on a line"

    def count(self, split: str) -> int:
        return self.batch_rows * self.batch_count(split)

    def batch_count(self, split: str) -> int:
        return 8 if split == "train" else 3

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Points]:
        random = np.random.default_rng([seed, split == "train"])
        for _ in range(self.batch_count(split)):
            x = random.standard_normal((self.batch_rows, 1))
            yield Points(x, 3 * x + 0.1 * random.standard_normal(x.shape))


def graph() -> Graph:
    made = Graph("line")
    x, y = made.controller(x=("rows", 1), y=("rows", 1))
    made.end(SquaredError("loss"), made.add(Linear("slope", 1, 1), x), y)
    return made


@pytest.fixture
def model() -> ampsim.Model:
    return ampsim.Model(
        name="line",
        config=Line(),
        make_graph=graph,
        make_data=lambda seed, count: Line(),
        pump=lambda instance, one: [(0, One(instance), one.x), (1, One(instance), one.y)],
        optimizer=sgd(0.1),
        metric="error",
        error_unit="eV",
        error_scale=lambda data: SCALE * data.batch_rows / 5,
        dtype="float64",
    )


class Whole(Line):
    """Points on a line whose heights are whole numbers."""

    def batches(self, split: str, *, epoch: int, seed: int) -> Iterator[Points]:
        for one in super().batches(split, epoch=epoch, seed=seed):
            yield Points(one.x.astype("float32"), np.rint(one.y).astype(int))


def run_of(model: ampsim.Model, cluster: Any, schedule: str, **options: Any) -> Any:
    run = Simulation(model, cluster, schedule_of(schedule), RunOptions(**options))
    run.run_epoch()
    return run.result()


@pytest.mark.parametrize("learning", ["live", "apart", "batched"])
@pytest.mark.parametrize("rows", [1, 5])
def test_targets_that_are_whole_numbers_are_learned_in_the_precision_of_the_model(
    model, cluster, learning, rows
):
    whole = replace(model, make_data=lambda seed, count: Whole(rows), dtype="float32")

    def floating(instance: int, one: Points) -> Any:
        return [(0, One(instance), one.x), (1, One(instance), one.y.astype("float32"))]

    found, expected = (
        run_of(one, cluster, "pipeline", learning=learning)
        for one in (whole, replace(whole, pump=floating))
    )
    assert found.epochs["error"].tolist() == expected.epochs["error"].tolist()
    for name, values in expected.model.given.items():
        assert found.model.given[name].tobytes() == values.tobytes()


@pytest.fixture
def cluster(make_cluster):
    return make_cluster(2)


def test_the_error_is_that_of_the_last_weights_in_the_models_unit(model, cluster):
    result = ampsim.simulate(model, cluster, ampsim.Sequential(), epochs=3)
    slope = result.model.parameters()
    points = list(Line().batches("valid", epoch=2, seed=0))
    x, y = (np.concatenate(column) for column in zip(*points, strict=True))
    found = np.abs(x @ slope["slope.weight"] + slope["slope.bias"] - y).mean()
    errors = result.epochs["error"]
    assert errors.iloc[-1] == pytest.approx(SCALE * found, rel=1e-12)
    assert errors.is_monotonic_decreasing
    assert (result.epochs["train_error"] > errors).all()
    assert result.epochs[["accuracy", "train_accuracy"]].isna().all(axis=None)


def learned_apart(model, cluster, schedule):
    options = RunOptions(learning="apart", target=model.target)
    run = Simulation(model, cluster, schedule_of(schedule), options)
    run_epochs(run, 1, Goal(model.measure, model.target), Tracker(None, str(schedule)))


ASKED = {
    "simulate": lambda model, cluster: ampsim.simulate(
        model, cluster, ampsim.Amp(2), target=model.target
    ),
    "solver": lambda model, cluster: ampsim.simulate(
        model, cluster, "sync-sgd", target=model.target
    ),
    "apart": lambda model, cluster: learned_apart(model, cluster, "amp"),
    "forecast": lambda model, cluster: ampsim.forecast(model, cluster, "amp", max_epochs=1),
    "try_out": lambda model, _cluster: ampsim.try_out(model),
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_error_of_which_no_loss_reports_is_refused(asked, chain, cluster):
    """No target would be reached, after however many epochs."""
    made = replace(chain(((1, 1, 1),), valid=2).model(), metric="error", target=0.5)
    said = (
        "^the model is measured by its error, which a loss .* as SquaredError, or metric='accuracy'"
    )
    with pytest.raises(OptionError, match=said):
        ASKED[asked](made, cluster)


@pytest.mark.parametrize("asked", ASKED)
def test_an_accuracy_of_which_no_loss_reports_is_refused_with_a_target(asked, model, cluster):
    wrong = replace(model, metric="accuracy", error_unit="", target=0.9)
    said = "^the model is measured by its accuracy, which a loss .*Entropy, or metric='error'$"
    with pytest.raises(OptionError, match=said):
        ASKED[asked](wrong, cluster)
    if asked in ("simulate", "solver", "try_out"):
        ASKED[asked](replace(wrong, target=None), cluster)
        ASKED[asked](replace(model, target=1e9), cluster)


def test_a_classifier_has_no_error_and_sleep_measures_nothing(model, chain, cluster):
    classifier = chain(((1, 1, 1),), valid=2).model()
    numeric = ampsim.simulate(classifier, cluster, ampsim.Sequential(), mode="numeric").epochs
    sleep = ampsim.simulate(model, cluster, ampsim.Sequential(), mode="sleep").epochs
    for epochs in (numeric, sleep):
        assert epochs[["error", "train_error"]].isna().all(axis=None)


def test_a_run_ends_at_an_error_at_or_below_the_target(model, cluster):
    errors = ampsim.simulate(model, cluster, ampsim.Amp(2), epochs=5).epochs["error"].tolist()
    ended = ampsim.simulate(model, cluster, ampsim.Amp(2), epochs=5, target=errors[2])
    assert ended.epochs["error"].tolist() == errors[:3]
    kept = run_to_keep(model, cluster, ampsim.Amp(2), RunOptions(epochs=5, target=errors[1]))
    assert len(kept.result.epochs) == 2


def test_a_forecast_speaks_of_the_error(model, cluster):
    schedules = [ampsim.Sequential(), ampsim.Amp(3)]
    made = ampsim.forecast(model, cluster, schedules, target=1e-9, max_epochs=2)
    assert made.metric == Metric("error", "eV")
    row = made.table.iloc[1]
    assert row["best_error"] == made.runs[1].epochs["error"].min()
    assert row["note"] == (
        "an error of 1e-09 eV not reached in 1 of 1 runs within 2 epochs; "
        f"best {row['best_error']:.3g} eV"
    )
    assert json.loads(to_json(made, seed=0))["rows"][1]["best_accuracy"] is None
    closest = made.table["best_error"].min()
    text = verdict(made.table, made.target, made.metric)
    assert re.search(
        rf"No schedule reached an error of 1e-09 eV; [\w ]+ came .* {closest:.3g}", text
    )


def test_an_error_that_was_reached_is_told_by_both_methods(model, cluster):
    made = ampsim.forecast(model, cluster, [ampsim.Sequential()], target=1e9, max_epochs=2)
    row = made.table.iloc[0]
    assert (row["epochs_to_target"], row["repeats_reached"], row["note"]) == (1, 1, "")
    assert row["time_to_target_formula_s"] == pytest.approx(row["time_to_target_s"])
    assert "reaches an error of 1e+09 eV in" in verdict(made.table, made.target, made.metric)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"metric": "loss"}, "no metric named 'loss'; known: accuracy, error"),
        ({"metric": "accuracy"}, "an accuracy has no unit, got 'eV'; leave it out"),
        ({"target": -0.1}, "target must be an error above 0, got -0.1; it is reached at or below"),
        ({"target": float("inf")}, "target must be a finite number, got inf"),
    ],
)
def test_a_model_with_an_impossible_metric_is_refused(model, changes, text):
    with pytest.raises(OptionError, match=f"^{re.escape(text)}"):
        replace(model, **changes)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), lambda data: 0.0])
def test_a_scale_that_is_no_positive_number_is_refused(model, cluster, scale):
    text = r"^error_scale (of model line must be above 0|must be a finite number), got "
    with pytest.raises(OptionError, match=text):
        ampsim.simulate(replace(model, error_scale=scale), cluster, ampsim.Sequential())


@pytest.mark.parametrize("value", [4.6, 1e-9, 97, np.float32(0.5)])
def test_every_positive_number_can_be_a_target_error(value):
    assert Metric("error").require_target(value) == float(value)


@pytest.mark.parametrize("value", [0, -1, True, "4.6", float("nan")])
def test_what_is_no_error_is_refused(value):
    text = f"target must be an error above 0, got {value!r}; it is reached at or below"
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        Metric("error").require_target(value)


@pytest.mark.parametrize(
    ("kind", "best", "index"), [("accuracy", 0.9, 1), ("error", 0.2, 0)], ids=["rises", "falls"]
)
def test_the_better_of_two_values_depends_on_the_metric(kind, best, index):
    scores = [0.2, 0.9, float("nan")]
    assert Metric(kind).best(scores) == best
    assert Metric(kind).best([float("nan")]) is None
    assert Goal(Metric(kind), 0.5).reached_by(scores) == index
    assert Goal(Metric(kind), None).reached_by(scores) is None


def test_the_graph_network_is_measured_in_multiples_of_chemical_accuracy():
    made = ampsim.load_model("ggnn", data="synthetic", hidden=11, steps=1)
    data: Any = made.make_data(0, 5)
    assert made.measure == Metric("error", "× chemical accuracy")
    assert made.error_scale_of(data) == pytest.approx(data.std_debye / 0.1)
    assert made.measure.text(4.6) == "4.6 × chemical accuracy"
