"""Weight prediction against a loop that replays the trace with the formula written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import Amp, AmpBudget, load_cluster, load_model, simulate
from ampsim.data import Mnist
from ampsim.ir import Direction
from ampsim.model_parallel import Schedule
from ampsim.optim import adam, momentum
from ampsim.study.model import parameters_of

LAYERS, RATE, GAMMA, SEED = 3, 0.02, 0.9, 4
NAMES = [f"linear-{layer}" for layer in range(1, LAYERS + 1)]


def images(seed: int, _count: int | None) -> Mnist:
    return Mnist.synthetic(seed, train_count=150, valid_count=20, batch=5, dtype="float64")


def perceptron(**changes: Any) -> Any:
    options: dict[str, Any] = {"hidden": 12, "layers": LAYERS, "data": "synthetic"}
    model = load_model("mlp", dtype="float64", learning_rate=RATE, **options)
    return replace(model, make_data=images, **changes)


def run(schedule: Schedule, model: Any = None, **options: Any) -> Any:
    cluster = load_cluster("tflops-1", workers=4, latency_s=1e-6)
    return simulate(model or perceptron(), cluster, schedule, seed=SEED, **options)


class Replay:
    """Layers with the rule of weight prediction, served one step after the other."""

    def __init__(self, start: dict[str, np.ndarray]) -> None:
        self.weight = [start[f"{name}.weight"].copy() for name in NAMES]
        self.bias = [start[f"{name}.bias"].copy() for name in NAMES]
        self.smooth = [(np.zeros_like(w), np.zeros_like(b)) for w, b in self.pairs]
        self.late = [0.0] * LAYERS
        self.version = [0] * LAYERS
        self.kept: list[list[Any]] = [[] for _ in range(LAYERS)]
        self.inputs: dict[tuple[int, int], np.ndarray] = {}
        self.read: dict[tuple[int, int], int] = {}
        self.sums: dict[tuple[int, int], np.ndarray] = {}
        self.back: dict[tuple[int, int], np.ndarray] = {}

    @property
    def pairs(self) -> Any:
        return zip(self.weight, self.bias, strict=True)

    def forward(self, layer: int, key: int, batch: Any) -> None:
        s, (of_weight, of_bias) = self.late[layer], self.smooth[layer]
        x = batch.images if layer == 0 else np.maximum(self.sums[layer - 1, key], 0)
        self.inputs[layer, key], self.read[layer, key] = x, self.version[layer]
        self.sums[layer, key] = x @ (self.weight[layer] - s * of_weight) + (
            self.bias[layer] - s * of_bias
        )
        if layer == LAYERS - 1:
            logits = self.sums[layer, key]
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
            odds[np.arange(len(odds)), batch.labels] -= 1
            self.back[layer, key] = odds / len(odds)

    def backward(self, layer: int, key: int) -> None:
        g, x = self.back[layer, key], self.inputs[layer, key]
        late = self.version[layer] - self.read[layer, key]
        self.kept[layer].append((x.T @ g, g.sum(axis=0), late))
        if layer:
            self.back[layer - 1, key] = (g @ self.weight[layer].T) * (self.sums[layer - 1, key] > 0)

    def update(self, layer: int) -> None:
        of_weight, of_bias, late = zip(*self.kept[layer], strict=True)
        step = RATE * sum(of_weight), RATE * sum(of_bias)
        self.weight[layer] = self.weight[layer] - step[0]
        self.bias[layer] = self.bias[layer] - step[1]
        old = self.smooth[layer]
        self.smooth[layer] = tuple(
            GAMMA * v + (1 - GAMMA) * new for v, new in zip(old, step, strict=True)
        )
        self.late[layer] = sum(late) / len(late)
        self.version[layer] += 1
        self.kept[layer] = []


def replayed(result: Any, epochs: int) -> Replay:
    """What the steps of a trace compute, in the order in which they read weights."""
    made = Replay(parameters_of(perceptron().graph(SEED)))
    data, count = images(SEED, None), 30
    batches = [b for e in range(epochs) for b in data.batches("train", epoch=e, seed=SEED)]
    spans = result.spans[result.spans["node"].isin(NAMES)]
    trained = set(spans[spans["direction"] == "backward"]["instance"])
    place = {key: index for index, key in enumerate(sorted(trained))}
    assert len(batches) == len(place) == count * epochs
    for span in spans.sort_values("start_s", kind="stable").itertuples():
        layer, key = NAMES.index(span.node), span.instance
        if span.direction == "update":
            made.update(layer)
        elif key in place and span.direction == "forward":
            made.forward(layer, key, batches[place[key]])
        elif key in place:
            made.backward(layer, key)
    return made


@pytest.mark.parametrize("interval", [1, 2, 3])
@pytest.mark.parametrize("kind", [Amp, AmpBudget])
def test_weights_are_those_of_a_loop_that_predicts(kind, interval):
    schedule = kind(6, min_update_interval=interval, remedy="weight-prediction")
    result = run(schedule, epochs=2)
    assert result.staleness_mean > 0.4
    expected = replayed(result, 2)
    found = result.model.parameters()
    for name, weight, bias in zip(NAMES, expected.weight, expected.bias, strict=True):
        np.testing.assert_allclose(found[f"{name}.weight"], weight, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found[f"{name}.bias"], bias, rtol=1e-10, atol=1e-12)
    plain = run(kind(6, min_update_interval=interval), epochs=2).model.parameters()
    assert np.abs(plain["linear-1.weight"] - found["linear-1.weight"]).max() > 1e-6


def test_gradients_that_are_not_late_are_left_alone():
    """The charge for it aside, one instance in flight learns the same with and without."""
    found = run(Amp(1, remedy="weight-prediction")).model.parameters()
    for name, value in run(Amp(1)).model.parameters().items():
        assert np.array_equal(found[name], value), name


@pytest.mark.parametrize("optimizer", [adam(1e-3), momentum(0.01)])
def test_an_optimizers_own_steps_are_predicted(optimizer):
    model = perceptron(optimizer=optimizer)
    found = run(Amp(6, remedy="weight-prediction"), model).model.parameters()
    plain = run(Amp(6), model).model.parameters()
    assert np.abs(found["linear-1.weight"] - plain["linear-1.weight"]).max() > 1e-6


def test_a_prediction_is_charged_as_two_more_updates():
    flop = {}
    for remedy in ("none", "weight-prediction"):
        spans = run(Amp(4, remedy=remedy)).spans
        for direction in Direction:
            of_it = spans[(spans["direction"] == direction.name.lower()) & (spans["flop"] > 0)]
            flop[remedy, direction] = int(of_it["flop"].sum()), len(of_it)
    for direction in (Direction.FORWARD, Direction.BACKWARD):
        assert flop["none", direction] == flop["weight-prediction", direction]
    (plain, plain_count), (predicted, count) = (
        flop[remedy, Direction.UPDATE] for remedy in ("none", "weight-prediction")
    )
    assert (predicted, count) == (3 * plain, plain_count)


def test_validation_reads_the_weights_themselves():
    """Equal weights at the end of an epoch, equal losses: prediction is for training only."""
    model = perceptron()
    trained = run(Amp(6, remedy="weight-prediction"), model)
    again = perceptron().set_parameters(trained.model.parameters())
    slow = replace(again, optimizer=replace(again.optimizer, rate=lambda _epoch: 0.0))
    loss = run(Amp(1), slow).epochs["valid_loss"].iloc[0]
    assert trained.epochs["valid_loss"].iloc[0] == pytest.approx(loss, rel=1e-12)
