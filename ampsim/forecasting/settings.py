"""Settings of a row's method, searched alike for each: rate, optimizer, in flight, decay.

A row begins with rates, of each optimizer that its model knows, and with as many in flight as it
says. They are tried by successive halving over seeds, as in `ampsim.forecasting.tuning`. Then the
best is moved, two neighbours at a time with as many seeds as the best has: twice and half the rate,
twice and half as many in flight, a rate that falls faster or slower by epochs, and finer steps of
the rate. Every row gets as many trials, whatever it spends them on; of what a user chose nothing is
tried.

Source: as of `ampsim.forecasting.tuning`; the moves are a coordinate search (Hooke and Jeeves,
"Direct search solution of numerical and statistical problems", 1961, without pattern moves).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final, TypeAlias

from ampsim.runs.task import Row
from ampsim.study.learning_rates import Scaling, methods_of, rate_of
from ampsim.study.model import Model

STEP: Final = 2.0
"""Between neighbouring rates (chosen: the coarsest grid that is usual for learning rates)."""

LADDER: Final = 64.0
"""Times a row's own rate, and the one as given, up to which rates are tried, and down to the same
part of it (chosen: nearly four decades from end to end, as wide as grids of rates are drawn). A row
whose best rate is at an end says so: a better one may lie outside."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a trial; the smaller is better."""

    time_s: float = math.inf  # to the target; infinite if it was not reached
    shortfall: float = math.inf  # of the best validation; infinite if unknown or diverged

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be said for the rate."""
        return math.isinf(self.time_s) and math.isinf(self.shortfall)


def factors(budget: int, given: float = 1.0) -> list[float]:
    """The rates that a row begins with, times its own; more than the ladder has lie between.

    >>> factors(5)
    [1.0, 2.0, 0.5, 4.0, 0.25]
    >>> factors(4, 1 / 8), factors(6, 1 / 8)
    ([1.0, 0.125, 0.5, 0.25], [1.0, 0.125, 0.5, 0.25, 2.0, 0.0625])
    >>> max(factors(64)), min(factors(64))
    (64.0, 0.015625)
    """
    found, between = [1.0], 0
    if given != 1.0:
        octaves = math.ceil(round(abs(math.log(given, STEP)), 9))
        found, between = [1.0, given], max(min(octaves - 1, budget - 2), 0)
    found += [given ** (place / (between + 1)) for place in range(1, between + 1)]
    low, high = min(1.0, given), max(1.0, given)
    for power in range(1, round(math.log(LADDER, STEP)) + 1):
        found += [high * STEP**power, low / STEP**power]
    while len(found) < budget:
        middles = [math.sqrt(one * other) for one, other in itertools.pairwise(sorted(found))]
        found += sorted(middles, key=lambda one: abs(math.log(one)))
    return found[:budget]


def trials_of(budget: int) -> int:
    """Return the number of trials of a row.

    >>> trials_of(8), trials_of(4), trials_of(3)
    (14, 6, 5)
    """
    left, trials = budget, 0
    while left > 1:
        trials += left
        left = math.ceil(left / 2)
    return trials


FINER: Final = 3
"""How often the step between rates is halved (chosen: seeds differ by more than what a rate does
that is a tenth higher)."""

IN_FLIGHT: Final = "max_active_keys"
FALL: Final = 0.9
"""Times the decay of a move (chosen: the decays of decision 9 are neighbours)."""

BY_RATE: Final = ("learning_rate", "optimizer", "momentum", "second_rate")
"""Options of a model that fix its rate and optimizer; the rate of another one would be a guess."""

BY_DECAY: Final = (*BY_RATE, "decay", "rate_policy", "warmup_epochs")


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """The settings of one trial, beside the row's own."""

    factor: float = 1.0  # times the rate of the row, or of the optimizer
    optimizer: str = ""  # empty for the model's own
    in_flight: int = 0  # instances in flight at most; 0 for the row's own
    decay: float = 1.0  # times the rate after each epoch besides

    @property
    def words(self) -> str:
        """Name what differs from the row, but for the rate."""
        told = [self.optimizer] if self.optimizer else []
        told += [f"{self.in_flight} in flight"] if self.in_flight else []
        return ", ".join([*told, *([] if self.decay == 1 else [f"decay × {self.decay:.3g}"])])


