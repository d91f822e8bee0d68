"""Adam and Adagrad scale each parameter's step by its gradients so far.

Source of Adam: D. Kingma and J. Ba, "Adam: a method for stochastic optimization", 2014, Algorithm
1, with epsilon where `torch.optim.Adam` has it:

    m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
    theta <- theta - rate (m / c1) / (sqrt(v / c2) + epsilon)          c = 1 - beta^count

The state keeps the sums M = m / (1 - beta1) and V = v / (1 - beta2) instead of the means. All
scaling then folds into two scalars, which saves four of fourteen passes over the vector.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ampsim.constant import constant
from ampsim.ir.work import Calls
from ampsim.optim.base import (
    LearningRate,
    Optimizer,
    State,
    Vector,
    check_alike,
    decay_rate,
    positive,
    zeros,
)
from ampsim.optim.learning_rate import as_schedule


def adam(
    rate: float | LearningRate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Gradient descent with each parameter's step scaled by its gradients' running size.

    Args:
        rate: learning rate, or a function of the epoch.
        beta1: what of the mean gradient remains after a step, from 0 to below 1.
        beta2: the same of the mean squared gradient.
        epsilon: added to the root of the mean square.
        weight_decay: times the weights is added to the gradient, before all else.

    Raises:
        OptionError: an argument is out of its range.
    """
    update = partial(
        _update,
        beta1=decay_rate("adam: beta1", beta1, usual=0.9),
        beta2=decay_rate("adam: beta2", beta2, usual=0.999),
        epsilon=positive("adam: epsilon", epsilon, usual=1e-8),
    )
    plain = Optimizer(
        "adam", as_schedule(rate), _init, update, is_elementwise=True, scaling="sqrt",
        calls=Calls(10, 24, functions=1),
    )  # fmt: skip
    return plain.with_decay(weight_decay)


def _init(theta: Vector) -> State:
    """Steps so far, M and V."""
    return 0, zeros(theta), zeros(theta)


def _update(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    count = state[0] + 1
    outs = (state[1], state[2], gradient) if in_place else (None, None, None)
    gradient_sum = np.multiply(state[1], constant(beta1, theta.dtype), out=outs[0])
    gradient_sum += gradient
    square_sum = np.multiply(state[2], constant(beta2, theta.dtype), out=outs[1])
    work = np.square(gradient, out=outs[2])
    square_sum += work

    # sqrt(v / c2) + epsilon = scale * (sqrt(V) + epsilon / scale)
    scale = math.sqrt((1 - beta2) / (1 - beta2**count))
    step = float(rate) * (1 - beta1) / (1 - beta1**count) / scale
    np.sqrt(square_sum, out=work)
    work += epsilon / scale
    np.divide(gradient_sum, work, out=work)
    work *= step
    np.subtract(theta, work, out=work)
    return work, (count, gradient_sum, square_sum)


def adagrad(rate: float | LearningRate, start: float = 0.1) -> Optimizer:
    """Gradient descent with each parameter's step scaled by all of its gradients so far.

    Source: J. Duchi, E. Hazan and Y. Singer, "Adaptive subgradient methods for online learning and
    stochastic optimization", 2011, with a diagonal matrix: sum <- sum + gradient^2 and
    theta <- theta - rate * gradient / sqrt(sum). The sum starts at `start` and not at 0, as
    TensorFlow's AdagradOptimizer has it, where it is called `initial_accumulator_value` and is 0.1.
    PyTorch's adds 1e-10 to the root; here a start above 0 keeps it from being 0.

    Args:
        rate: learning rate, or a function of the epoch.
        start: of the sum of squared gradients.

    Raises:
        OptionError: an argument is out of its range.
    """
    init = partial(_adagrad_init, start=positive("adagrad: start", start, usual=0.1))
    return Optimizer(
        "adagrad", as_schedule(rate), init, _adagrad_update, is_elementwise=True, scaling="sqrt",
        calls=Calls(6, 15, functions=1),
    )  # fmt: skip


def _adagrad_init(theta: Vector, *, start: float) -> State:
    return (np.full(theta.shape, start, theta.dtype),)


def _adagrad_update(
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
