"""Time to target accuracy, over repeated runs (paper, Appendices B and C)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with an interval that covers it; all None where not even the median is known.

    Args:
        middle: the median over runs; None if half of the runs or more did not reach the target.
        low: lower end; None with fewer than two runs.
        high: upper end; None also where it is a run that did not reach the target.
        coverage: probability that the interval covers the true median; 0 without an interval.
    """

    middle: float | None
    low: float | None
    high: float | None
    coverage: float


def median_interval(values: Sequence[float], wanted: float = 0.9) -> Interval:
    """Return the median and a distribution-free interval of order statistics around it.

    The k-th smallest and k-th largest of n values cover the median of what they were drawn from
    with probability 1 − 2·P(Binomial(n, 1/2) < k). The largest k that still covers with
    `wanted` is taken, and k = 1, smallest to largest, where none does: 3 runs cover 75 %.

    Args:
        values: one a run; infinite for a run that did not get there.
        wanted: coverage aimed at.

    >>> median_interval([3.0, 1.0, 2.0])
    Interval(middle=2.0, low=1.0, high=3.0, coverage=0.75)
    >>> median_interval([1.0, math.inf, math.inf])
    Interval(middle=None, low=1.0, high=None, coverage=0.75)
    """
    if not values:
        return Interval(None, None, None, 0.0)
    ordered = sorted(values)
    middle = _finite(median(ordered))
    if len(ordered) == 1:
        return Interval(middle, None, None, 0.0)
    ranks = range(1, len(ordered) // 2 + 1)
    rank = max((k for k in ranks if _coverage(len(ordered), k) >= wanted), default=1)
    low, high = ordered[rank - 1], ordered[-rank]
    return Interval(middle, _finite(low), _finite(high), _coverage(len(ordered), rank))


def _coverage(count: int, rank: int) -> float:
    outside = sum(math.comb(count, below) for below in range(rank)) / 2**count
    return 1.0 - 2.0 * outside


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def time_by_formula(epochs: float, train: tuple[int, float], valid: tuple[int, float]) -> float:
    """Return seconds to target, epochs · (n_train / rate_train + n_valid / rate_valid).

    Args:
        epochs: median epochs to target.
        train: training items, and items per second of training.
        valid: validation items, and items per second of validation.

    Source: AMPNet, Appendix C.
    """
    return epochs * (train[0] / train[1] + valid[0] / valid[1])
