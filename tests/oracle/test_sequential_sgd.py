"""One instance in flight is plain gradient descent: a loop anybody could write, in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import GPipe, Pipeline, Sequential, load_cluster, load_model, simulate
from ampsim.data import ListReduction
from ampsim.optim import adam, exponential, sgd
from ampsim.study.model import parameters_of

HIDDEN, BATCH, LISTS, VALID, SEED = 12, 10, 150, 25, 3
DECAY = 0.8


class Sgd:
    """theta <- theta - rate * gradient."""

    rate = 0.2

    def step(self, name: str, theta: Any, gradient: Any, rate: float) -> Any:
        return theta - rate * gradient


class Adam:
    """Adam as Algorithm 1 of its paper, with PyTorch's place of epsilon."""

    rate = 0.02

    def __init__(self) -> None:
        self.kept: dict[str, tuple[int, Any, Any]] = {}

    def step(self, name: str, theta: Any, gradient: Any, rate: float) -> Any:
        count, mean, square = self.kept.get(name, (0, 0.0, 0.0))
        count += 1
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        self.kept[name] = (count, mean, square)
        corrected = np.sqrt(square / (1 - 0.999**count)) + 1e-8
        return theta - rate * mean / (1 - 0.9**count) / corrected


def gradients(p: dict[str, Any], linear: str, batch: Any) -> dict[str, Any]:
    """Backpropagation through time for one bucket, line by line; mean loss over rows."""
    table, w, b = p["embedding.weight"], p[f"{linear}.weight"], p[f"{linear}.bias"]
    w2, b2 = p["linear-2.weight"], p["linear-2.bias"]
    h = np.zeros((batch.rows, HIDDEN))
    inputs, states = [], []
    for tokens in batch.tokens:
        inputs.append(np.hstack([h, table[tokens]]))
        h = np.maximum(inputs[-1] @ w + b, 0.0)
        states.append(h)
    logits = h @ w2 + b2
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    d_logits = (probability - np.eye(10)[batch.labels]) / batch.rows

    g = {name: np.zeros_like(p[name]) for name in ("embedding.weight", f"{linear}.weight")}
    g[f"{linear}.bias"] = np.zeros_like(b)
    g["linear-2.weight"], g["linear-2.bias"] = h.T @ d_logits, d_logits.sum(axis=0)
    d_h = d_logits @ w2.T
    for t in reversed(range(batch.steps)):
        d_z = d_h * (states[t] > 0)
        g[f"{linear}.weight"] += inputs[t].T @ d_z
        g[f"{linear}.bias"] += d_z.sum(axis=0)
        d_input = d_z @ w.T
        np.add.at(g["embedding.weight"], batch.tokens[t], d_input[:, HIDDEN:])
        d_h = d_input[:, :HIDDEN]
    return g


def reference(
    model: Any, optimizer: Any, *, replicas: int, epochs: int, group: int = 1
) -> dict[str, Any]:
    """The loop: every bucket in turn, all touched layers stepped, replicas averaged at the end.

    With a group of several buckets, a layer steps once, by the mean over the buckets it saw.
    """
    p = parameters_of(model.graph(SEED))
    data = model.make_data(SEED, LISTS)
    instance = 0
    copies = [f"linear-1.{r}" for r in range(replicas)] if replicas > 1 else ["linear-1"]
    for epoch in range(epochs):
        batches = list(data.batches("train", epoch=epoch, seed=SEED))
        for first in range(0, len(batches), group):
            seen: dict[str, list[Any]] = {}
            for batch in batches[first : first + group]:
                linear = copies[instance % replicas]
                for name, gradient in gradients(p, linear, batch).items():
                    seen.setdefault(name, []).append(gradient)
                instance += 1
            for name, found in seen.items():
                mean = sum(found) / len(found)
                p[name] = optimizer.step(name, p[name], mean, optimizer.rate * DECAY**epoch)
        for part in ("weight", "bias"):
            names = [f"{copy}.{part}" for copy in copies]
            mean = np.mean([p[name] for name in names], axis=0)
            for name in names:
                p[name] = mean
        instance += data.batch_count("valid")
    return p


