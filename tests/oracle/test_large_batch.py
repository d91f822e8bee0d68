"""What large batches need: LARS as its paper's loop, and rates that change within an epoch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import load_cluster, load_model, simulate
from ampsim.errors import OptionError
from ampsim.ir import Graph
from ampsim.nodes import Embedding, Linear, SoftmaxCrossEntropy
from ampsim.optim import OPTIMIZERS, Optimizer, lars, polynomial, sgd, warmup

SHAPES = [(4, 3), (3,), (2, 2, 3, 3)]
SIZES = [math.prod(shape) for shape in SHAPES]


def algorithm_1(
    tensors: list[np.ndarray], steps: list[list[np.ndarray]], *, gamma: float, m: float,
    beta: float, eta: float,
) -> list[np.ndarray]:  # fmt: skip
    """Algorithm 1 of arXiv 1708.03888, tensor by tensor; those of one axis by momentum alone."""
    weights = [w.copy() for w in tensors]
    v = [np.zeros_like(w) for w in weights]
    for gradients in steps:
        for layer, g in enumerate(gradients):
            w = weights[layer]
            if w.ndim == 1:
                v[layer] = m * v[layer] + gamma * g
            else:
                norm_w, norm_g = math.sqrt((w**2).sum()), math.sqrt((g**2).sum())
                rate = eta * norm_w / (norm_g + beta * norm_w)
                v[layer] = m * v[layer] + gamma * rate * (g + beta * w)
            weights[layer] = w - v[layer]
    return weights


@pytest.mark.parametrize(
    ("momentum", "decay", "trust"), [(0.9, 0.0, 0.001), (0.9, 0.004, 0.001), (0.0, 0.5, 0.02)]
)
def test_lars_takes_the_steps_of_its_algorithm(momentum, decay, trust):
    random = np.random.default_rng(0)
    tensors = [random.standard_normal(shape) for shape in SHAPES]
    steps = [
        [10.0 ** random.uniform(-4, 3) * random.standard_normal(s) for s in SHAPES]
        for _ in range(30)
    ]
    method = lars(0.7, momentum, decay, trust).of_tensors(SHAPES)
    theta = np.concatenate([one.reshape(-1) for one in tensors])
    state = method.init(theta)
    for gradients in steps:
        flat = np.concatenate([one.reshape(-1) for one in gradients])
        theta, state = method.update(flat, state, theta, method.rate(0))
    expected = algorithm_1(tensors, steps, gamma=0.7, m=momentum, beta=decay, eta=trust)
    flat = np.concatenate([one.reshape(-1) for one in expected])
    np.testing.assert_allclose(theta, flat, rtol=1e-12, atol=1e-14)


def test_steps_of_lars_do_not_depend_on_the_scale_of_the_loss():
    """Of tensors that have a rate of their own, and without decay."""
    random = np.random.default_rng(1)
    theta, gradients = random.standard_normal(36), random.standard_normal((20, 36))
    walks = []
    for scale in (1.0, 1e6):
        method = lars(1.0).of_tensors([(6, 6)])
        weights, state = theta, method.init(theta)
        for gradient in gradients:
            weights, state = method.update(scale * gradient, state, weights, 1.0)
        walks.append(weights)
    np.testing.assert_allclose(walks[0], walks[1], rtol=1e-12)


def small(optimizer: Optimizer, **options: Any) -> Any:
    model = load_model("mlp", hidden=8, data="synthetic", dtype="float64", **options)
    return replace(model, optimizer=optimizer)


@pytest.mark.parametrize(
    "schedule", [ampsim.Sequential(), ampsim.SyncSGD(ranks=2)], ids=lambda s: s.name
)
def test_in_a_run_lars_takes_each_nodes_weight_and_bias_by_itself(schedule):
    """One step: the change of each tensor has the length that the formula says."""
    images = 200
    model = small(lars(1.0, trust=0.01), batch=images // (2 if schedule.name == "sync-sgd" else 1))
    plain = replace(model, optimizer=sgd(1.0))
    cluster = load_cluster("tflops-1", workers=2)
    before = model.parameters()
    after, stepped = (
        simulate(one, cluster, schedule, instances=images).model.parameters()
        for one in (model, plain)
    )
    for name, weights in before.items():
        gradient = weights - stepped[name]
        if weights.ndim == 1:
            expected = gradient
        else:
            expected = 0.01 * np.linalg.norm(weights) * gradient / np.linalg.norm(gradient)
        np.testing.assert_allclose(weights - after[name], expected, rtol=1e-9, atol=1e-15)


def test_momentum_of_a_solver_does_not_lose_a_weight_decay():
    model, cluster = small(sgd(0.1, weight_decay=0.1)), load_cluster("tflops-1", workers=3)
    text = r"^async-sgd: momentum=0\.9 would lose the weight decay of the model's sgd; leave"
    with pytest.raises(OptionError, match=text):
        simulate(model, cluster, ampsim.AsyncSGD(ranks=2, momentum=0.9), instances=200)


class Asked:
    """A rate that notes what it is asked."""

    is_within_epochs = True

    def __init__(self) -> None:
        self.epochs: list[float] = []

    def __call__(self, epoch: float) -> float:
        self.epochs.append(epoch)
        return 0.1


@pytest.mark.parametrize("every", [None, 300])
def test_a_rate_is_asked_with_the_place_in_the_epoch_of_each_update(every):
    """Ten batches an epoch, two at once; validation in between does not disturb."""
    asked = Asked()
    model = small(sgd(asked), batch=100)
    cluster = load_cluster("tflops-1", workers=2)
    simulate(model, cluster, ampsim.Pipeline(2), epochs=2, instances=1000, validate_every=every)
    found = sorted({round(one, 9) for one in asked.epochs})
    if every is None:
        assert found == [epoch + two / 10 for epoch in (0, 1) for two in range(0, 10, 2)]
    else:  # parts of three batches
        assert found == [epoch + one / 10 for epoch in (0, 1) for one in (0, 2, 3, 5, 6, 8, 9)]


def test_a_warm_up_in_a_run_is_that_of_a_plain_loop():
    """Weights of a run against gradient descent whose rate is worked out step by step."""
    batch, steps, epochs = 100, 5, 3
    rate = warmup(polynomial(0.5, epochs=3), epochs=2)
    cluster = load_cluster("tflops-1", workers=1)
    model = small(sgd(rate), batch=batch)
    run = simulate(model, cluster, ampsim.Sequential(), epochs=epochs, instances=batch * steps)
    data = model.make_data(0, batch * steps)
    p = {name: value.copy() for name, value in model.parameters().items()}
    for epoch in range(epochs):
        for step, one in enumerate(data.batches("train", epoch=epoch, seed=0)):
            t = epoch + step / steps
            lr = 0.5 * (1 - t / 3) * min(1.0, 0.1 + 0.9 * t / 2)
            descend(p, one.images, one.labels, lr)
    for name, found in run.model.parameters().items():
        np.testing.assert_allclose(found, p[name], rtol=1e-10, atol=1e-13)


def descend(p: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray, lr: float) -> None:
    """One step of gradient descent on the perceptron's mean cross-entropy."""
    inputs = []
    for layer in (1, 2, 3, 4):
        inputs.append(x)
        x = x @ p[f"linear-{layer}.weight"] + p[f"linear-{layer}.bias"]
        if layer < 4:
            x = np.maximum(x, 0)
    chances = np.exp(x - x.max(axis=1, keepdims=True))
    g = chances / chances.sum(axis=1, keepdims=True)
    g[np.arange(len(labels)), labels] -= 1
    g /= len(labels)
    for layer in (4, 3, 2, 1):
        back = g @ p[f"linear-{layer}.weight"].T
        p[f"linear-{layer}.weight"] -= lr * inputs[layer - 1].T @ g
        p[f"linear-{layer}.bias"] -= lr * g.sum(axis=0)
        g = back * (inputs[layer - 1] > 0)


