"""Predict how long untrained points learn: a Student process over their nodes' staleness.

How many epochs a method takes depends on which versions of weights its steps read, of which the
mean staleness of each node tells most; a run in mode "sleep" gives it exactly. So the logarithm of
the epochs is taken for a Gaussian process over log(1 + staleness), node by node, with a flat mean
and a variance of unknown size, which makes predictions Student's t. Lengths and shares of
noise are mixed by how likely each makes what is known.

Sources: Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, Sections 2.7 (flat
mean) and 5.2 (weights); Gelman et al., "Bayesian Data Analysis", 3rd edition, Section 3.3
(scaled inverse chi-squared prior of a variance).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from ampsim.calibration.least_squares import student, student_quantile

PRIOR_SPREAD: Final = 0.4
"""Standard deviation of the logarithm of epochs before anything is known (chosen: a method takes
half as many or twice as many within two of them, as in the paper's Table 1)."""

_PRIOR_FREEDOM: Final = 2  # known points that it counts for (chosen: three known ones outweigh it)

LENGTHS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths tried, times the median distance of all points."""

NOISES: Final = (0.01, 0.1, 0.5)
"""Shares tried that chance has in the variance, which neighbours do not tell."""

DIGITS: Final = 9
"""Of a prediction's logarithms that are told, so that it is the same with other kernels of linear
algebra, whose last digits differ (chosen)."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A prediction of the logarithm of epochs at a point: Student's t."""

    mean: float
    spread: float = 0.0  # its scale; 0 where the point is known
    freedom: int = _PRIOR_FREEDOM  # degrees of it

    def interval(self, covered: float) -> tuple[float, float]:
        """The ends of the logarithm."""
        margin = self.spread * _quantile((1 + covered) / 2, self.freedom)
        return self.mean - margin, self.mean + margin


_quantile: Final = lru_cache(maxsize=1024)(student_quantile)


def probability_below(gap: float, spread: float, freedom: int) -> float:
    """The probability that Student's t of that spread and freedom around `gap` is below 0.

    >>> probability_below(0.0, 1.0, 3), probability_below(1.0, 0.0, 3)
    (0.5, 0.0)
    """
    if not spread:
        return 0.5 if gap == 0 else float(gap < 0)
    tail = 1 - student(abs(gap) / spread, freedom)
    return tail if gap >= 0 else 1 - tail


class Process:
    """Points of one method, at `places`, log(1 + staleness) of each node, (points, nodes).

    Of those `known`, by their place, `values` are the logarithms of epochs. Points are alike over a
    `length`, and `noise` is the share of chance in the variance.
    """

    def __init__(
        self, places: np.ndarray, known: Sequence[int], values: Sequence[float], length: float,
        noise: float,
    ) -> None:  # fmt: skip
        """Solve for mean and variance, and how likely they make what is known."""
        self._places, self._known, self._length, self._noise = places, list(known), length, noise
        self.freedom, self.likelihood = _PRIOR_FREEDOM, 0.0
        if not known:
            return
        alike = self._alike(self._known, self._known) + noise * np.eye(len(known))
        self._inverse, ones = np.linalg.inv(alike), np.ones(len(known))
        self._of_ones = self._inverse @ ones
        self._certain = float(ones @ self._of_ones)
        self._mean = float(np.array(values) @ self._of_ones) / self._certain
        left = np.array(values) - self._mean
        self._of_left = self._inverse @ left
        square = _PRIOR_FREEDOM * PRIOR_SPREAD**2 + float(left @ self._of_left)
        self.freedom = _PRIOR_FREEDOM + len(known) - 1
        self._scale_2 = square / self.freedom
        size = float(np.linalg.slogdet(self._inverse)[1])
        self.likelihood = (size - math.log(self._certain) - self.freedom * math.log(square)) / 2

    def guesses(self, at: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Predict means and spreads of points; of known ones, as if they were another draw."""
        if not self._known:
            return np.zeros(len(at)), np.full(len(at), PRIOR_SPREAD)
        middles = self._mean + self._alike(at, self._known) @ self._of_left
        return middles, np.sqrt(self._scale_2 * np.maximum(self.variances(at), self._noise))

    def told(self, by: Sequence[int], of: Sequence[int]) -> np.ndarray:
        """Return the share of the variance of points `of` that knowing `by` removes, (by, of)."""
        return self._left(by, of) ** 2 / self.variances(by)[:, None] / self.variances(of)[None, :]

    def variances(self, at: Sequence[int]) -> np.ndarray:
        """Return the variance of points that is left, over that of all."""
        return np.diag(self._left(at, at)) + self._noise

    def _left(self, first: Sequence[int], second: Sequence[int]) -> np.ndarray:
        """Covariance that is left, with what the unknown mean adds, over the variance."""
        alike = self._alike(first, second)
        if not self._known:
            return alike
        one, two = self._alike(first, self._known), self._alike(second, self._known)
        unsaid = np.outer(1 - one @ self._of_ones, 1 - two @ self._of_ones)
        return alike - one @ self._inverse @ two.T + unsaid / self._certain

    def _alike(self, first: Sequence[int], second: Sequence[int]) -> np.ndarray:
        apart_2 = _apart_2(self._places[list(first)], self._places[list(second)])
        return np.exp(-apart_2 / (2 * self._length**2))


def _apart_2(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Squares of the distances of two lists of places."""
    lengths = (one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1)[None, :]
    return np.maximum(lengths - 2 * one @ two.T, 0.0)


class Predictor:
    """Processes of all lengths and noises, weighted by how likely each makes what is known."""

    def __init__(self, places: np.ndarray, known: Sequence[int], values: Sequence[float]) -> None:
        """Weigh the processes."""
        self._places, self._values = places, dict(zip(known, values, strict=True))
        apart = np.sqrt(_apart_2(places, places))
        is_apart = apart > 1e-6  # below it there is rounding
        usual = float(np.median(apart[is_apart])) if is_apart.any() else 1.0
        pairs = itertools.product(LENGTHS, NOISES)
        self._all = [Process(places, known, values, times * usual, noise) for times, noise in pairs]
        likely = np.array([one.likelihood for one in self._all])
        weights = np.exp(likely - likely.max())
        self._weights = weights / weights.sum()

    def guesses(self, at: Sequence[int]) -> list[Guess]:
        """Predict points by mean and variance of the mixture; epochs are whole numbers.

        Where all known points took as many, what a count hides has the variance of what lies evenly
        between it and the next.
        """
        of_each = [one.guesses(at) for one in self._all]
        means, spreads = map(np.array, zip(*of_each, strict=True))
        middles = self._weights @ means
        spread_2 = self._weights @ (spreads**2 + (means - middles) ** 2)
        spread_2 += np.log1p(np.exp(-np.maximum(middles, 0.0))) ** 2 / 12
        told = np.sqrt(spread_2).round(DIGITS).tolist()
        pairs = zip(middles.round(DIGITS).tolist(), told, strict=True)
        return [Guess(mean, spread, self._all[0].freedom) for mean, spread in pairs]

    def told(self, by: Sequence[int], of: Sequence[int]) -> np.ndarray:
        """See `Process.told`; the mean of all."""
        return np.tensordot(self._weights, [one.told(by, of) for one in self._all], axes=1)

    def without(self, place: int) -> Predictor:
        """A predictor that knows one point less."""
        left = {known: value for known, value in self._values.items() if known != place}
        return Predictor(self._places, [*left], [*left.values()])