def lists(seed: int, train_count: int | None) -> ListReduction:
    return ListReduction.generate(seed, train_count or LISTS, VALID, batch=BATCH)


def small_rnn(replicas: int, name: str) -> Any:
    make, plain = OPTIMIZERS[name]
    model = load_model("rnn", hidden=HIDDEN, batch=BATCH, replicas=replicas, dtype="float64")
    return replace(model, optimizer=make(exponential(plain.rate, DECAY)), make_data=lists)


OPTIMIZERS = {"sgd": (sgd, Sgd), "adam": (adam, Adam)}


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize(
    ("name", "replicas", "epochs"), [("sgd", 1, 1), ("adam", 1, 1), ("sgd", 3, 2), ("adam", 3, 2)]
)
def test_one_in_flight_equals_a_plain_loop(workers, name, replicas, epochs):
    model, plain = small_rnn(replicas, name), OPTIMIZERS[name][1]
    expected = reference(model, plain(), replicas=replicas, epochs=epochs)
    cluster = load_cluster("tflops-1", workers=workers)
    result = simulate(model, cluster, Sequential(), epochs=epochs, seed=SEED)
    require_equal(result, model, expected)


@pytest.mark.parametrize("kind", [Pipeline, GPipe])
@pytest.mark.parametrize("in_flight", [1, 4, 7])
@pytest.mark.parametrize(("name", "replicas"), [("sgd", 1), ("adam", 1), ("sgd", 3), ("adam", 3)])
def test_a_pipeline_equals_a_plain_loop_over_groups(
    random_cluster, kind, in_flight, *, name, replicas
):
    """The last group of an epoch is a smaller one; order of arrival does not matter."""
    model, plain = small_rnn(replicas, name), OPTIMIZERS[name][1]
    expected = reference(model, plain(), replicas=replicas, epochs=2, group=in_flight)
    cluster = random_cluster(5, seed=in_flight, latency_s_max=1e-8)
    schedule = kind(max_active_keys=in_flight)
    require_equal(simulate(model, cluster, schedule, epochs=2, seed=SEED), model, expected)


def require_equal(result: Any, model: Any, expected: dict[str, Any]) -> None:
    """Parameters to 1e-12, all of which have moved, else the comparison would say nothing."""
    before, trained = parameters_of(model.graph(SEED)), result.model.parameters()
    assert trained.keys() == expected.keys()
    for key, value in expected.items():
        assert np.abs(value - before[key]).max() > 1e-3, f"{key} hardly moved"
        scale = np.abs(value).max()
        np.testing.assert_allclose(trained[key], value, rtol=1e-12, atol=1e-12 * scale)


def test_the_loop_itself_is_gradient_descent_on_the_mean_loss():
    """Central differences of the loss, so that reference and engine cannot be wrong alike."""
    model = small_rnn(1, "sgd")
    p = parameters_of(model.graph(SEED))
    batch = next(iter(model.make_data(SEED, LISTS).batches("train", epoch=0, seed=SEED)))

    def loss() -> float:
        h = np.zeros((batch.rows, HIDDEN))
        for tokens in batch.tokens:
            both = np.hstack([h, p["embedding.weight"][tokens]])
            h = np.maximum(both @ p["linear-1.weight"] + p["linear-1.bias"], 0.0)
        logits = h @ p["linear-2.weight"] + p["linear-2.bias"]
        right = logits[np.arange(batch.rows), batch.labels]
        return float((np.log(np.exp(logits).sum(axis=1)) - right).mean())

    analytic = gradients(p, "linear-1", batch)
    random = np.random.default_rng(0)
    for name, value in p.items():
        place = np.unravel_index(np.abs(analytic[name]).argmax(), value.shape)
        direction = random.standard_normal(value.shape) * 0.1
        direction[place] = 1.0
        p[name] = value + 1e-6 * direction
        above = loss()
        p[name] = value - 1e-6 * direction
        below = loss()
        p[name] = value
        slope = float((analytic[name] * direction).sum())
        assert (above - below) / 2e-6 == pytest.approx(slope, rel=1e-6)
