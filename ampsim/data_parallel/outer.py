"""The outer optimizer of DiLoCo: gradient descent with Nesterov momentum.

Source: velocity <- momentum * velocity + gradient; theta <- theta - rate * (gradient + momentum *
velocity), as `torch.optim.SGD(nesterov=True)`. The velocity starts at 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ampsim.data_parallel.solver import Vector
from ampsim.optim import Optimizer, constant


def nesterov(rate: float, momentum: float) -> Optimizer:
    """Gradient descent that looks ahead along its velocity."""
    return Optimizer("nesterov", constant(rate), _init, partial(_update, momentum=momentum))


def _init(theta: Vector) -> tuple[Vector]:
    return (np.zeros(theta.shape, theta.dtype),)


def _update(
    gradient: Vector, state: tuple[Vector], theta: Vector, rate: float, *, momentum: float
) -> tuple[Vector, tuple[Vector]]:
    velocity = momentum * state[0] + gradient
    return theta - rate * (gradient + momentum * velocity), (velocity,)