@dataclass(frozen=True, slots=True)
class SettingSpace:
    """The kinds of settings that are tried of a row."""

    methods: Mapping[str, Model] = field(default_factory=dict[str, Model])  # by optimizer
    has_rate: bool = True  # whether rates are tried
    in_flight: int = 0  # how many are, where others are tried; 0 where not
    decays: bool = False  # whether the rate may fall faster or slower
    scaling: Scaling | None = None  # the rule of rates
    kept: tuple[str, ...] = ()  # names of options that a user chose, and are left as they are
    given: float = 1.0  # the rate as given, times the row's own, where it is tried, too

    def row_at(self, entry: Row, setting: Choice) -> Row:
        """The row with a setting."""
        rate, schedule, model = entry.plan.rate, entry.schedule, entry.plan.model
        if setting.optimizer or setting.in_flight:
            model = self.methods[setting.optimizer] if setting.optimizer else model
            if setting.in_flight:
                own: Any = schedule
                schedule = replace(own, **{IN_FLIGHT: setting.in_flight})
            rate = rate_of(model, schedule, entry.plan.cluster, entry.plan.options, self.scaling)
        factor = rate.factor * setting.factor
        rate = replace(rate, factor=factor, decay=setting.decay, is_by_rule=False)
        return replace(entry, schedule=schedule, plan=replace(entry.plan, model=model, rate=rate))

    def chosen(self, entry: Row, setting: Choice, why_not: str | None) -> Row:
        """The row with the setting that was best, and a rate that says so."""
        row = self.row_at(entry, replace(setting, factor=1.0))
        rate = row.plan.rate.tuned(setting.factor, why_not)
        with_it = f", {setting.optimizer}" if setting.optimizer else ""
        return row.at(replace(rate, rule=f"{rate.rule}{with_it}"))

    def starts(self, count: int) -> list[Choice]:
        """List the settings that a row begins with: each optimizer's rates in turn, or counts."""
        if self.has_rate:
            names = ["", *list(self.methods)[1:]]
            found = [
                Choice(factor, name)
                for factor in factors(-(-count // len(names)), self.given)
                for name in names
            ]
            return found[:count]
        more = dict.fromkeys(round(self.in_flight * factor) for factor in factors(count))
        others = [Choice(in_flight=one) for one in more if one not in (0, self.in_flight)]
        return [Choice(), *others][:count]

    def moves(self, best: Choice) -> Iterator[Choice]:
        """The neighbours of a setting, the more promising first."""
        yield from self._rates(best, STEP)
        yield from self._in_flight(best, 2.0, 0.5)
        own = 0.0
        if self.decays:
            rate = self.methods[best.optimizer or next(iter(self.methods))].optimizer.rate
            own = rate(1) / rate(0)
        for decay in (best.decay * FALL, best.decay / FALL):
            if 0 < own * decay <= 1:
                yield replace(best, decay=decay)
        for power in range(1, FINER + 1):
            yield from self._rates(best, STEP ** (0.5**power))

    def fewer(self, found: Iterable[Choice]) -> Iterator[Choice]:
        """Half as many in flight as the fewest, where that may be."""
        yield from self._in_flight(min(found, key=lambda one: one.in_flight or self.in_flight), 0.5)

    def _in_flight(self, best: Choice, *steps: float) -> Iterator[Choice]:
        for number in (int(step * (best.in_flight or self.in_flight)) for step in steps):
            if number:
                yield replace(best, in_flight=0 if number == self.in_flight else number)

    def _rates(self, best: Choice, step: float) -> Iterator[Choice]:
        for factor in (best.factor * step, best.factor / step):
            if self.has_rate and self.reaches(factor):
                yield replace(best, factor=factor)

    def reaches(self, factor: float) -> bool:
        """Tell whether a rate is on the ladder."""
        return min(1.0, self.given) <= factor * LADDER and factor <= max(1.0, self.given) * LADDER

    @property
    def is_free(self) -> bool:
        """Whether anything is tried at all."""
        return self.has_rate or self.in_flight > 0 or self.decays


def spaces_of(
    entries: Sequence[Row], fixed: Collection[str], scaling: Scaling | None
) -> list[SettingSpace]:
    """Find the settings to try of each row: none that is `fixed`, or that a user has changed.

    How many are in flight stays where rows of a schedule differ in it, or "amp:8" is fixed.
    Momentum of a solver's servers leaves the optimizer to them; the rate is tuned beside it.
    """
    known: dict[int, dict[str, Model]] = {}
    found: list[SettingSpace] = []
    for one in entries:
        model, own = one.plan.model, {*_changed(one.schedule)}
        name, keys = one.schedule.name, getattr(one.schedule, IN_FLIGHT, None)
        same = {getattr(of.schedule, IN_FLIGHT, keys) for of in entries if of.schedule.name == name}
        is_own = IN_FLIGHT in own or len(same) > 1 or f"{name}:{keys}" in fixed
        chosen = {*fixed, *_changed(model.config), *[IN_FLIGHT] * is_own}
        methods = known.setdefault(id(model), methods_of(model))
        has_rate = not chosen.intersection(BY_RATE)
        found.append(
            SettingSpace(
                methods if has_rate and "momentum" not in own else {model.optimizer.name: model},
                has_rate,
                keys if isinstance(keys, int) and IN_FLIGHT not in chosen else 0,
                not chosen.intersection(BY_DECAY),
                scaling,
                tuple(name for name in (*BY_DECAY, IN_FLIGHT) if name in chosen),
            )
        )
    return found


def _changed(options: Any) -> Iterable[str]:
    """Names of options that are not as they are by default."""
    known = getattr(options, "__dataclass_fields__", {})
    return [name for name, one in known.items() if getattr(options, name) != one.default]


@dataclass(slots=True)
class Tried:
    """A setting of a row, and how its trials went."""

    setting: Choice
    given: float = 1.0
    scores: list[Score] = field(default_factory=list[Score])

    @property
    def rank(self) -> tuple[float, ...]:
        """Order by more seeds, then time to the target, shortfall, nearness to the row."""
        far = abs(math.log(self.setting.factor / self.given)) + abs(math.log(self.setting.decay))
        return (
            -len(self.scores),
            median(one.time_s for one in self.scores),
            median(one.shortfall for one in self.scores),
            far,
        )

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be said for it."""
        return all(one.is_lost for one in self.scores)


Trial: TypeAlias = tuple[int, Choice, int]
"""A row, a setting of it, and which seed for trials, counted from 0."""

TryAll: TypeAlias = Callable[[Sequence[Trial]], Mapping[Trial, Score]]
"""Makes trials; those that it does not give were lost."""

_Rounds: TypeAlias = "Iterator[list[tuple[Tried, int]]]"
"""What a row tries, round by round: settings, each with the seeds that it has in that round."""

MOVES: Final = 12
"""Rounds of moves at most (chosen: each coordinate comes to its turn four times)."""


def rounds_of(start: int) -> int:
    """Rounds of halving that so many settings take, which is how many seeds the best has then.

    >>> rounds_of(8), rounds_of(4)
    (3, 2)
    """
    return max(math.ceil(math.log2(start)), 1)


def search_all(
    spaces: Sequence[SettingSpace], start: int, try_all: TryAll, *, moves: int = MOVES,
    is_enough: Callable[[int], bool] = lambda _rounds: False,
) -> list[list[Tried]]:  # fmt: skip
    """Search each row's settings, the best first: round by round, until none asks for more.

    A row begins with `start` settings. When they are halved it has `moves` rounds of moves at most;
    without any, trials go to lower rates before, while the lowest is the best. After each round
    `is_enough` is asked, with how many there were.
    """
    found: list[list[Tried]] = [[] for _ in spaces]
    searches = [_search(one, start, moves, of) for one, of in zip(spaces, found, strict=True)]
    for rounds in itertools.count():
        asked = [(row, *of) for row, one in enumerate(searches) for of in next(one, ())]
        if not asked or (rounds and is_enough(rounds)):
            break
        scores = try_all([(row, one.setting, seed) for row, one, seed in asked])
        for row, one, seed in asked:
            one.scores.append(scores.get((row, one.setting, seed), Score()))
    return found


def _search(space: SettingSpace, start: int, moves: int, found: list[Tried]) -> _Rounds:
    """The trials of one row; `found` has the best first."""
    if not space.is_free:
        found.append(Tried(Choice()))
        return
    found += [Tried(one, space.given) for one in space.starts(start)]
    yield [(one, 0) for one in found]
    left = trials_of(start) - start
    while not moves and left and (lower := _lower(space, found, is_last=left == 1)):
        found.append(lower)
        left -= 1
        yield [(lower, 0)]
    found.sort(key=lambda one: one.rank)
    alive = start
    for seed in range(1, rounds_of(start)):
        alive = min(max(math.ceil(alive / 2), 2), left)
        alive += left - alive == 1  # a round of one trial would compare nothing
        if alive:
            yield [(one, seed) for one in found[:alive]]
        found.sort(key=lambda one: one.rank)
        left -= alive
    yield from _move(space, moves, found)


def _lower(space: SettingSpace, found: Sequence[Tried], *, is_last: bool) -> Tried | None:
    """The next lower rate of the best's optimizer, where that has the lowest, or one is left."""
    best = min(found, key=lambda one: one.rank)
    alike = [one for one in found if one.setting.optimizer == best.setting.optimizer]
    lowest = min(alike, key=lambda one: one.setting.factor)
    factor = lowest.setting.factor / STEP
    if not space.reaches(factor) or not (is_last or best is lowest or best.is_lost):
        return None
    return Tried(replace(lowest.setting, factor=factor), space.given)


def _move(space: SettingSpace, moves: int, found: list[Tried]) -> _Rounds:
    """Neighbours of the best two, two at a time; where none is left, these have further seeds.

    Where all are lost, half as many in flight as the fewest, and neighbours of the lowest rate.
    """
    seeds = len(found[0].scores)
    for _ in range(moves):
        known = [one.setting for one in found]
        around, moved = known[:2], list[Choice]()
        if found[0].is_lost:
            around, moved = [min(known, key=lambda one: one.factor)], [*space.fewer(known)]
        moved += [move for one in around for move in space.moves(one)]
        new = dict.fromkeys(move for move in moved if move not in known)
        first, count = 0, len(found[0].scores)
        pair = [Tried(one, space.given) for one in [*new][:2]]
        if len(pair) == 2:
            found += pair
        else:
            pair = [one for one in found[:2] if len(one.scores) == count]
            first, count = count, count + seeds
        yield [(one, seed) for one in pair for seed in range(first, count)]
        found.sort(key=lambda one: one.rank)
