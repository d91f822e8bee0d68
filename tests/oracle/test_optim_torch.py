"""Every optimizer takes the steps that PyTorch's takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_oracle import torch

from ampsim.optim import OPTIMIZERS, exponential, multistep, polynomial, warmup

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load its optimizers

STEPS = 50
ORACLES: dict[str, list[tuple[dict[str, Any], str, dict[str, Any]]]] = {
    "sgd": [({}, "SGD", {}), ({"weight_decay": 0.1}, "SGD", {"weight_decay": 0.1})],
    "momentum": [
        ({}, "SGD", {"momentum": 0.9}),
        ({"momentum": 0.0}, "SGD", {"momentum": 0.0}),
        ({"momentum": 0.5}, "SGD", {"momentum": 0.5}),
        ({"weight_decay": 0.1}, "SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ],
    "adam": [
        ({}, "Adam", {}),
        ({"beta1": 0.0}, "Adam", {"betas": (0.0, 0.999)}),
        ({"weight_decay": 0.1}, "Adam", {"weight_decay": 0.1}),
        ({"beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3}, "Adam", {"betas": (0.5, 0.9), "eps": 1e-3}),
    ],
    "nesterov": [
        ({}, "SGD", {"momentum": 0.9, "nesterov": True}),
        (
            {"momentum": 0.5, "weight_decay": 0.1},
            "SGD",
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        ),
    ],
    "two-stage": [({"epochs": 10}, "SGD", {}), ({"epochs": 1e-9}, "Adam", {})],
    "adagrad": [
        ({}, "Adagrad", {"initial_accumulator_value": 0.1, "eps": 0.0}),
        ({"start": 1e-6}, "Adagrad", {"initial_accumulator_value": 1e-6, "eps": 0.0}),
    ],
}
CASES = [(name, *case) for name, cases in ORACLES.items() for case in cases]


def test_every_optimizer_has_an_oracle() -> None:
    """LARS, which PyTorch has not, has a loop of its own (test_large_batch.py)."""
    assert set(ORACLES) == set(OPTIMIZERS) - {"lars"}


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
        rate = optimizer.rate(step // 10 + (1 if name == "two-stage" else 0))
        theta, state = optimizer.update(gradient, state, theta, rate)
        oracle.param_groups[0]["lr"] = rate
        weight.grad = torch.from_numpy(gradient.copy())
        oracle.step()
        np.testing.assert_allclose(theta, weight.detach().numpy(), rtol=1e-12, atol=1e-13)


def test_two_stages_are_gradient_descent_and_then_adam_from_its_start() -> None:
    """Adam has seen no gradient of the first stage, and has a rate of its own."""
    random = np.random.default_rng(0)
    optimizer = OPTIMIZERS["two-stage"](0.1, epochs=2.5, second_rate=exponential(0.01, 0.5))
    theta = random.standard_normal(30)
    state = optimizer.init(theta)
    weight = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    first, second = torch.optim.SGD([weight], lr=0.1), torch.optim.Adam([weight], lr=0.01)
    for step in range(20):
        epoch = step / 4
        gradient = random.standard_normal(30)
        theta, state = optimizer.update(gradient, state, theta, optimizer.rate(epoch))
        weight.grad = torch.from_numpy(gradient.copy())
        second.param_groups[0]["lr"] = 0.01 * 0.5 ** (step // 4)
        (first if step < 10 else second).step()
        np.testing.assert_allclose(theta, weight.detach().numpy(), rtol=1e-12, atol=1e-13)


def torch_rates(make: Any, rate: float, steps: int) -> list[float]:
    """The rates of PyTorch's scheduler, step by step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = make(optimizer)
    found: list[float] = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


SCHEDULERS: dict[str, tuple[Any, Any]] = {
    "polynomial": (
        polynomial(0.4, epochs=5),
        lambda one: torch.optim.lr_scheduler.PolynomialLR(one, total_iters=35, power=1.0),
    ),
    "polynomial, square root": (
        polynomial(0.4, epochs=5, power=0.5),
        lambda one: torch.optim.lr_scheduler.PolynomialLR(one, total_iters=35, power=0.5),
    ),
    "multistep": (
        multistep(0.4, [2, 4.0, 5]),
        lambda one: torch.optim.lr_scheduler.MultiStepLR(one, milestones=[14, 28, 35]),
    ),
    "multistep, other factor": (
        multistep(0.4, [3], factor=0.5),
        lambda one: torch.optim.lr_scheduler.MultiStepLR(one, milestones=[21], gamma=0.5),
    ),
    "warm-up": (
        warmup(0.4, epochs=3, start=0.25),
        lambda one: torch.optim.lr_scheduler.LinearLR(one, start_factor=0.25, total_iters=21),
    ),
    "warm-up of a decay": (
        warmup(polynomial(0.4, epochs=6, power=2.0), epochs=3),
        lambda one: torch.optim.lr_scheduler.ChainedScheduler(
            [
                torch.optim.lr_scheduler.LinearLR(one, start_factor=0.1, total_iters=21),
                torch.optim.lr_scheduler.PolynomialLR(one, total_iters=42, power=2.0),
            ]
        ),
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_within_epochs_are_those_of_pytorchs_schedulers(name: str) -> None:
    """Seven steps an epoch, as MNIST has at a batch of 8192."""
    rate, make = SCHEDULERS[name]
    found = [rate(step / 7) for step in range(45)]
    np.testing.assert_allclose(found, torch_rates(make, 0.4, 45), rtol=1e-9, atol=1e-12)
