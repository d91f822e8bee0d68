"""The order of rows, and how sure it is: a paired bootstrap over seeds.

Source: B. Efron, "Bootstrap methods: another look at the jackknife" (1979). Seeds are drawn again,
with replacement, as many as there are; what is drawn of one row is drawn of all, as all rows saw
the same data, first weights and order under one seed.

There are three answers. A row is *first* if it is sure that it is before all others. Rows *tie* if
the interval of the ratio of their times lies within 5 %. Else there are *too few seeds*, and it is
said how many would do. Who never arrives is behind, and ties with nobody.

The order of two rows flips in a draw if the median of the first is not below that of the second,
so also where neither arrives: were such draws left out, a quarter of rows that are alike, of which
half of the runs arrive, would be called. A run that never arrives has an infinite time, and medians
are order statistics, which bear that. A row that arrives with no seed is first in no draw. A run
that was lost may have taken any time, as long ones are lost more often: each end is as bad for what
is called as it can be.

No number of draws makes few seeds many: were the order of two rows that of a tossed coin, all n
seeds with which one arrives would still agree with a probability of 2^-n on one given side. No flip
is called less likely.

A row is behind the best if it flips with less than half of 1 - `sure`: a difference may be on
either side. Where several rows are compared with the best, the levels are Holm's (1979): the rank
of the clearest is taken as one of so many chances, that of the next as one of one fewer. That two
rows are alike is what two one-sided tests show (Schuirmann 1987): the interval that leaves as much
on either side as a flip may have lies within the margin.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from ampsim.rng import stream
from ampsim.text import finite

EXACT_UP_TO: Final = 7
"""Seeds up to which every draw is counted, with its probability: 1716 of them (chosen)."""

DRAWS: Final = 4000
"""Draws where there are more seeds (chosen: a probability of 5 % is then known to 0.35 %)."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws of seeds with replacement."""

    counts: np.ndarray  # how often each seed was drawn, (seeds, draws)
    weights: np.ndarray  # the probability of each draw, (draws,); they add up to 1

    def medians(self, values: Sequence[float]) -> np.ndarray:
        """The median of each draw, (draws,)."""
        found = np.asarray(values, dtype=float)
        order = np.argsort(found, kind="stable")
        ordered, drawn = found[order], np.cumsum(self.counts[order], axis=0, dtype=np.int32)
        seeds = len(found)
        lower = np.count_nonzero(drawn < (seeds + 1) // 2, axis=0)
        upper = np.count_nonzero(drawn < seeds // 2 + 1, axis=0)
        return (ordered[lower] + ordered[upper]) / 2

    def interval(self, values: np.ndarray, tail: float) -> tuple[float, float]:
        """The percentile interval of a ratio that each draw gives, (draws,); NaN may be any.

        So much of the draws lies on either side of it.
        """
        order = np.argsort(values, kind="stable")  # NaN last
        below, unknown = np.cumsum(self.weights[order]), self.weights[np.isnan(values)].sum()
        places = np.minimum(np.searchsorted(below, (tail - unknown, 1 - tail)), len(order) - 1)
        low, high = values[order][places].tolist()
        return 0.0 if unknown >= tail else low, math.inf if math.isnan(high) else high


@lru_cache(maxsize=32)
def draws_of(seeds: int) -> Draws:
    """Return all draws of so many seeds, or `DRAWS` of them, the same each time."""
    assert seeds >= 1, f"there must be a seed to draw, got {seeds}"
    if seeds > EXACT_UP_TO:
        random = stream(0, f"bootstrap of {seeds} seeds")
        drawn = random.multinomial(seeds, [1 / seeds] * seeds, size=DRAWS)
        return Draws(np.array(drawn.T, np.int32, order="C"), np.full(DRAWS, 1 / DRAWS))
    shares = list(_shares(seeds, seeds))
    ways = [math.factorial(seeds) / math.prod(map(math.factorial, one)) for one in shares]
    return Draws(np.array(shares, np.int32).T, np.array(ways) / seeds**seeds)


def _shares(drawn: int, seeds: int) -> Iterator[tuple[int, ...]]:
    """Every way in which so many draws fall on so many seeds.

    >>> list(_shares(2, 2))
    [(0, 2), (1, 1), (2, 0)]
    """
    last = drawn + seeds - 1
    for bars in itertools.combinations(range(last), seeds - 1):
        yield tuple(end - start - 1 for start, end in itertools.pairwise((-1, *bars, last)))


SURE: Final = 0.9
"""How sure a call is unless something else is asked for: of true ties, one in ten is called."""

SAME: Final = 0.05
"""Times, or throughputs, that differ by less are alike (chosen: less than devices' numbers do)."""

INTERVAL_FROM: Final = 5
"""Seeds from which a ratio of times has an interval (chosen: with four, smallest to largest covers
a median with less than 90 %)."""

_POWER: Final = 2.3
"""How many times as many seeds as just suffice do in four of five cases: ((1.645 + 0.842) / 1.645)²
of a normal estimate that is called at 5 % on either side."""

SEEDS_MAX: Final = 1000
"""Most seeds that are said to do (chosen: nobody makes more runs of a row)."""

Answer: TypeAlias = Literal["first", "tie", "too few seeds"]
Standing: TypeAlias = Literal[
    "first", "tie", "too few seeds", "behind", "not reached", "not compared"
]
"""What is said of a row: of the best the answer, of another how it stands to the best."""

COLUMNS: Final = (
    "order_flip_probability", "is_tied_with_best", "speed_up_low", "speed_up_high", "standing",
    "time_ratio", "time_ratio_low", "time_ratio_high", "seeds_needed",
)  # fmt: skip
"""What the table says of the rank of a row: times the best's time, and what `Ranking` has."""

Times: TypeAlias = Mapping[int, float]
"""Time to the target by seed; infinite for a run that never arrived."""


@dataclass(frozen=True, slots=True)
class Sureness:
    """The certainty that a call must have."""

    sure: float = SURE  # probability that a row as good as the best is not called worse
    looks: int = 1  # at the seeds, with a chance of a wrong call each time

    @property
    def tail(self) -> float:
        """The probability of a flip below which two rows differ."""
        return (1 - self.sure) / 2 / self.looks


@dataclass(frozen=True, slots=True)
class Pair:
    """The comparison of a row with the best."""

    ratio: float  # its median time over that of the best; infinite if it does not arrive
    low: float | None  # lower end of the interval of that; None with too few seeds for one
    high: float | None  # upper end, likewise
    flip: float | None  # the probability that with other seeds it is not behind; None with one seed
    standing: Standing  # what follows of these


@dataclass(frozen=True, slots=True)
class Ranking:
    """The comparison of rows with the best of them."""

    answer: Answer  # what may be said
    best: int  # place of the row with the smallest median
    pairs: tuple[Pair | None, ...]  # each row against the best; None of what is not compared
    seeds: int  # by which they were compared
    seeds_needed: int | None  # about how many would do; None where there are enough
    speed_ups: tuple[tuple[float, float] | None, ...]  # of rows, the first's median over its own
    flip: float | None  # the probability that with other seeds another is not behind

    @property
    def is_clear(self) -> bool:
        """Whether there are seeds enough."""
        return self.answer != "too few seeds"

    @property
    def standings(self) -> tuple[Standing, ...]:
        """The standing of each row."""
        return tuple(
            self.answer if place == self.best else "not compared" if one is None else one.standing
            for place, one in enumerate(self.pairs)
        )


def rank(rows: Sequence[Times | None], sureness: Sureness | None = None) -> Ranking | None:
    """Compare each row with the best; with a seed that a row lacks it may have taken any time.

    Returns:
        None where nothing can be said: of one row, without a seed that all have, or where no row
        arrives with at least half of them.

    >>> made = rank([{0: 3.0, 1: 4.0}, {0: 1.0, 1: 1.5}])
    >>> made.answer, made.best, made.pairs[0].flip, made.seeds_needed
    ('too few seeds', 1, 0.25, 5)
    """
    known = {place: row for place, row in enumerate(rows) if row is not None}
    every = sorted(set[int]().union(*known.values()))
    seeds = [seed for seed in every if all(seed in row for row in known.values())]
    if len(known) < 2 or not seeds:
        return None
    times = {place: [row[seed] for seed in seeds] for place, row in known.items()}
    middles = {place: median(one) for place, one in times.items()}
    best = min(times, key=lambda place: (middles[place], times[place]))
    if not math.isfinite(middles[best]):
        return None
    sureness = sureness or Sureness()
    draws = draws_of(len(every))
    drawn = {place: _drawn(draws, row, every) for place, row in known.items()}
    pairs = {
        place: _pair(draws, (drawn[best], one), (times[best], times[place]), sureness.tail)
        for place, one in drawn.items()
        if place != best
    }
    never = {place for place in pairs if all(map(math.isinf, drawn[place].least))}
    pairs = _stand(pairs, never, sureness.tail)
    is_tie = any(pair.standing == "tie" for pair in pairs.values())
    opened = _open(pairs, sureness.tail)
    answer: Answer = "too few seeds" if opened else "tie" if is_tie else "first"
    flips = [drawn[best].late >= drawn[place].early for place in pairs if place not in never]
    any_flip = _flip(draws, np.any(flips, axis=0), len(seeds))
    speed_ups: list[tuple[float, float] | None] = [None] * len(rows)
    if len(seeds) >= INTERVAL_FROM and 0 in known:
        for place in [*drawn][1:]:  # where neither arrives it may be anything
            speed_ups[place] = _interval(draws, drawn[0], drawn[place], sureness.tail, math.nan)
    return Ranking(
        answer,
        best,
        tuple(pairs.get(place) for place in range(len(rows))),
        len(seeds),
        _needed(pairs, never, len(seeds), sureness) if opened else None,
        tuple(speed_ups),
        max(filter(None, (any_flip, *(pair.flip for pair in pairs.values()))), default=None),
    )


def coin(seeds: int) -> float:
    """The probability that a tossed coin shows one given side with every seed."""
    return 0.5**seeds


def seeds_needed(rows: int, sureness: Sureness | None = None) -> int:
    """The least number of seeds with which the first of so many rows can be told from all others.

    >>> seeds_needed(2), seeds_needed(3), seeds_needed(11)
    (5, 6, 8)
    """
    return math.ceil(-math.log2((sureness or Sureness()).tail / max(rows - 1, 1)))


def columns_of(ranking: Ranking | None, rows: int) -> list[dict[str, Any]]:
    """Return the table's columns of each row's rank; unknown is None."""
    if ranking is None:
        return [dict[str, Any].fromkeys(COLUMNS) for _ in range(rows)]
    return [_columns(ranking, place) for place in range(rows)]


def _columns(ranking: Ranking, place: int) -> dict[str, Any]:
    pair, standing, ends = ranking.pairs[place], ranking.standings[place], ranking.speed_ups[place]
    ratio: tuple[float | None, ...] = (None,) * 3
    if place == ranking.best:
        ratio = (1.0, None, None)
    elif pair is not None:
        ratio = (pair.ratio, pair.low, pair.high)
    return {
        "order_flip_probability": None if pair is None else pair.flip,
        "is_tied_with_best": None if standing == "not compared" else standing == "tie",
        "speed_up_low": None if ends is None else finite(ends[0]),
        "speed_up_high": None if ends is None else finite(ends[1]) or None,  # 0: it may be longer
        "standing": standing,
        **dict(zip(COLUMNS[5:8], map(finite, ratio), strict=True)),
        "seeds_needed": ranking.seeds_needed,
    }


class _Drawn(NamedTuple):
    least: list[float]  # times by seed; a run that was lost took none
    early: np.ndarray  # their medians, (draws,)
    late: np.ndarray  # medians where it never arrived


def _drawn(draws: Draws, row: Times, seeds: Sequence[int]) -> _Drawn:
    least, most = ([row.get(seed, end) for seed in seeds] for end in (0.0, math.inf))
    early = draws.medians(least)
    return _Drawn(least, early, early if least == most else draws.medians(most))


def _pair(
    draws: Draws, drawn: tuple[_Drawn, _Drawn], times: tuple[list[float], list[float]], tail: float
) -> Pair:
    """The best and another row, of which it is not said yet whether it is behind for sure."""
    middles, (best, other) = (median(times[0]), median(times[1])), drawn
    seeds = sum(math.isfinite(min(pair)) for pair in zip(*times, strict=True))  # of which one says
    flip = _flip(draws, (best.late >= other.early) & math.isfinite(min(other.least)), seeds)
    flip = 0.5 if flip and middles[0] == middles[1] else flip
    ratio = middles[1] / middles[0] if middles[0] else 1.0 if not middles[1] else math.inf
    if len(times[0]) < INTERVAL_FROM:
        return Pair(ratio, None, None, flip, "too few seeds")
    low, high = _interval(draws, other, best, tail)
    low, high = min(low, ratio), max(high, ratio)
    is_alike = low >= (1 + SAME) ** -1 and high <= 1 + SAME and coin(seeds) <= tail
    return Pair(ratio, low, high, flip, "tie" if is_alike else "too few seeds")


def _flip(draws: Draws, is_flipped: np.ndarray, seeds: int) -> float | None:
    """The probability of draws, (draws,), no less than a coin's of so many; None of one seed."""
    found = min(float(draws.weights[is_flipped].sum()), 1.0)  # but for rounding
    return max(found, coin(seeds)) if len(draws.counts) > 1 else None


def _stand(pairs: Mapping[int, Pair], never: Collection[int], tail: float) -> dict[int, Pair]:
    """Call each row by Holm's step-down: the clearest difference first, until one is not clear."""
    found = {place: replace(pairs[place], standing="not reached") for place in never}
    others = sorted(
        (pair.flip or 1.0, place) for place, pair in pairs.items() if place not in never
    )
    is_clear = True
    for left, (flip, place) in zip(range(len(others), 0, -1), others, strict=True):
        is_clear = is_clear and flip <= tail / left
        if is_clear and pairs[place].standing != "tie":
            found[place] = replace(pairs[place], standing="behind")
    return {place: found.get(place, pair) for place, pair in pairs.items()}


def _open(pairs: Mapping[int, Pair], tail: float) -> list[Pair]:
    """Find rows not told from the best: of one that never arrives, as the best seldom does."""
    surely: dict[str, float] = {"too few seeds": 0.0, "not reached": tail}
    return [pair for pair in pairs.values() if (pair.flip or 1.0) > surely.get(pair.standing, 1.0)]


def _needed(
    pairs: Mapping[int, Pair], never: Collection[int], seeds: int, sureness: Sureness
) -> int:
    """About how many seeds would give an answer, in four of five cases.

    With n times as many seeds an interval is as wide as 1 over the root of n. It is narrow enough
    where it leaves out either 1, or what differs by more than the margin.
    """
    least = seeds_needed(len(pairs) - len(never) + 1, sureness)
    if seeds < least:
        return least
    wanted = [least, seeds + 1]
    for pair in _open(pairs, sureness.tail):
        if pair.low is None or pair.high is None or not 0 < pair.low <= pair.high < math.inf:
            wanted.append(2 * seeds)
            continue
        lead = math.log(pair.ratio)
        wide = max(lead - math.log(pair.low), math.log(pair.high) - lead)
        enough = max(lead, math.log1p(SAME) - lead, 1e-9)
        wanted.append(math.ceil(_POWER * seeds * min(wide / enough, SEEDS_MAX) ** 2))
    return min(max(wanted), SEEDS_MAX)


def _interval(
    draws: Draws, over: _Drawn, under: _Drawn, tail: float, neither: float = 1.0
) -> tuple[float, float]:
    """The percentile interval of a ratio, which is `neither` where none of the two arrives."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = over.early / under.late, over.late / under.early
    ends = [draws.interval(np.where(np.isnan(one), neither, one), tail) for one in ratios]
    return ends[0][0], ends[1][1]
