"""Adagrad.

Source: J. Duchi, E. Hazan and Y. Singer, "Adaptive subgradient methods for online learning and
stochastic optimization", 2011, with a diagonal matrix:

    sum <- sum + gradient^2          theta <- theta - rate * gradient / sqrt(sum)

The sum starts at `start` and not at 0, as TensorFlow's AdagradOptimizer has it, where it is called
`initial_accumulator_value` and is 0.1. PyTorch's adds 1e-10 to the root; here a start above 0 keeps
it from being 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ampsim.optim.base import LearningRate, Optimizer, State, Vector, check_alike, positive
from ampsim.optim.learning_rate import as_schedule


def adagrad(rate: float | LearningRate, start: float = 0.1) -> Optimizer:
    """Gradient descent with each parameter's step scaled by all of its gradients so far.

    Args:
        rate: learning rate, or a function of the epoch.
        start: of the sum of squared gradients.

    Raises:
        OptionError: an argument is out of its range.
    """
    init = partial(_init, start=positive("adagrad: start", start, usual=0.1))
    return Optimizer(
        "adagrad", as_schedule(rate), init, _update, is_elementwise=True, scaling="sqrt", passes=15
    )


def _init(theta: Vector, *, start: float) -> State:
    return (np.full(theta.shape, start, theta.dtype),)


def _update(
    gradient: Vector, state: State, theta: Vector, rate: float, in_place: bool = False
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    work = np.square(gradient)
    square_sum = np.add(state[0], work, out=state[0] if in_place else None)
    np.sqrt(square_sum, out=work)
    step = np.multiply(gradient, float(rate), out=gradient if in_place else None)
    step /= work
    np.subtract(theta, step, out=step)
    return step, (square_sum,)
