"""What ranks are together: a group inside another solver, and a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from ampsim.data_parallel.parameters import weighted_mean
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.solver import Vector
from ampsim.trace import Cause


class Gathered(Protocol):
    """What ranks are together, where they are a group; it is told when each may go on."""

    def take(self, place: int, gradient: Vector) -> None:
        """Have the mean gradient of the vector at `place`."""
        ...

    def met(self, rank: Rank, cause: Cause) -> None:
        """Know that a rank has what it met others for."""
        ...


def mean_of(ranks: Sequence[Rank], count: int) -> list[Vector]:
    """The mean of all ranks' weights, for each of so many vectors; one vector that all have."""
    thetas: list[Vector] = []
    for place in range(count):
        vectors = [rank.theta(place) for rank in ranks]
        alike = all(one is vectors[0] for one in vectors)
        mean = vectors[0] if alike else weighted_mean(vectors, [1] * len(vectors))
        assert mean is not None
        thetas.append(mean)
    return thetas


def distance_of(rank: Rank, thetas: Sequence[Vector]) -> float:
    """How far a rank's weights are from others, of all vectors together."""
    square = 0.0
    for place, theta in enumerate(thetas):
        apart = rank.theta(place) - theta
        square += float(apart.dot(apart))
    return math.sqrt(square)
