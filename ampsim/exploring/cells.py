"""A map's cells: what each method takes at each point, who is first there, and what to learn next.

A cell is one method at one point. Its first epoch is timed exactly. It is *learned* if its runs
were made; *shared* if those of another point were made that learn the same, by the digests of their
first epochs: times are those of that point, seed by seed times the ratio of the two first epochs;
*failed* if its first epoch cannot end, as memory is too small; *unfit* if values of the point do
not fit together, or the schedule does not fit there; *predicted* else, with an interval
(`ampsim.exploring.predicting`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ampsim.exploring.making import FirstEpoch
from ampsim.exploring.predicting import Guess, Predictor, probability_below
from ampsim.runs.ranking import Ranking, Standing, coin, rank
from ampsim.runs.rows import median_interval
from ampsim.runs.run import number_to_plain

Basis: TypeAlias = Literal["learned", "shared", "predicted", "failed", "unfit", "lost"]
Timed: TypeAlias = dict[int, dict[int, FirstEpoch]]
Times: TypeAlias = dict[int, dict[int, float]]

COVERED: Final = 0.9  # coverage aimed at by intervals, as elsewhere in a forecast

LEARNED_MIN: Final = 3
"""Learned cells of a method at least, before others of it are predicted (chosen: of fewer their
spread is a guess; a map whose only learned cell did not arrive called all of that method so)."""

_NEVER: Final = 2.0  # times the most epochs, where none arrives (chosen: its logarithm is finite)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time to the target of a cell, known or predicted."""

    basis: Basis
    epoch_s: float  # what the first epoch takes
    guess: Guess  # of the logarithm of the time to the target, over that of the first epoch
    times_s: Mapping[int, float] | None  # to the target, by seed, or inf; None of a prediction
    epochs_max: int  # by when a run ends

    @property
    def middle(self) -> float:
        """The logarithm of the median time to the target; infinite where it is not reached."""
        if self.times_s is not None:
            middle_s = median(self.times_s.values()) if self.times_s else math.inf
            return math.log(middle_s) if middle_s > 0 else -math.inf
        is_late = self.guess.mean >= math.log(self.epochs_max + 0.5)
        return math.inf if is_late else self.guess.mean + math.log(self.epoch_s)

    @property
    def time_s(self) -> float | None:
        """The median time to the target; None where it is not reached."""
        return math.exp(self.middle) if self.middle < math.inf else None

    @property
    def interval_s(self) -> tuple[float | None, float | None]:
        """Its ends; None where there is none."""
        if self.times_s is not None:
            found = median_interval([*self.times_s.values()], COVERED)
            return found.low, found.high
        low, high = (math.exp(end) * self.epoch_s for end in self.guess.interval(COVERED))
        return low, high if high < self.epochs_max * self.epoch_s else None


