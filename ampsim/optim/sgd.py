"""Stochastic gradient descent.

Source: theta <- theta - rate * gradient, as `torch.optim.SGD`.
"""

from __future__ import annotations

import numpy as np

from ampsim.optim.base import LearningRate, Optimizer, State, Vector, check_alike
from ampsim.optim.learning_rate import as_schedule


def sgd(rate: float | LearningRate) -> Optimizer:
    """Plain gradient descent.

    Raises:
        OptionError: the rate is no finite number above 0.
    """
    return Optimizer(
        "sgd", as_schedule(rate), _init, _update, is_elementwise=True, scaling="linear"
    )


def _init(theta: Vector) -> State:
    return ()


def _update(
    gradient: Vector, state: State, theta: Vector, rate: float, in_place: bool = False
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    new_theta = np.multiply(gradient, float(rate), out=gradient if in_place else None)
    np.subtract(theta, new_theta, out=new_theta)
    return new_theta, state