@pytest.mark.parametrize("make", [lambda: lars(0.1), lambda: sgd(0.1, weight_decay=0.1)])
def test_a_table_whose_rows_are_stepped_alone_refuses_what_takes_all_of_it(make):
    def graph() -> Graph:
        made = Graph("g")
        words, label = made.controller(words=("rows",), label=("rows",))
        table = made.add(Embedding("table", 9, 4, is_sparse=True), words)
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("linear", 4, 2), table), label)
        return made

    arrays = np.arange(8) % 9, np.arange(8) % 2
    data = ampsim.ArrayDataset(train=arrays, valid=arrays, batch=4)
    model = ampsim.Model("m", None, graph, data.for_run, pump, make())
    with pytest.raises(OptionError, match=r"^table \(Embedding\) updates the rows of its table"):
        simulate(model, load_cluster("tflops-1", workers=1), ampsim.Sequential())


def pump(instance: int, batch: Any) -> Any:
    from ampsim.data import pump_arrays

    return pump_arrays(instance, batch)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "momentum": (
        {"optimizer": "adam", "momentum": 0.5},
        "optimizer adam has no momentum, got 0.5; leave it out, or take momentum, nesterov, lars",
    ),
    "policy": (
        {"rate_policy": "poly:3"},
        "no rate_policy named 'poly'; did you mean 'polynomial'? known: constant, exponential, "
        "multistep, polynomial",
    ),
    "numbers": (
        {"rate_policy": "multistep:3,x"},
        "rate_policy must be multistep:EPOCH,EPOCH,… or multistep:EPOCH,EPOCH,…:FACTOR, got "
        "'multistep:3,x'",
    ),
    "order": (
        {"rate_policy": "multistep:3,2"},
        "epochs of a multistep rate must be one or more, each later than the one before, got "
        "3.0, 2.0; try 30, 60, 80",
    ),
    "stages": (
        {"optimizer": "two-stage"},
        "optimizer two-stage needs warmup_epochs, those of gradient descent, above 0, got 0; try 5",
    ),
    "of the second stage": (
        {"optimizer": "two-stage", "warmup_epochs": 2, "rate_policy": "multistep:2,4"},
        "rate_policy in optimizer two-stage is of gradient descent alone, and must change its rate "
        "within 2 epochs, got 'multistep:2,4'; leave it out",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_would_be_ignored_or_cannot_be_read_is_refused(name):
    options, text = OPTIONS[name]
    with pytest.raises(OptionError) as caught:
        load_model("mlp", data="synthetic", **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "policy", ["multistep:1", "multistep:1.9,3", "exponential:0.5", "polynomial:9"]
)
def test_a_policy_of_the_first_stage_is_taken(policy):
    options: dict[str, Any] = {"optimizer": "two-stage", "warmup_epochs": 2, "rate_policy": policy}
    rate = load_model("mlp", data="synthetic", **options).optimizer.rate
    assert rate(1.95) < rate(0) and rate(2) == 0.001


@pytest.mark.parametrize("start", [0, 1.5, -1, math.nan])
def test_a_warm_up_starts_above_zero_and_below_its_end(start):
    with pytest.raises(OptionError, match=r"^start of a warm-up must be > 0 and <= 1, got "):
        warmup(0.1, 5, start)


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_every_method_can_be_chosen_by_its_name(optimizer):
    model = load_model("mlp", data="synthetic", optimizer=optimizer, warmup_epochs=2)
    assert model.optimizer.name == optimizer
    assert model.optimizer.rate(2) > 0
