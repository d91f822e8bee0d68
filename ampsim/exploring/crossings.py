"""Crossings: where along an axis a condition begins or ends to hold, of one function or of many.

A function is only known to hold or not at a point. First it is asked at nine points from end to end
all at once, for times need not be monotonous: each pair of neighbours that differ brackets a
crossing, which is halved until it is narrow. Two crossings between neighbours are not seen.

With several seeds each has a function of its own, which is as sure as any other. So each has its
own root, and of these the median is given with a distribution-free interval; that bears seeds that
never cross, which lie beyond one of the ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_high, median_low
from typing import Final, NamedTuple, TypeAlias

from ampsim.exploring.axes import Axis
from ampsim.runs.rows import median_interval

POINTS: Final = 9  # asked of each function first (chosen: a factor of 2.4 in three decades)
WANTED: Final = 0.95  # coverage aimed at by the interval of a median root
SEEDS: Final = 6  # the least of which smallest to largest cover it so

Ask: TypeAlias = "Callable[[Sequence[tuple[int, float]]], Sequence[bool]]"
"""Says for each seed and value whether the condition holds there."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """A crossing of one function, between two values; it `rises` if the condition holds above."""

    low: float
    high: float
    rises: bool

    @property
    def end(self) -> float:
        """The end at which the condition holds."""
        return self.high if self.rises else self.low

    def middle(self, *, is_whole: bool = False) -> float:
        """The value in the middle, in logarithms where both ends are above 0; a number between."""
        low, high = self.low, self.high
        middle = math.sqrt(low) * math.sqrt(high) if low > 0 else (low + high) / 2
        return float(min(max(round(middle), low + 1), high - 1)) if is_whole else middle


def between(points: Sequence[float], holds: Sequence[bool]) -> list[Bracket]:
    """The crossings between neighbouring points."""
    pairs = zip(itertools.pairwise(points), itertools.pairwise(holds), strict=True)
    return [Bracket(*ends, rises=after) for ends, (before, after) in pairs if before != after]


class Root(NamedTuple):
    """A crossing of most of the functions; of one function a bracket, without a coverage."""

    value: float  # the median of their roots, or where most hold; of one, where it holds
    low: float | None  # of its interval, or bracket; None where that has no such end
    high: float | None
    rises: bool  # whether the condition holds above it
    seeds_below: int = 0  # how many have their root before the low end
    seeds_above: int = 0  # and after the high one
    coverage: float | None = None


@dataclass(frozen=True, slots=True)
class Crossings:
    """The crossings of all functions, as far as they are known."""

    points: tuple[float, ...]  # values that all of them were asked at
    holds: Mapping[int, tuple[bool, ...]]  # by seed, whether its condition holds at each of them
    brackets: Mapping[int, tuple[Bracket, ...]]  # by seed its crossings, in order
    is_whole: bool = False  # whether only whole numbers are values, so that a root is one

    @property
    def most(self) -> list[bool]:
        """Whether most conditions hold at each point."""
        return [2 * sum(held) > len(held) for held in zip(*self.holds.values(), strict=True)]

    def roots(self) -> list[Root]:
        """The crossings of most functions, in order; none where most hold throughout or nowhere."""
        if len(self.holds) > 1:
            return [self._root(one) for one in between(self.points, self.most)]
        (own,) = self.brackets.values()
        return [Root(one.end, one.low, one.high, one.rises) for one in own]

    def _root(self, about: Bracket) -> Root:
        values = sorted(self._of(seed, about) for seed in self.holds)
        found = median_interval(values, WANTED)
        below, above = values.count(-math.inf), values.count(math.inf)
        value, ends = median(values), (found.low, found.high)
        if self.is_whole or not math.isfinite(value):  # as where half of the seeds do not cross
            value = (median_high if about.rises else median_low)(values)
        return Root(value, *ends, about.rises, below, above, found.coverage)

    def _of(self, seed: int, about: Bracket) -> float:
        """The root of one function that goes with a crossing of most; infinite where it has none.

        It is the last one up to there where the function has crossed by then, else the next one.
        """
        own = [one for one in self.brackets[seed] if one.rises == about.rises]
        has_crossed = self.holds[seed][self.points.index(about.high)] == about.rises
        before = [one for one in own if one.high <= about.high][-1:]
        for one in before if has_crossed else [one for one in own if one.low >= about.high][:1]:
            return one.end if self.is_whole else one.middle()
        return -math.inf if has_crossed else math.inf


def first_points(axis: Axis) -> tuple[float, ...]:
    """Points asked first: even in the logarithm where the range begins above 0."""
    return tuple(float(one) for one in replace(axis, is_log=axis.low > 0).points(POINTS))


def find(axis: Axis, seeds: Sequence[int], ask: Ask, tolerance: float) -> Crossings:
    """Ask each seed's function at points of a range, and narrow each of its crossings.

    A bracket is narrow where its ends differ by the `tolerance`'s share; of whole numbers, by 1.
    """
    points = first_points(axis)
    held = iter(ask([(seed, point) for seed in seeds for point in points]))
    holds = {seed: tuple(next(held) for _point in points) for seed in seeds}
    brackets = {seed: between(points, holds[seed]) for seed in seeds}
    while wide := [
        (seed, place, one)
        for seed, own in brackets.items()
        for place, one in enumerate(own)
        if one.high - one.low
        > (1 if axis.is_whole else tolerance * max(one.high, 1e-12 * axis.high))
    ]:
        middles = [one.middle(is_whole=axis.is_whole) for _seed, _place, one in wide]
        held = ask([(seed, x) for (seed, _place, _one), x in zip(wide, middles, strict=True)])
        for (seed, place, one), x, now in zip(wide, middles, held, strict=True):
            brackets[seed][place] = replace(one, **{"high" if now == one.rises else "low": x})
    found = {seed: tuple(own) for seed, own in brackets.items()}
    return Crossings(points, holds, found, axis.is_whole)