@dataclass(eq=False)
class Entrant:
    """One method over all points, and what has been found of it, by point and seed.

    Points are `lost` whose runs gave nothing, and those that learn the same; none is tried again.
    """

    drains: bool  # so that equal first epochs are followed by equal ones with every seed
    first_seed: int  # of which all points are timed
    epochs_max: int  # by when a run ends
    timed: Timed = field(default_factory=Timed)
    learned: Times = field(default_factory=Times)  # seconds to the target
    lost: set[int] = field(default_factory=set[int])
    unfit: set[int] = field(default_factory=set[int])  # points at which it has no row; why is timed

    @cached_property
    def points(self) -> list[int]:
        """The points at which an epoch ends; to be asked for when all are timed."""
        return [point for point in sorted(self.timed) if self.first(point).failure is None]

    @property
    def failures(self) -> list[str]:
        """Why first epochs did not end, or could not begin."""
        return [one.failure for of in self.timed.values() for one in of.values() if one.failure]

    @property
    def is_lost(self) -> bool:
        """Whether no run of it gave anything, and none is made any more: nothing is known of it."""
        is_over = len(self.lost) >= LEARNED_MIN or self.lost.issuperset(self.points)
        return is_over and not self.learned and bool(self.points)

    def first(self, point: int) -> FirstEpoch:
        """Return the first epoch of a point with the first seed."""
        return self.timed[point][self.first_seed]

    def alike(self, point: int) -> list[int]:
        """The points that learn as this one does, as far as the first seed tells."""
        return self._classes.get(self.first(point).digest, [])

    @cached_property
    def _classes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for point in self.points:
            if digest := self.first(point).digest:
                found.setdefault(digest, []).append(point)
        return found

    def source(self, point: int) -> int | None:
        """A learned point that learns the same with each seed; None where there is none."""
        if point in self.learned:
            return point
        return next((one for one in self.learned if self._is_same(point, one)), None)

    def _is_same(self, point: int, learned: int) -> bool:
        here, there = self.timed[point], self.timed[learned]
        seeds = (self.first_seed,) if self.drains else self.learned[learned]
        both = [(here.get(seed), there.get(seed)) for seed in seeds]
        return all(one and two and one.digest and one.digest == two.digest for one, two in both)

    def estimate(self, point: int, guess: Guess) -> Estimate:
        """Return the best estimate of a point; the guess, if nothing else is known."""
        own = self.first(point)
        if own.failure is not None or self.is_lost:
            why: Basis = "unfit" if point in self.unfit else "failed" if own.failure else "lost"
            return Estimate(why, own.epoch_s, guess, {}, self.epochs_max)
        source = self.source(point)
        if source is None:
            return Estimate("predicted", own.epoch_s, guess, None, self.epochs_max)
        here, there = self.timed[point], self.timed[source]
        times: dict[int, float] = {}
        for seed, time_s in self.learned[source].items():
            is_known = all(seed in of and of[seed].failure is None for of in (here, there))
            of = seed if is_known else self.first_seed
            times[seed] = time_s * here[of].epoch_s / there[of].epoch_s
        basis: Basis = "learned" if source == point else "shared"
        return Estimate(basis, own.epoch_s, Guess(self.value(source)), times, self.epochs_max)

    def value(self, point: int) -> float:
        """The logarithm of a learned point's median time over that of its first epoch."""
        middle_s, epoch_s = median(self.learned[point].values()), self.first(point).epoch_s
        most = _NEVER * self.epochs_max
        return math.log(min(max(middle_s / epoch_s, 1e-9), most)) if epoch_s else math.log(most)

    def predictor(self) -> Predictor:
        """Fit a predictor to the learned points; its places are those in `points`."""
        nodes = sorted({node for one in self.points for node in self.first(one).staleness})
        ages = [[self.first(p).staleness.get(node, 0.0) for node in nodes] for p in self.points]
        places = np.log1p(np.array(ages, float).reshape(len(self.points), len(nodes)))
        known = [self.points.index(point) for point in self.learned]
        return Predictor(places, known, [self.value(point) for point in self.learned])

    def plain(self, digests: dict[str, int]) -> dict[str, Any]:
        """Return what was read, as JSON can hold it; a time that is infinite is the text "inf".

        Of seeds that not all points are timed with, that is the time, and who learns the same. Each
        digest that was met has a number, from 1; new ones are added. Points and seeds are in order,
        for runs that are made beside each other end in any.
        """

        def known(seed: int, one: FirstEpoch) -> dict[str, Any]:
            digest = str(digests.setdefault(one.digest, len(digests) + 1)) if one.digest else ""
            own = asdict(one) if seed == self.first_seed else {"epoch_s": one.epoch_s}
            found: dict[str, Any] = {**own, "digest": digest}
            return {key: of for key, of in found.items() if of is not None and of == of}  # not NaN

        return {
            "drains": self.drains, "first_seed": self.first_seed, "epochs_max": self.epochs_max,
            "timed": {point: {seed: known(seed, one) for seed, one in sorted(of.items())}
                      for point, of in sorted(self.timed.items())},
            "learned": {point: {seed: number_to_plain(one) for seed, one in sorted(of.items())}
                        for point, of in sorted(self.learned.items())},
            **{name: sorted(of) for name in ("lost", "unfit") if (of := getattr(self, name))},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WinnerCall:
    """The call of who is first at a point."""

    best: int | None  # its place among the methods, by medians; None where none arrives
    wrong: float  # the probability that training what is predicted names another, or more
    others: tuple[float, ...]  # that of each method to be sooner than this one
    ranking: Ranking | None = None  # by the seeds; None where something is predicted
    flip: float = 0.0  # the probability that with other seeds another that is known is first

    def doubt(self, seeds: int) -> float:
        """The largest of `wrong`, `flip`, and what so many seeds leave open: a coin's flip."""
        return max(self.wrong, self.flip, coin(seeds))

    def standing(self, place: int) -> Standing | None:
        """Return a method's standing; None where something is predicted.

        Where a method lost seeds, those that all have may name another best: then it is open.
        """
        if self.ranking is None or self.ranking.best == self.best:
            return None if self.ranking is None else self.ranking.standings[place]
        return "too few seeds"


def call(estimates: Sequence[Estimate]) -> WinnerCall:
    """Compare the methods at one point."""
    middles = [one.middle for one in estimates]
    best = min(range(len(estimates)), key=middles.__getitem__)
    if not math.isfinite(middles[best]):
        is_open = any(one.basis == "predicted" for one in estimates)
        return WinnerCall(None, 0.5 if is_open else 0.0, (0.0,) * len(estimates))
    pairs = enumerate(estimates)
    chances = tuple(0.0 if at == best else _overtakes(estimates[best], one) for at, one in pairs)
    wrong = 1 - math.prod(1 - one for one in chances)  # at least, however sure the best is
    times = [one.times_s for one in estimates]
    never = dict.fromkeys((seed for of in times for seed in of or ()), math.inf)  # of what failed
    known = [None if one.basis == "lost" else one.times_s for one in estimates]
    ranking, is_whole = rank([of if of is None else of or never for of in known]), None not in times
    if ranking is not None and middles[ranking.best] == middles[best]:
        best = ranking.best
    flip = 0.5 if is_whole or (ranking is not None and times[best] is not None) else 0.0
    if ranking is not None and ranking.best == best:
        flip = ranking.flip or 0.0
    return WinnerCall(best, wrong, chances, ranking if is_whole else None, flip)


def _overtakes(best: Estimate, other: Estimate) -> float:
    """The probability that the other is trained sooner after all, or neither arrives."""
    unknown = [one.guess for one in (best, other) if one.basis == "predicted"]
    if not unknown:
        return 0.0
    there = other.middle
    if math.isinf(there) and other.basis == "predicted":
        there = other.guess.mean + math.log(other.epoch_s)
    elif math.isinf(there):  # so that the best is first as long as it arrives itself
        there = math.log(best.epochs_max * best.epoch_s)
    spread = math.hypot(*(one.spread for one in unknown))
    return probability_below(there - best.middle, spread, min(one.freedom for one in unknown))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A test of the predictions: each learned cell, predicted from the others."""

    cells: int = 0  # how many there were
    wrong: int = 0  # of how many points the winner was another than when all is known
    expected: float = 0.0  # how many should have been, by the predictions themselves
    inside: int = 0  # in how many cells the time was within the interval


class Cells:
    """The cells of a map, as far as they are known; all methods are timed at the same points."""

    def __init__(self, methods: Sequence[Entrant]) -> None:
        """Predict what is not known."""
        self.methods = methods
        self.points = [p for p in sorted(methods[0].timed) if all(p in m.timed for m in methods)]
        self._predictors = [one.predictor() for one in methods]
        self.estimates: dict[int, list[Estimate]] = {point: [] for point in self.points}
        for method, predictor in zip(methods, self._predictors, strict=True):
            guesses = predictor.guesses(range(len(method.points)))
            guess_at = dict(zip(method.points, guesses, strict=True))
            for point, of in self.estimates.items():
                of.append(method.estimate(point, guess_at.get(point, Guess(0.0))))
        self.calls = dict.fromkeys(self.points, WinnerCall(None, 0.5, (0.0,) * len(methods)))
        known = [method for method in methods if not method.is_lost]
        if len(known) > 1 and all(method.learned or not method.points for method in known):
            self.calls = {point: call(of) for point, of in self.estimates.items()}

    @property
    def doubt(self) -> float:
        """The largest probability of any point that training would name another winner."""
        return max((one.wrong for one in self.calls.values()), default=0.0)

    def is_sure(self, sure: float) -> bool:
        """Tell whether each winner is, and of no method others are predicted from too few cells."""
        return self.doubt <= 1 - sure and not any(map(self._has_few, range(len(self.methods))))

    def _has_few(self, place: int) -> bool:
        of_all = (of[place].basis == "predicted" for of in self.estimates.values())
        return len(self.methods[place].learned) < LEARNED_MIN and any(of_all)

    def next(self) -> tuple[int, int] | None:
        """Method and point whose learning takes most doubt away; None where all is known.

        The doubt of a point is that of its winner, as far as the method takes part in it. What a
        learning takes of it is the share of the variance that goes there, and all of it where the
        same is learned.
        """
        gains: dict[tuple[int, int], float] = {}
        for place, method in enumerate(self.methods):
            weights = dict(self._weights(place))
            if not weights:
                continue
            alike = (  # one point for all that learn the same: the first that is open
                next((one for one in method.alike(point) if method.source(one) is None), point)
                for point in weights
            )
            chosen, index = [*dict.fromkeys(alike)], method.points.index
            told = self._predictors[place].told([*map(index, chosen)], [*map(index, weights)])
            for one, shares in zip(chosen, told, strict=True):
                same = set(method.alike(one)) | {one}
                gains[place, one] = sum(
                    weight * (1.0 if point in same else share)
                    for (point, weight), share in zip(weights.items(), shares, strict=True)
                )
        return max(gains, key=lambda one: (gains[one], -one[0], -one[1]), default=None)

    def _weights(self, place: int) -> Iterator[tuple[int, float]]:
        """The open points of a method, and the doubt in which it takes part there."""
        is_new, lost = self._has_few(place), self.methods[place].lost
        for point in self.points:
            if self.estimates[point][place].basis != "predicted" or point in lost:
                continue
            called = self.calls[point]
            part = called.wrong if place == called.best else called.others[place]
            yield point, 1.0 if is_new else called.wrong if called.best is None else part

    def left_out(self) -> LeftOut:
        """Predict each learned cell of a method that has others, and compare."""
        counts = [
            self._without(place, point)
            for place, method in enumerate(self.methods)
            for point in method.learned
            if len(method.learned) > 2 and point in self.estimates
        ]
        return LeftOut(len(counts), *map(sum, zip(*counts, strict=True)))

    def _without(self, place: int, point: int) -> tuple[bool, float, bool]:
        """Tell if a cell would be called wrongly, how likely that was, and if it is inside."""
        method, blind = self.methods[place], [*self.estimates[point]]
        index = method.points.index(point)
        (guess,) = self._predictors[place].without(index).guesses([index])
        blind[place] = replace(blind[place], basis="predicted", guess=guess, times_s=None)
        called, (low, high) = call(blind), guess.interval(COVERED)
        is_wrong = called.best != self.calls[point].best
        return is_wrong, called.wrong, low <= method.value(point) <= high


def stated_wrong(cells: Cells, left_out: LeftOut) -> float:
    """The share of points with a prediction whose winner may turn out to be another one.

    These are as many as the predictions say of themselves, times how many more were wrong of those
    left out than these said of themselves, each counted with one more, never fewer; and one more
    besides, for points are whole.
    """
    is_open = {p: any(one.basis == "predicted" for one in of) for p, of in cells.estimates.items()}
    called = [cells.calls[point].wrong for point, is_so in is_open.items() if is_so]
    if not called:
        return 0.0
    more = max((left_out.wrong + 1) / (left_out.expected + 1), 1.0)
    return min((sum(called) * more + 1) / len(called), 1.0)
