"""Gradient descent: plain, with momentum, and with Nesterov's.

Source: theta <- theta - rate * gradient, as `torch.optim.SGD`; with momentum, velocity <- momentum
* velocity + gradient and theta <- theta - rate * velocity, as `torch.optim.SGD(momentum=...)`
without dampening; with Nesterov's, theta <- theta - rate * (gradient + momentum * velocity), as
`torch.optim.SGD(nesterov=True)` (Sutskever et al., "On the importance of initialization and
momentum in deep learning", 2013). The velocity starts at 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ampsim.ir.work import Calls
from ampsim.optim.base import (
    LearningRate,
    Optimizer,
    State,
    Vector,
    check_alike,
    decay_rate,
    velocity_at_rest,
)
from ampsim.optim.learning_rate import as_schedule


def sgd(rate: float | LearningRate, weight_decay: float = 0.0) -> Optimizer:
    """Plain gradient descent.

    Args:
        rate: learning rate, or a function of the epoch.
        weight_decay: times the weights is added to the gradient.

    Raises:
        OptionError: an argument is out of its range.
    """
    plain = Optimizer(
        "sgd", as_schedule(rate), _init, _update, is_elementwise=True, scaling="linear"
    )
    return plain.with_decay(weight_decay)


def _init(theta: Vector) -> State:
    return ()


def _update(
    gradient: Vector, state: State, theta: Vector, rate: float, in_place: bool = False
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    new_theta = np.multiply(gradient, float(rate), out=gradient if in_place else None)
    np.subtract(theta, new_theta, out=new_theta)
    return new_theta, state


def momentum(
    rate: float | LearningRate, momentum: float = 0.9, weight_decay: float = 0.0
) -> Optimizer:
    """Gradient descent along a running sum of gradients.

    Args:
        rate: learning rate, or a function of the epoch.
        momentum: what of the velocity remains after a step, from 0 (plain SGD) to below 1.
        weight_decay: times the weights is added to the gradient.

    Raises:
        OptionError: an argument is out of its range.
    """
    return _with_velocity("momentum", rate, momentum, weight_decay)


def nesterov(
    rate: float | LearningRate, momentum: float = 0.9, weight_decay: float = 0.0
) -> Optimizer:
    """Gradient descent along a running sum of gradients, seen one step ahead.

    Args and Raises: as of `momentum`.
    """
    return _with_velocity("nesterov", rate, momentum, weight_decay)


def _with_velocity(
    name: str, rate: float | LearningRate, momentum: float, weight_decay: float
) -> Optimizer:
    kept = decay_rate("momentum", momentum, usual=0.9)
    update = partial(_along, momentum=kept, is_ahead=name == "nesterov")
    plain = Optimizer(
        name,
        as_schedule(rate),
        velocity_at_rest,
        update,
        is_elementwise=True,
        scaling="linear",
        calls=Calls(6, 15) if name == "nesterov" else Calls(4, 10),
    )
    return plain.with_decay(weight_decay)


def _along(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    momentum: float,
    is_ahead: bool,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    velocity = np.multiply(state[0], momentum, out=state[0] if in_place else None)
    velocity += gradient
    if is_ahead:
        ahead = velocity * momentum
        new_theta = np.add(gradient, ahead, out=gradient if in_place else ahead)
        new_theta *= float(rate)
    else:
        new_theta = np.multiply(velocity, float(rate), out=gradient if in_place else None)
    np.subtract(theta, new_theta, out=new_theta)
    return new_theta, (velocity,)
