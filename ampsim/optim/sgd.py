"""Stochastic gradient descent.

Source: theta <- theta - rate * gradient, as `torch.optim.SGD`.
"""

from __future__ import annotations

import numpy as np

from ampsim.optim.base import LearningRate, Optimizer, State, Vector, check_alike
from ampsim.optim.learning_rate import as_schedule
from ampsim.optim.weight_decay import strength, with_decay


def sgd(rate: float | LearningRate, weight_decay: float = 0.0) -> Optimizer:
    """Plain gradient descent.

    Args:
        rate: learning rate, or a function of the epoch.
        weight_decay: times the weights is added to the gradient.

    Raises:
        OptionError: an argument is out of its range.
    """
    decay = strength(weight_decay)
    return Optimizer(
        "sgd",
        as_schedule(rate),
        _init,
        with_decay(_update, decay),
        is_elementwise=True,
        scaling="linear",
        touches_all=bool(decay),
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
