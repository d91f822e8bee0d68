"""What schedules of stages learn: the weights of a plain loop, and gradients as stale as theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ampsim import GPipe, OneFOneB, Sequential, load_cluster, load_model, simulate
from ampsim.data import Mnist

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
@pytest.mark.parametrize("kind", [GPipe, OneFOneB])
def test_m_micro_batches_equal_sequential_descent_on_the_mini_batch(kind, m, layers):
    found = weights(perceptron(BATCH, layers), kind(max_active_keys=m), epochs=2)
    expected = weights(perceptron(m * BATCH, layers), Sequential(), epochs=2)
    require_equal(found, expected)


@pytest.mark.parametrize("kind", [GPipe, OneFOneB])
def test_synchronous_schedules_make_no_stale_gradients(kind):
    result = simulate(perceptron(BATCH), load_cluster("tflops-1", workers=3), kind(4))
    assert (result.staleness_mean, result.staleness_max) == (0.0, 0)
