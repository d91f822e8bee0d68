"""What a row's method needs, searched alike for every row: rate, optimizer, in flight, decay.

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
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final, TypeAlias

from ampsim.runs.task import Row
from ampsim.study.learning_rates import Scaling, methods_of, rate_of
from ampsim.study.model import Model

STEP: Final = 2.0
"""Between neighbouring rates (chosen: the coarsest grid that is usual for learning rates)."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a trial gave; the smaller is better.

    Args:
        time_s: to the target; infinite if it was not reached.
        shortfall: how bad the best validation was, where that decides; infinite if unknown, or if
            the trial diverged.
    """

    time_s: float
    shortfall: float

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be said for the rate."""
        return math.isinf(self.time_s) and math.isinf(self.shortfall)


def factors(budget: int, given: float = 1.0) -> list[float]:
    """The rates that a row begins with, times its own.

    >>> factors(5)
    [1.0, 2.0, 0.5, 4.0, 0.25]
    >>> factors(4, 1 / 8), factors(6, 1 / 8)
    ([1.0, 0.125, 0.5, 0.25], [1.0, 0.125, 0.5, 0.25, 2.0, 0.0625])
    """
    if given == 1.0:
        found, between = [1.0], 0
    else:
        octaves = math.ceil(round(abs(math.log(given, STEP)), 9))
        found, between = [1.0, given], max(min(octaves - 1, budget - 2), 0)
    found += [given ** (place / (between + 1)) for place in range(1, between + 1)]
    low, high = min(1.0, given), max(1.0, given)
    for turn in range(budget - len(found)):
        steps = STEP ** (turn // 2 + 1)
        found.append(low / steps if turn % 2 else high * steps)
    return found


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


IN_FLIGHT: Final = "max_active_keys"
FALL: Final = 0.9
"""Times the decay of a move (chosen: the decays of decision 9 are neighbours)."""

BY_RATE: Final = ("learning_rate", "optimizer", "momentum", "second_rate")
"""Options of a model that fix its rate and optimizer; the rate of another one would be a guess."""

BY_DECAY: Final = (*BY_RATE, "decay", "rate_policy", "warmup_epochs")


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """What one trial of a row has, beside what the row itself says.

    Args:
        factor: times the rate of the row, or of the optimizer.
        optimizer: its name; empty for the model's own.
        in_flight: instances in flight at most; 0 for the row's own.
        decay: times the rate after each epoch besides.
    """

    factor: float = 1.0
    optimizer: str = ""
    in_flight: int = 0
    decay: float = 1.0

    @property
    def words(self) -> str:
        """What is not as the row has it, but for the rate."""
        told = [self.optimizer] if self.optimizer else []
        told += [f"{self.in_flight} in flight"] if self.in_flight else []
        return ", ".join([*told, *([] if self.decay == 1 else [f"decay × {self.decay:.3g}"])])


@dataclass(frozen=True, slots=True)
class SettingSpace:
    """What may be set of a row, which is handed over where it is set.

    Args:
        methods: the model with each optimizer that is tried, its own first.
        has_rate: whether rates are tried.
        in_flight: how many are in flight, where others are tried; 0 where not.
        decays: whether the rate may fall faster or slower.
        scaling: the rule of rates.
        kept: names of options that a user chose, and are left as they are.
    """

    methods: Mapping[str, Model] = field(default_factory=dict[str, Model])
    has_rate: bool = True
    in_flight: int = 0
    decays: bool = False
    scaling: Scaling | None = None
    kept: tuple[str, ...] = ()

    def row_at(self, entry: Row, setting: Choice) -> Row:
        """The row with a setting."""
        rate, schedule, model = entry.plan.rate, entry.schedule, entry.plan.model
        if setting.optimizer or setting.in_flight:
            model = self.methods[setting.optimizer] if setting.optimizer else model
            if setting.in_flight:
                own: Any = schedule
                schedule = replace(own, **{IN_FLIGHT: setting.in_flight})
            rate = rate_of(model, schedule, self.scaling)
        rate = replace(
            rate, factor=rate.factor * setting.factor, decay=setting.decay, is_by_rule=False
        )
        return replace(entry, schedule=schedule, plan=replace(entry.plan, model=model, rate=rate))

    def chosen(self, entry: Row, setting: Choice, why_not: str | None) -> Row:
        """The row with the setting that was best, and a rate that says so."""
        row = self.row_at(entry, replace(setting, factor=1.0))
        rate = row.plan.rate.tuned(setting.factor, why_not)
        with_it = f", {setting.optimizer}" if setting.optimizer else ""
        return row.at(replace(rate, rule=f"{rate.rule}{with_it}"))

    def starts(self, count: int) -> list[Choice]:
        """With what it begins: rates of each optimizer in turn, or numbers in flight."""
        if self.has_rate:
            names = ["", *[*self.methods][1:]]
            found = [
                Choice(factor, name)
                for factor in factors(-(-count // len(names)))
                for name in names
            ]
            return found[:count]
        more = dict.fromkeys(round(self.in_flight * factor) for factor in factors(count))
        others = [Choice(in_flight=one) for one in more if one not in (0, self.in_flight)]
        return [Choice(), *others][:count]

    def moves(self, best: Choice) -> Iterator[Choice]:
        """The neighbours of a setting, the more promising first; without end where rates are."""
        yield from self._rates(best, STEP)
        here = best.in_flight or self.in_flight
        for number in (2 * here, here // 2) if self.in_flight else ():
            if number:
                yield replace(best, in_flight=0 if number == self.in_flight else number)
        own = 0.0
        if self.decays:
            rate = self.methods[best.optimizer or next(iter(self.methods))].optimizer.rate
            own = rate(1) / rate(0)
        for decay in (best.decay * FALL, best.decay / FALL):
            if 0 < own * decay <= 1:
                yield replace(best, decay=decay)
        for power in itertools.count(1):
            yield from self._rates(best, STEP ** (0.5**power))
            if not self.has_rate:
                return

    def _rates(self, best: Choice, step: float) -> Iterator[Choice]:
        if self.has_rate:
            yield replace(best, factor=best.factor * step)
            yield replace(best, factor=best.factor / step)

    @property
    def is_free(self) -> bool:
        """Whether anything is tried at all."""
        return self.has_rate or self.in_flight > 0 or self.decays


def spaces_of(
    entries: Sequence[Row], fixed: Collection[str], scaling: Scaling | None
) -> list[SettingSpace]:
    """What may be set of each row: nothing that a user chose.

    Args:
        entries: the rows.
        fixed: names of options, of models and schedules, that a user chose, beside those whose
            value is not their default.
        scaling: the rule of rates.
    """
    known: dict[int, dict[str, Model]] = {}
    found: list[SettingSpace] = []
    for one in entries:
        model = one.plan.model
        chosen = {*fixed, *_changed(model.config), *_changed(one.schedule)}
        methods = known.setdefault(id(model), methods_of(model))
        has_rate = not chosen.intersection(BY_RATE)
        in_flight = getattr(one.schedule, IN_FLIGHT, None)
        is_open = IN_FLIGHT not in chosen and isinstance(in_flight, int)
        found.append(
            SettingSpace(
                methods if has_rate else {model.optimizer.name: model},
                has_rate,
                in_flight if is_open and isinstance(in_flight, int) else 0,
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
    scores: list[Score] = field(default_factory=list[Score])

    @property
    def rank(self) -> tuple[float, ...]:
        """Those with more seeds first, then time to the target, shortfall, nearness to the row."""
        return (
            -len(self.scores),
            median(one.time_s for one in self.scores),
            median(one.shortfall for one in self.scores),
            abs(math.log(self.setting.factor)) + abs(math.log(self.setting.decay)),
        )


Asked: TypeAlias = list[tuple[Choice, int]]
Search: TypeAlias = Generator[Asked, Mapping[tuple[Choice, int], Score], None]


MOVES: Final = 12
"""Rounds of moves at most (chosen: each coordinate comes to its turn four times)."""


def rounds_of(start: int) -> int:
    """Rounds of halving that so many settings take, which is how many seeds the best has then.

    >>> rounds_of(8), rounds_of(4)
    (3, 2)
    """
    return max(math.ceil(math.log2(start)), 1)


def search(space: SettingSpace, start: int, found: list[Tried]) -> Search:
    """The trials of one row, round by round, as (setting, seed); `found` has the best first.

    Whoever drives it may end it after `rounds_of(start)` rounds: those that follow are moves.
    """
    if not space.is_free:
        found.append(Tried(Choice()))
        return
    found += [Tried(one) for one in space.starts(start)]
    alive = len(found)
    for seed in range(rounds_of(start)):
        yield from _try(found[:alive], [seed])
        found.sort(key=lambda one: one.rank)
        alive = max(math.ceil(alive / 2), min(2, len(found)))
    for _ in range(MOVES):
        known = {one.setting for one in found}
        new = (one for one in space.moves(found[0].setting) if one not in known)
        pair = [Tried(one) for one in itertools.islice(new, 2)]
        if not pair:
            return
        yield from _try(pair, range(len(found[0].scores)))
        found += pair
        found.sort(key=lambda one: one.rank)


def _try(tried: Sequence[Tried], seeds: Iterable[int]) -> Search:
    seeds = list(seeds)
    scores = yield [(one.setting, seed) for one in tried for seed in seeds]
    for one in tried:
        one.scores += [scores[one.setting, seed] for seed in seeds]
