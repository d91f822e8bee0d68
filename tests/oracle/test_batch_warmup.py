"""The warm-up of the batch: its sizes, and what is learned with them, against plain loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from solver_cases import cluster, model, stacked

import ampsim
from ampsim.data import BatchWarmup
from ampsim.errors import OptionError
from ampsim.optim import polynomial, sgd
from ampsim.study.learning_rates import rate_of
from ampsim.study.simulation import RunOptions

ROWS, BATCH, WARMUP, EPOCHS = 47, 20, 4, 6
SIZES = [2, 6, 11, 16, 20, 20]
"""20 (0.1 + 0.9 e / 4): 2, 6.5, 11, 15.5, to the nearest even number where in the middle."""


def warmed_up(rate: Any = None) -> ampsim.Model:
    """A linear model of which the batch grows."""
    made = model(ROWS, BATCH)
    data = made.make_data
    made = replace(made, make_data=lambda seed, count: BatchWarmup(data(seed, count), WARMUP))
    return made if rate is None else replace(made, optimizer=sgd(rate))


def loop(together: int, rate_at: Any) -> np.ndarray:
    """Gradient descent in which a step has so many batches, each of the size of its epoch."""
    made = warmed_up()
    theta = stacked(made)
    data: Any = model(ROWS, BATCH).make_data(0, None)
    for epoch, size in enumerate(SIZES):
        count = -(-ROWS // size)
        for first in range(0, count, together):
            rows = slice(first * size, min((first + together) * size, ROWS))
            full = np.hstack([data.x[rows], np.ones((len(data.x[rows]), 1))])
            gradient = full.T @ (full @ theta - data.y[rows]) / len(full)
            theta = theta - rate_at(epoch + first / count) * gradient
    return theta


def test_batches_grow_in_a_straight_line_and_hold_each_item_once():
    data: Any = warmed_up().make_data(0, None)
    for epoch, size in enumerate(SIZES):
        rows = [one.rows for one in data.batches("train", epoch=epoch, seed=0)]
        assert rows[0] == size
        assert sum(rows) == ROWS
        assert len(rows) == data.epoch_batches(epoch)
    assert data.batch_count("train") == data.epoch_batches(0) == 24
    assert data.batch_count("valid") == 1


@pytest.mark.parametrize(
    ("chosen", "together"), [(ampsim.Sequential(), 1), (ampsim.SyncSGD(ranks=3), 3)]
)
def test_a_run_learns_as_a_plain_loop_whose_batches_grow(chosen, together):
    result = ampsim.simulate(warmed_up(), cluster([1e9, 2e9, 5e8]), chosen, epochs=EPOCHS)
    expected = loop(together, lambda _at: 0.05)
    np.testing.assert_allclose(stacked(result.model), expected, rtol=1e-12, atol=1e-14)
    assert result.epochs["instances"].tolist() == [ROWS] * EPOCHS


@pytest.mark.parametrize(
    ("chosen", "together"), [(ampsim.Sequential(), 1), (ampsim.SyncSGD(ranks=3), 3)]
)
def test_a_rate_within_epochs_counts_the_batches_of_its_own_epoch(chosen, together):
    made = warmed_up(polynomial(0.08, epochs=8))
    result = ampsim.simulate(made, cluster([1e9, 2e9, 5e8]), chosen, epochs=EPOCHS)
    expected = loop(together, lambda at: 0.08 * (1 - at / 8))
    np.testing.assert_allclose(stacked(result.model), expected, rtol=1e-12, atol=1e-14)


def test_ranks_that_go_on_without_a_drain_have_the_batch_of_each_epoch():
    chosen = ampsim.AsyncSGD(ranks=3)
    result = ampsim.simulate(warmed_up(), cluster([1e9] * 4), chosen, epochs=EPOCHS)
    assert result.epochs["instances"].tolist() == [ROWS] * EPOCHS
    spans = result.spans
    is_forward = (spans["direction"] == "forward") & (spans["node"] == "linear-1")
    rows = spans[is_forward].sort_values("instance")["flop"].to_numpy() // (2 * 3 * 2)
    expected = [rows for size in SIZES for rows in _cut(size)]
    assert rows[: len(expected)].tolist() == expected


def _cut(size: int) -> list[int]:
    return [min(size, ROWS - start) for start in range(0, ROWS, size)]


@pytest.mark.parametrize("name", ["mlp", "lenet", "lstm_mnist"])
def test_the_image_models_take_it_as_an_option(name):
    made = ampsim.load_model(name, data="synthetic", batch=50, batch_warmup_epochs=3)
    data = made.make_data(0, 200)
    sizes = [next(data.batches("train", epoch=epoch, seed=0)).rows for epoch in range(5)]
    assert sizes == [5, 20, 35, 50, 50]


def test_gradient_descent_then_adam_may_have_it_as_in_figure_3():
    """Both stages at once: the batch grows in the epochs of gradient descent."""
    options: dict[str, Any] = {"data": "synthetic", "hidden": 16, "batch": 100}
    two: dict[str, Any] = {"optimizer": "two-stage", "warmup_epochs": 2, "learning_rate": 0.1}
    made = ampsim.load_model("mlp", **options, **two, batch_warmup_epochs=2)
    hosts = ampsim.load_cluster("tflops-1", workers=4)
    result = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=4), epochs=3, instances=400)
    updates = result.updates[result.updates["node"] == "linear-1"]
    ends = result.epochs["time_s"].to_numpy()
    steps = np.diff([0, *(int((updates["time_s"] <= end).sum()) for end in ends)])
    assert steps.tolist() == [10, 2, 1]  # 40, 8 and 4 batches, four to a step


@pytest.mark.parametrize(("epochs", "count"), [(1, 16), (3, 5), (EPOCHS, 3)])
def test_no_rate_is_scaled_by_more_gradients_than_the_last_epoch_has_batches(epochs, count):
    """Of 16 in flight, with 24 batches in the first epoch."""
    what = warmed_up(), ampsim.Pipeline(16), cluster([1e9, 1e9])
    assert rate_of(*what, RunOptions(epochs=epochs)).factor == count
    assert rate_of(*what, RunOptions(epochs=EPOCHS, validate_every=BATCH)).factor == 1


def test_data_need_no_name_and_no_description():
    """What else a user's data set lacks is not asked for, and its batches grow."""

    @dataclass(frozen=True)
    class Nameless:
        batch: int

        def batch_count(self, split: str) -> int:
            return -(-ROWS // self.batch)

    assert BatchWarmup(Nameless(BATCH), WARMUP).epoch_batches(0) == -(-ROWS // SIZES[0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda data: BatchWarmup(data, 0), "epochs of a warm-up of the batch must be a whole nu"),
        (lambda data: BatchWarmup(data, 2, start=1.0), "start of a warm-up of the batch must be >"),
        (lambda data: BatchWarmup(replace(data, batch=1), 2), "0.1 of 1 is 1 too; take a larger"),
        (lambda data: BatchWarmup([1, 2], 2), "must be a dataclass with a field batch, got a list"),
    ],
)
def test_a_warm_up_that_cannot_be_is_refused_in_one_line(make, said):
    data = model(ROWS, BATCH).make_data(0, None)
    with pytest.raises(OptionError) as caught:
        make(data)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_forecast_of_one_epoch_without_numbers_is_refused():
    made = ampsim.load_model("mlp", data="synthetic", hidden=4, batch_warmup_epochs=2)
    text = "mode 'sleep' runs the first epoch alone, of which batches are smaller than of later"
    with pytest.raises(OptionError, match=text):
        ampsim.forecast(made, "tflops-1", ["sequential"], mode="sleep", instances=200)
