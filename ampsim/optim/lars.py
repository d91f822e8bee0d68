"""LARS: a rate of its own for each tensor, by how large its weights and its gradient are.

Source: Y. You, I. Gitman and B. Ginsburg, "Large batch training of convolutional networks", 2017
(arXiv 1708.03888), Algorithm 1, for each tensor w with its gradient g:

    local <- trust * |w| / (|g| + decay * |w|)
    velocity <- momentum * velocity + rate * local * (g + decay * w)        w <- w - velocity

The paper says nothing of tensors of one axis, such as biases, or of norms of 0. As usual, the first
are stepped with momentum alone: local is 1, and there is no decay. Where a norm is 0, local is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from ampsim.ir.work import Calls
from ampsim.optim.base import (
    Init,
    LearningRate,
    Optimizer,
    State,
    Update,
    Vector,
    check_alike,
    decay_rate,
    positive,
    strength,
    velocity_at_rest,
)
from ampsim.optim.learning_rate import as_schedule


def lars(
    rate: float | LearningRate,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    trust: float = 0.001,
) -> Optimizer:
    """Gradient descent with momentum, each tensor's step as long as its weights allow.

    Args:
        rate: learning rate, or a function of the epoch, of all tensors.
        momentum: what of the velocity remains after a step, from 0 to below 1.
        weight_decay: times the weights is added to the gradient.
        trust: length of a step over that of the weights, at a rate of 1 and without momentum.

    Raises:
        OptionError: an argument is out of its range.
    """
    options = _Options(
        momentum=decay_rate("momentum", momentum, usual=0.9),
        decay=strength(weight_decay),
        trust=positive("lars: trust", trust, usual=0.001),
    )
    return Optimizer(
        "lars",
        as_schedule(rate),
        velocity_at_rest,
        partial(_update, options=options, tensors=None),
        scaling="linear",
        touches_all=True,
        calls=Calls(8, 17),
        by_tensor=partial(_of_tensors, options=options),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    momentum: float
    decay: float
    trust: float


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor's place in the vector; it may have a rate of its own."""

    place: slice
    is_adapted: bool


def _of_tensors(shapes: Sequence[tuple[int, ...]], *, options: _Options) -> tuple[Init, Update]:
    """The functions for a vector of tensors of these shapes, one after the other."""
    edges = pairwise(accumulate((math.prod(shape) for shape in shapes), initial=0))
    tensors = tuple(
        _Tensor(slice(*edge), len(shape) > 1) for edge, shape in zip(edges, shapes, strict=True)
    )
    return velocity_at_rest, partial(_update, options=options, tensors=tensors)


def _update(
    gradient: Vector,
    state: State,
    theta: Vector,
    rate: float,
    *,
    options: _Options,
    tensors: tuple[_Tensor, ...] | None,
) -> tuple[Vector, State]:
    check_alike(gradient, theta)
    velocity = state[0] * options.momentum
    for tensor in tensors or (_Tensor(slice(None), is_adapted=True),):
        part, weights = gradient[tensor.place], theta[tensor.place]
        if not tensor.is_adapted:
            velocity[tensor.place] += float(rate) * part
            continue
        step = float(rate) * _local(weights, part, options)
        velocity[tensor.place] += step * (part + options.decay * weights)
    return theta - velocity, (velocity,)


def _local(weights: Vector, gradient: Vector, options: _Options) -> float:
    length, slope = (math.sqrt(float(np.dot(one, one))) for one in (weights, gradient))
    if not length or not slope:
        return 1.0
    return options.trust * length / (slope + options.decay * length)
