"""Gradient descent with Nesterov's momentum.

Source: velocity <- momentum * velocity + gradient; theta <- theta - rate * (gradient + momentum *
velocity), as `torch.optim.SGD(nesterov=True)` (Sutskever et al., "On the importance of
initialization and momentum in deep learning", 2013). The velocity starts at 0.
"""

from __future__ import annotations

import numpy as np

from ampsim.optim.base import LearningRate, Optimizer, State, Vector, check_alike
from ampsim.optim.momentum import along_velocity


def nesterov(
    rate: float | LearningRate, momentum: float = 0.9, weight_decay: float = 0.0
) -> Optimizer:
    """Gradient descent along a running sum of gradients, seen one step ahead.

    Args:
        rate: learning rate, or a function of the epoch.
        momentum: what of the velocity remains after a step, from 0 (plain SGD) to below 1.
        weight_decay: times the weights is added to the gradient.

    Raises:
        OptionError: an argument is out of its range.
    """
    return along_velocity("nesterov", _update, rate, momentum, weight_decay)


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
    ahead = velocity * momentum
    new_theta = np.add(gradient, ahead, out=gradient if in_place else ahead)
    new_theta *= float(rate)
    np.subtract(theta, new_theta, out=new_theta)
    return new_theta, (velocity,)
