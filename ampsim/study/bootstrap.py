"""The bootstrap over seeds: what medians other seeds might have given.

Source: B. Efron, "Bootstrap methods: another look at the jackknife" (1979). Seeds are drawn again,
with replacement, as many as there are; what is drawn of one row is drawn of all, as all rows saw
the same data, first weights and order under one seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ampsim.rng import stream

EXACT_UP_TO: Final = 7
"""Seeds up to which every draw is counted, with its probability: 1716 of them (chosen)."""

DRAWS: Final = 4000
"""Draws where there are more seeds (chosen: a probability of 5 % is then known to 0.35 %)."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws of seeds with replacement.

    Attributes:
        counts: how often each seed was drawn, (draws, seeds).
        weights: the probability of each draw, (draws,); they add up to 1.
    """

    counts: np.ndarray
    weights: np.ndarray

    def medians(self, values: Sequence[float]) -> np.ndarray:
        """The median of each draw, (draws,).

        Args:
            values: one for each seed; infinite for a run that did not get there.
        """
        found = np.asarray(values, dtype=float)
        order = np.argsort(found, kind="stable")
        ordered, drawn = found[order], np.cumsum(self.counts[:, order], axis=1)
        seeds = len(found)
        lower = np.sum(drawn < (seeds + 1) // 2, axis=1)
        upper = np.sum(drawn < seeds // 2 + 1, axis=1)
        return (ordered[lower] + ordered[upper]) / 2

    def probability(self, is_so: np.ndarray) -> float:
        """The probability of the draws of which something is so, (draws,) truth values."""
        return min(float(self.weights[is_so].sum()), 1.0)

    def interval(self, values: np.ndarray, covered: float) -> tuple[float, float]:
        """The percentile interval of a number that each draw gives, (draws,).

        Args:
            values: the number; may be infinite.
            covered: the probability between its ends.
        """
        order = np.argsort(values, kind="stable")
        below = np.cumsum(self.weights[order])
        ends = ((1 - covered) / 2, (1 + covered) / 2)
        places = np.minimum(np.searchsorted(below, ends), len(order) - 1)
        low, high = values[order][places]
        return float(low), float(high)


@lru_cache(maxsize=8)
def draws_of(seeds: int) -> Draws:
    """All draws of so many seeds, or `DRAWS` of them, the same each time."""
    assert seeds >= 1, f"there must be a seed to draw, got {seeds}"
    if seeds > EXACT_UP_TO:
        counts = stream(0, f"bootstrap of {seeds} seeds").multinomial(
            seeds, [1 / seeds] * seeds, size=DRAWS
        )
        return Draws(counts, np.full(DRAWS, 1 / DRAWS))
    counts = np.array(list(_shares(seeds, seeds)))
    ways = [math.factorial(seeds) / math.prod(map(math.factorial, one)) for one in counts.tolist()]
    return Draws(counts, np.array(ways) / seeds**seeds)


def _shares(drawn: int, seeds: int) -> Iterator[tuple[int, ...]]:
    """Every way in which so many draws fall on so many seeds.

    >>> list(_shares(2, 2))
    [(0, 2), (1, 1), (2, 0)]
    """
    if seeds == 1:
        yield (drawn,)
        return
    for first in range(drawn + 1):
        for rest in _shares(drawn - first, seeds - 1):
            yield (first, *rest)
