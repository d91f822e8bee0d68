"""Gradient descent with momentum.

Source: velocity <- momentum * velocity + gradient; theta <- theta - rate * velocity, as
`torch.optim.SGD(momentum=...)` without dampening. The velocity starts at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ampsim.optim.base import LearningRate, Optimizer, State, Vector, check_alike, decay_rate, zeros
from ampsim.optim.learning_rate import as_schedule
from ampsim.optim.weight_decay import strength, with_decay


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
    return along_velocity("momentum", _update, rate, momentum, weight_decay)


def along_velocity(
    name: str,
    update: Callable[..., tuple[Vector, State]],
    rate: float | LearningRate,
    momentum: float,
    weight_decay: float,
) -> Optimizer:
    """An optimizer whose state is a velocity.

    Args:
        name: of the optimizer.
        update: as of `Optimizer`, and its keyword `momentum`.
        rate: as of `momentum`, like the others.
        momentum: what remains.
        weight_decay: times the weights.

    Raises:
        OptionError: as of `momentum`.
    """
    kept, decay = decay_rate("momentum", momentum, usual=0.9), strength(weight_decay)
    return Optimizer(
        name,
        as_schedule(rate),
        _init,
        with_decay(partial(update, momentum=kept), decay),
        is_elementwise=True,
        scaling="linear",
        touches_all=bool(decay),
    )


def _init(theta: Vector) -> State:
    return (zeros(theta),)


def _update(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    in_place: bool = False,
    *,
    momentum: float,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    velocity = np.multiply(state[0], momentum, out=state[0] if in_place else None)
    velocity += gradient
    new_theta = np.multiply(velocity, float(rate), out=gradient if in_place else None)
    np.subtract(theta, new_theta, out=new_theta)
    return new_theta, (velocity,)
