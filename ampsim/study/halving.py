"""Which learning rate is best for each row, with the same number of trials: successive halving.

Every row begins with the same number of rates around its own, each a power of two times it. All are
tried with one seed. The better half is tried with the next seed, the better half of these with a
third, until one is left; a rate is as good as the median of its trials. So a row's luck with one
seed decides no more than its first half, and each row gets as many trials as any other.

Source: K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization" (2016), Algorithm 1, with seeds as the resource of which what is left gets more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeAlias

from ampsim.errors import OptionError
from ampsim.options import require_count
from ampsim.shown import short

STEP: Final = 2.0
"""Between neighbouring rates (chosen: the coarsest grid that is usual for learning rates)."""

BUDGET: Final = 8
"""Rates that a row tries unless told otherwise (chosen: from a sixteenth to sixteen times)."""

BUDGET_MAX: Final = 64
"""Most rates (chosen: the outermost are then 4e9 times apart from the middle)."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a trial gave; the smaller is better.

    Args:
        time_s: to the target; infinite if it was not reached.
        shortfall: how bad the best validation was, where that decides; infinite if unknown.
    """

    time_s: float
    shortfall: float


@dataclass(slots=True)
class Candidate:
    """A rate of a row, and how its trials went.

    Args:
        factor: times the row's own rate.
    """

    factor: float
    scores: list[Score] = field(default_factory=list[Score])

    @property
    def rank(self) -> tuple[float, float]:
        """Median time to the target, then median shortfall."""
        return (
            median(one.time_s for one in self.scores),
            median(one.shortfall for one in self.scores),
        )


Trial: TypeAlias = tuple[int, float, int]
"""A row, a factor of its rate, and which seed for trials, counted from 0."""

TryAll: TypeAlias = Callable[[Sequence[Trial]], Mapping[Trial, Score]]
"""Makes trials; those that it does not give were lost."""


def require_budget(budget: object) -> int:
    """Return how many rates each row tries.

    Raises:
        OptionError: it is no whole number from 2 to `BUDGET_MAX`.
    """
    try:
        found = require_count("tune", budget, BUDGET_MAX)
    except OptionError:
        found = 0
    if found < 2:
        raise OptionError(
            f"tune must be a whole number of learning rates from 2 to {BUDGET_MAX}, got "
            f"{short(budget)}; try {BUDGET}, or leave tuning out"
        )
    return found


def factors(budget: int) -> list[float]:
    """Powers of two from the middle outwards, upwards first.

    >>> factors(5)
    [1.0, 2.0, 0.5, 4.0, 0.25]
    """
    return [STEP ** ((place + 1) // 2 * (1 if place % 2 else -1)) for place in range(budget)]


def trials_of(budget: int) -> int:
    """How many trials a row gets.

    >>> trials_of(8), trials_of(4), trials_of(3)
    (14, 6, 5)
    """
    left, trials = budget, 0
    while left > 1:
        trials += left
        left = math.ceil(left / 2)
    return trials


def halve(rows: int, budget: int, try_all: TryAll) -> list[list[Candidate]]:
    """Try rates until each row has one left.

    Args:
        rows: how many.
        budget: rates of each.
        try_all: makes the trials of one round, of all rows.

    Returns:
        For each row its rates, the one that is left first, then those that went last.
    """
    alive = [[Candidate(factor) for factor in factors(budget)] for _ in range(rows)]
    gone: list[list[Candidate]] = [[] for _ in range(rows)]
    seed = 0
    while any(len(one) > 1 for one in alive):
        wanted = [
            (row, one.factor, seed) for row, of in enumerate(alive) if len(of) > 1 for one in of
        ]
        scores = try_all(wanted)
        for row, candidates in enumerate(alive):
            if len(candidates) > 1:
                kept, left = _better_half(row, seed, candidates, scores)
                alive[row], gone[row] = kept, left + gone[row]
        seed += 1
    return [kept + left for kept, left in zip(alive, gone, strict=True)]


def _better_half(
    row: int, seed: int, candidates: list[Candidate], scores: Mapping[Trial, Score]
) -> tuple[list[Candidate], list[Candidate]]:
    """Note the scores; of rates that are alike the one nearest to the row's own is better."""
    for one in candidates:
        lost = Score(math.inf, math.inf)
        one.scores.append(scores.get((row, one.factor, seed), lost))
    ordered = sorted(candidates, key=lambda one: (*one.rank, abs(math.log(one.factor))))
    half = math.ceil(len(ordered) / 2)
    return ordered[:half], ordered[half:]
