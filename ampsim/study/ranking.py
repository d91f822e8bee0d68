"""Which row is first, and how sure that is: pure functions on times to the target.

Rows are run with the same seeds, and a seed gives all of them the same data, first weights and
order. So seeds are drawn again for all rows together (`ampsim.study.bootstrap`), and the order of
two rows flips in a draw if the median of the first is not below that of the second. A run that
never arrives has an infinite time, and medians are order statistics, which bear that.

No number of draws makes few seeds many: were the order of two rows that of a tossed coin, all n
seeds would still agree with a probability of 2^-n on one given side. No flip is called less likely.

A row differs from the best if it flips with less than half of 1 - `sure`: a difference may be on
either side. Where several rows are compared with the best, the levels are Holm's (1979): the rank
of the clearest is taken as one of so many chances, that of the next as one of one fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.study.bootstrap import Draws, draws_of

SURE: Final = 0.9
"""How sure a call is unless something else is asked for: of true ties, one in ten is called."""

INTERVAL_FROM: Final = 5
"""Seeds from which a speed-up has an interval (chosen: with four, smallest to largest covers a
median with less than 90 %)."""

COLUMNS: Final = (
    "order_flip_probability", "is_tied_with_best", "speed_up_low", "speed_up_high",
)  # fmt: skip
"""What the table says of the rank of a row."""

Times: TypeAlias = Mapping[int, float]
"""Time to the target by seed; infinite for a run that never arrived."""


@dataclass(frozen=True, slots=True)
class Sureness:
    """How sure a call must be.

    Args:
        sure: probability with which a row that is as good as the best is not called worse.
        looks: how often the seeds are looked at, with a chance of a wrong call each time.
    """

    sure: float = SURE
    looks: int = 1

    @property
    def tail(self) -> float:
        """The probability of a flip below which two rows differ."""
        return (1 - self.sure) / 2 / self.looks


@dataclass(frozen=True, slots=True)
class Ranking:
    """How rows compare with the best of them; unknown is None.

    Args:
        best: place of the row with the smallest median.
        flips: for each row, the probability that with other seeds it is not behind the best; None
            of the best itself.
        ties: for each row, whether it may be as good as the best; of the best, whether any is.
        speed_ups: for each row, the interval of the first row's median over its own.
    """

    best: int
    flips: tuple[float | None, ...]
    ties: tuple[bool, ...]
    speed_ups: tuple[tuple[float, float] | None, ...]

    @property
    def is_called(self) -> bool:
        """Whether one row is first, and no other ties with it."""
        return not any(self.ties)


def rank(rows: Sequence[Times], sureness: Sureness | None = None) -> Ranking | None:
    """Compare each row with the best, over the seeds that all rows have.

    Args:
        rows: times of each row.
        sureness: how sure a call must be.

    Returns:
        None where nothing can be said: of one row, of fewer than two seeds, or where no row
        arrives with at least half of them.

    >>> rank([{0: 3.0, 1: 4.0}, {0: 1.0, 1: 1.5}]).flips
    (0.25, None)
    """
    if len(rows) < 2:
        return None
    seeds = [seed for seed in sorted(rows[0]) if all(seed in row for row in rows)]
    if len(seeds) < 2:
        return None
    times = [[row[seed] for seed in seeds] for row in rows]
    middles = [median(one) for one in times]
    best = min(range(len(rows)), key=middles.__getitem__)
    if not math.isfinite(middles[best]):
        return None
    draws = draws_of(len(seeds))
    drawn = [draws.medians(one) for one in times]
    flips = [
        None
        if place == best
        else 0.5
        if middles[place] == middles[best]
        else max(draws.probability(drawn[best] >= drawn[place]), coin(len(seeds)))
        for place in range(len(rows))
    ]
    ties = _ties(flips, (sureness or Sureness()).tail)
    intervals: list[tuple[float, float] | None] = [None] * len(rows)
    if len(seeds) >= INTERVAL_FROM:
        intervals[1:] = [_interval(draws, drawn[0], one) for one in drawn[1:]]
    return Ranking(best, tuple(flips), ties, tuple(intervals))


def coin(seeds: int) -> float:
    """The probability that a tossed coin shows one given side with every seed."""
    return 0.5**seeds


def seeds_needed(rows: int, sureness: Sureness | None = None) -> int:
    """The least number of seeds with which the first of so many rows can be told from all others.

    >>> seeds_needed(2), seeds_needed(3), seeds_needed(11)
    (5, 6, 8)
    """
    tail = (sureness or Sureness()).tail / max(rows - 1, 1)
    return math.ceil(-math.log2(tail))


def columns_of(ranking: Ranking | None, rows: int) -> list[dict[str, Any]]:
    """What the table says of the rank of each row; unknown is None."""
    if ranking is None:
        return [dict[str, Any].fromkeys(COLUMNS) for _ in range(rows)]
    return [
        {
            "order_flip_probability": flip,
            "is_tied_with_best": tied,
            "speed_up_low": None if ends is None else _finite(ends[0]),
            "speed_up_high": None if ends is None else _finite(ends[1]),
        }
        for flip, tied, ends in zip(ranking.flips, ranking.ties, ranking.speed_ups, strict=True)
    ]


def _ties(flips: Sequence[float | None], tail: float) -> tuple[bool, ...]:
    """Holm's step-down: the clearest difference first, until one is not clear enough."""
    others = sorted((flip, place) for place, flip in enumerate(flips) if flip is not None)
    ties = [True] * len(flips)
    for left, (flip, place) in zip(range(len(others), 0, -1), others, strict=True):
        if flip > tail / left:
            break
        ties[place] = False
    best = flips.index(None)
    ties[best] = any(tied for place, tied in enumerate(ties) if place != best)
    return tuple(ties)


def _interval(draws: Draws, first: np.ndarray, row: np.ndarray) -> tuple[float, float]:
    """The percentile interval of first over row; where neither arrives, the two are alike."""
    with np.errstate(invalid="ignore"):
        ratio = first / row
    return draws.interval(np.where(np.isnan(ratio), 1.0, ratio), SURE)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
