"""Every optimizer takes the steps that PyTorch's takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

from ampsim.optim import OPTIMIZERS, exponential

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load its optimizers

STEPS = 50
ORACLES: dict[str, list[tuple[dict[str, Any], str, dict[str, Any]]]] = {
    "sgd": [({}, "SGD", {})],
    "momentum": [
        ({}, "SGD", {"momentum": 0.9}),
        ({"momentum": 0.0}, "SGD", {"momentum": 0.0}),
        ({"momentum": 0.5}, "SGD", {"momentum": 0.5}),
    ],
    "adam": [
        ({}, "Adam", {}),
        ({"beta1": 0.0}, "Adam", {"betas": (0.0, 0.999)}),
        ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}, "Adam", {"betas": (0.5, 0.9), "eps": 1e-3}),
    ],
    "adagrad": [
        ({}, "Adagrad", {"initial_accumulator_value": 0.1, "eps": 0.0}),
        ({"start": 1e-6}, "Adagrad", {"initial_accumulator_value": 1e-6, "eps": 0.0}),
    ],
}
CASES = [(name, *case) for name, cases in ORACLES.items() for case in cases]


def test_every_optimizer_has_an_oracle() -> None:
    assert set(ORACLES) == set(OPTIMIZERS)


@pytest.mark.parametrize(("name", "options", "torch_name", "torch_options"), CASES)
def test_fifty_steps_equal_pytorch(
    name: str, options: dict[str, Any], torch_name: str, torch_options: dict[str, Any]
) -> None:
    """Gradients over eight orders of magnitude, some exactly 0; the rate decays."""
    random = np.random.default_rng(0)
    scale = 10.0 ** random.uniform(-6, 2, 200)
    optimizer = OPTIMIZERS[name](exponential(0.05, 0.8), **options)
    theta = random.standard_normal(200)
    state = optimizer.init(theta)
    weight = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    oracle = getattr(torch.optim, torch_name)([weight], lr=0.05, **torch_options)

    for step in range(STEPS):
        gradient = scale * random.standard_normal(200) * (random.random(200) < 0.8)
        rate = optimizer.rate(step // 10)
        theta, state = optimizer.update(gradient, state, theta, rate)
        oracle.param_groups[0]["lr"] = rate
        weight.grad = torch.from_numpy(gradient.copy())
        oracle.step()
        np.testing.assert_allclose(theta, weight.detach().numpy(), rtol=1e-12, atol=1e-13)
