"""What schedules of stages learn: the weights of a plain loop, and gradients as stale as theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import (
    GPipe,
    InterleavedOneFOneB,
    OneFOneB,
    PipeDream,
    PipeDream2BW,
    Sequential,
    ZeroBubbleH1,
    load_cluster,
    load_model,
    simulate,
)
from ampsim.data import Mnist
from ampsim.study.model import parameters_of

ITEMS, BATCH, SEED = 120, 5, 4


def perceptron(batch: int, layers: int = 3) -> Any:
    def images(seed: int, _count: int | None) -> Mnist:
        options: dict[str, Any] = {"batch": batch, "dtype": "float64"}
        return Mnist.synthetic(seed, train_count=ITEMS, valid_count=20, **options)

    options: dict[str, Any] = {"hidden": 12, "layers": layers, "data": "synthetic"}
    return replace(load_model("mlp", dtype="float64", **options), make_data=images)


def weights(model: Any, schedule: Any, **options: Any) -> dict[str, np.ndarray]:
    cluster = load_cluster("tflops-1", workers=4, latency_s=1e-8)
    return simulate(model, cluster, schedule, seed=SEED, **options).model.parameters()


def require_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.abs(value).max() > 1e-3
        np.testing.assert_allclose(found[key], value, rtol=1e-10, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("m", [1, 4, 8])
@pytest.mark.parametrize("kind", [GPipe, OneFOneB, InterleavedOneFOneB, ZeroBubbleH1])
def test_m_micro_batches_equal_sequential_descent_on_the_mini_batch(kind, m, layers):
    found = weights(perceptron(BATCH, layers), kind(max_active_keys=m), epochs=2)
    expected = weights(perceptron(m * BATCH, layers), Sequential(), epochs=2)
    require_equal(found, expected)


def test_several_stages_a_worker_learn_what_one_worker_would():
    cluster = load_cluster("tflops-1", workers=2, latency_s=1e-8)
    model = perceptron(BATCH, layers=4)
    found = simulate(model, cluster, InterleavedOneFOneB(6), seed=SEED).model.parameters()
    require_equal(found, weights(perceptron(6 * BATCH, layers=4), Sequential()))


@pytest.mark.parametrize("kind", [GPipe, OneFOneB, InterleavedOneFOneB, ZeroBubbleH1])
def test_synchronous_schedules_make_no_stale_gradients(kind):
    result = simulate(perceptron(BATCH), load_cluster("tflops-1", workers=3), kind(4))
    assert (result.staleness_mean, result.staleness_max) == (0.0, 0)


Layer = tuple[np.ndarray, np.ndarray]
LAYERS, RATE = 3, 0.1


def gradients(layers: list[Layer], batch: Any) -> list[Layer]:
    """Backpropagation through layers and ReLUs, line by line; mean cross entropy over rows."""
    inputs = [batch.images]
    for weight, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight + bias, 0.0))
    logits = inputs[-1] @ layers[-1][0] + layers[-1][1]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    slope = (odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[batch.labels]) / len(batch.labels)
    found: list[Layer] = []
    for x, (weight, _bias) in zip(reversed(inputs), reversed(layers), strict=True):
        found.insert(0, (x.T @ slope, slope.sum(axis=0)))
        slope = (slope @ weight.T) * (x > 0)
    return found


def delayed_descent(
    model: Any, read: Callable[[int, int], int], every: int, epochs: int
) -> dict[str, np.ndarray]:
    """The loop: instance k of an epoch reads version `read(stage, k)` of that epoch at each stage.

    Forward and backward read the same; the mean gradient of `every` instances makes a version.
    """
    p = parameters_of(model.graph(SEED))
    names = [f"linear-{layer}" for layer in range(1, LAYERS + 1)]
    latest: list[Layer] = [(p[f"{name}.weight"], p[f"{name}.bias"]) for name in names]
    data = model.make_data(SEED, None)
    for epoch in range(epochs):
        versions, waiting = [latest], []
        batches = list(data.batches("train", epoch=epoch, seed=SEED))
        for k, batch in enumerate(batches):
            seen = [versions[read(stage, k)][stage] for stage in range(LAYERS)]
            waiting.append(gradients(seen, batch))
            if len(waiting) == every or k == len(batches) - 1:
                latest = [
                    (w - RATE * sum(dw) / len(dw), b - RATE * sum(db) / len(db))
                    for (w, b), *of_layer in zip(versions[-1], *waiting, strict=True)
                    for dw, db in [zip(*of_layer, strict=True)]
                ]
                versions.append(latest)
                waiting = []
    pairs = zip(names, latest, strict=True)
    return {f"{n}.{part}": v for n, (w, b) in pairs for part, v in (("weight", w), ("bias", b))}


@pytest.mark.parametrize(
    ("schedule", "read", "every"),
    [
        (PipeDream(), lambda s, k: max(0, k - (LAYERS - 1 - s)), 1),
        (PipeDream(vertical_sync=True), lambda _s, k: max(0, k - (LAYERS - 1)), 1),
        (PipeDream(max_active_keys=2), lambda s, k: max(0, k - min(1, LAYERS - 1 - s)), 1),
        (PipeDream2BW(5), lambda _s, k: max(0, k // 5 - 1), 5),
        (PipeDream2BW(3), lambda _s, k: max(0, k // 3 - 1), 3),
        (PipeDream2BW(1, max_active_keys=1), lambda _s, k: max(0, k - 1), 1),
    ],
    ids=lambda value: "" if callable(value) else str(value),  # the same in every process
)
def test_delayed_descent_equals_a_plain_loop_that_keeps_all_versions(schedule, read, every):
    model = perceptron(BATCH, LAYERS)
    expected = delayed_descent(model, read, every, epochs=2)
    found = weights(model, schedule, epochs=2)
    require_equal(found, expected)
    if schedule != PipeDream():  # versions matter: another rule gives other weights
        other = weights(model, PipeDream(), epochs=2)
        assert max(np.abs(other[key] - found[key]).max() for key in found) > 1e-5


def test_pipedream_of_one_stage_is_sequential_to_the_last_bit():
    model = perceptron(BATCH, layers=1)
    sequential = weights(model, Sequential(), epochs=2)
    for schedule in (PipeDream(), PipeDream(vertical_sync=True)):
        found = weights(model, schedule, epochs=2)
        assert all((found[key] == value).all() for key, value in sequential.items())


def test_halves_of_a_backward_step_cost_and_find_what_the_whole_does():
    """Appendix C: the first layer has no input gradient, so its first half is free."""
    model, cluster = perceptron(BATCH), load_cluster("tflops-1", workers=3)
    whole, halves = (simulate(model, cluster, kind(4)) for kind in (OneFOneB, ZeroBubbleH1))
    require_equal(halves.model.parameters(), whole.model.parameters())
    sums = [
        run.spans[run.spans["direction"] == "backward"].groupby("node", observed=True)["flop"].sum()
        for run in (whole, halves)
    ]
    assert sums[0].to_dict() == sums[1].to_dict()
    first = halves.spans[(halves.spans["node"] == "linear-1") & (halves.spans["staleness"] < 0)]
    assert (first[first["direction"] == "backward"]["flop"] == 0).all()
