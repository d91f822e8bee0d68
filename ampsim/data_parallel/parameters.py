"""A set of a model's parameters with an optimizer of its own: a centre's, or a rank's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ampsim.errors import LOWER_RATE
from ampsim.ir import ParameterizedNode
from ampsim.optim import Optimizer, Vector


class Parameters:
    """Vectors, one for each node that learns, and what the optimizer remembers of each.

    A step replaces a vector and never writes it, so that to hold one is to hold a version.

    Args:
        names: of the nodes, for messages to people.
        thetas: the vectors to begin with.
        optimizer: makes the steps.
        shapes: of the tensors in each vector, for an optimizer that takes them one by one.

    Attributes:
        thetas: the vectors.
        versions: how many steps each has made.
        optimizer: makes the steps.
    """

    def __init__(
        self,
        names: Sequence[str],
        thetas: Sequence[Vector],
        optimizer: Optimizer,
        shapes: Sequence[Sequence[tuple[int, ...]]] | None = None,
    ) -> None:
        self._names = names
        self.thetas = list(thetas)
        self.versions = [0] * len(self.thetas)
        self.optimizer = optimizer
        self._methods = [optimizer] * len(self.thetas)
        if shapes is not None:
            self._methods = [optimizer.of_tensors(one) for one in shapes]
        self._states: list[tuple[Any, ...] | None] = [None] * len(self.thetas)

    def step(
        self, place: int, rate: float, now_s: float, gradient: Vector, theta: Vector
    ) -> Vector:
        """Return one vector after a step from `theta`; `gradient` may be written over.

        Raises:
            DivergenceError: a weight would stop being finite.
        """

        def told() -> str:
            return (
                f"weights of {self._names[place]} stopped being finite in update "
                f"{self.versions[place] + 1} at {now_s:.9g} s; {LOWER_RATE}"
            )

        state, method = self._states[place], self._methods[place]
        if state is None:
            state = method.init(theta)
        theta, state = method.step(gradient, state, theta, rate, told)
        self._states[place] = state
        return theta


def shapes_of(nodes: Sequence[ParameterizedNode]) -> list[list[tuple[int, ...]]]:
    """For each node, the shapes of the tensors in its vector."""
    return [list(node.parameter_shapes.values()) for node in nodes]


def weighted_mean(vectors: Sequence[Vector | None], weights: Sequence[float]) -> Vector | None:
    """Σ weight · vector / Σ weight, added in their order; a missing vector is 0.

    None where all are missing. What has all the weight is given as it is.

    >>> import numpy as np
    >>> weighted_mean([np.array([1.0]), None, np.array([4.0])], [1, 0, 2]).tolist()
    [3.0]
    """
    total = math.fsum(weights)
    mean: Vector | None = None
    for vector, weight in zip(vectors, weights, strict=True):
        if vector is None or not weight:
            continue
        share = weight / total
        part = vector if share == 1.0 else vector * vector.dtype.type(share)
        if mean is None:
            mean = part
        else:
            mean += part
    return mean
