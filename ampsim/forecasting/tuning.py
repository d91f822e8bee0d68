"""Learning rates tuned for each row by successive halving.

Every row begins with the same number of rates: its own, the one as given where that is another,
those between, and powers of two around both. All are tried with one seed. While the lowest of them
is the best, or all diverge, the half of the lowest is tried too. The better half is then tried with
the next seed, the better half of these with a third, as long as there are trials left; a rate is as
good as the median of its trials. So a row's luck with one seed decides no more than its first half,
and each row gets as many trials as any other, whatever it spends them on.

Source: K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization" (2016), Algorithm 1, with seeds as the resource of which what is left gets more.

Trials are runs as any other, with seeds that no run has by which rows are compared, so that no row
is judged by the seed that chose its rate. The rates lie around the row's own; they
are compared by time to the target, and where none reaches it by the best validation
within as many epochs as a run may take. A row of which no trial reaches the target is not tuned,
nor is one that lost a trial, which would be compared with fewer than the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final, TypeAlias

import pandas as pd

from ampsim.errors import OptionError, SimulationError
from ampsim.forecasting.making import Made, RunMaker
from ampsim.metric import Goal
from ampsim.options import require_count
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, RunPlan
from ampsim.text import short

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
        shortfall: how bad the best validation was, where that decides; infinite if unknown, or if
            the trial diverged.
    """

    time_s: float
    shortfall: float

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be said for the rate."""
        return math.isinf(self.time_s) and math.isinf(self.shortfall)


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

_Search: TypeAlias = Generator[list[tuple[float, int]], Mapping[tuple[float, int], Score], None]

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


def halve(givens: Sequence[float], budget: int, try_all: TryAll) -> list[list[Candidate]]:
    """Try rates until each row has one left, or all of its trials are made.

    Returns:
        For each row its rates, the one that is left first, then those that went last.
    """
    found: list[list[Candidate]] = [[] for _ in givens]
    searches = {row: _search(budget, given, found[row]) for row, given in enumerate(givens)}
    wanted = {row: next(search) for row, search in searches.items()}
    while wanted:
        asked = [(row, *one) for row, of in wanted.items() for one in of]
        scores = try_all(asked)
        lost = Score(math.inf, math.inf)
        told = {
            row: {one: scores.get((row, *one), lost) for one in of} for row, of in wanted.items()
        }
        wanted.clear()
        for row, mine in told.items():
            try:
                wanted[row] = searches[row].send(mine)
            except StopIteration:
                continue
    return found


def _search(budget: int, given: float, found: list[Candidate]) -> _Search:
    """The trials of one row, round by round, as (factor, seed); puts its rates into `found`.

    No round of a single trial is left for the end: it would compare nothing.
    """
    left = trials_of(budget) - budget
    found += [Candidate(one) for one in factors(budget, given)]
    yield from _try(found, 0)
    while left and (left == 1 or _goes_down(found, given)):
        lower = Candidate(min(one.factor for one in found) / STEP)
        found.append(lower)
        left -= 1
        yield from _try([lower], 0)
    found.sort(key=lambda one: _order(one, given))
    alive, seed = math.ceil(budget / 2), 1
    while left:
        alive = min(alive, left)
        alive += left - alive == 1
        yield from _try(found[:alive], seed)
        found[:alive] = sorted(found[:alive], key=lambda one: _order(one, given))
        left, alive, seed = left - alive, math.ceil(alive / 2), seed + 1


def _try(candidates: Sequence[Candidate], seed: int) -> _Search:
    scores = yield [(one.factor, seed) for one in candidates]
    for one in candidates:
        one.scores.append(scores[one.factor, seed])


def _goes_down(found: Sequence[Candidate], given: float) -> bool:
    """Whether the lowest rate is the best so far, or nothing can be said for any."""
    best = min(found, key=lambda one: _order(one, given))
    is_lowest = best.factor == min(one.factor for one in found)
    return is_lowest or all(score.is_lost for one in found for score in one.scores)


def _order(one: Candidate, given: float) -> tuple[float, float, float]:
    """The better first; of rates that are alike the one nearest to the rate as given."""
    return (*one.rank, abs(math.log(one.factor / given)))


SEEDS: Final = 1_000_000
"""From the first seed of the runs to the first of the trials (chosen: more than there are runs)."""

COLUMNS: Final = (
    "schedule", "learning_rate", "factor", "seed", "epochs_to_target", "time_to_target_s",
    "best_accuracy", "best_error", "is_chosen", "note",
)  # fmt: skip
"""What `Forecast.trials` says of each trial."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of tuning.

    Args:
        entries: the rows, each with the rate that was best.
        trials: a row each, `COLUMNS`.
        untuned: why a row is not tuned, by the labels of those.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
        lost: one sentence for each trial whose process died.
    """

    entries: tuple[Row, ...]
    trials: pd.DataFrame
    untuned: Mapping[str, str] = field(default_factory=dict[str, str])
    interrupted: str | None = None
    lost: tuple[str, ...] = ()


def no_trials() -> pd.DataFrame:
    """The table of no trial."""
    return pd.DataFrame(columns=list(COLUMNS))


class _Interrupted(Exception):
    """Ctrl-C ended a round."""


class Tuner:
    """Tries learning rates of rows."""

    def __init__(self, entries: Sequence[Row], seed: int, goal: Goal, maker: RunMaker) -> None:
        """Try nothing yet."""
        self._entries, self._seed, self._goal, self._maker = entries, seed, goal, maker
        self._made: dict[Trial, dict[str, Any]] = {}
        self._broken: set[Trial] = set()
        self._lost: list[str] = []
        self._sentence: str | None = None

    def tune(self, budget: int) -> Tuned:
        """Give each row the best of so many rates.

        Raises:
            OptionError: nothing is measured in mode "sleep".
        """
        if any(one.plan.options.mode == "sleep" for one in self._entries):
            raise OptionError(
                "tune needs what is learned, and mode 'sleep' computes none of it; "
                "take mode 'numeric', or leave tuning out"
            )
        try:
            givens = [1 / one.plan.rate.factor for one in self._entries]
            found = halve(givens, budget, self._try_all)
        except _Interrupted:
            table = self._table({})
            return Tuned((), table, interrupted=self._sentence, lost=tuple(self._lost))
        reasons = [self._why_not(row, of, budget) for row, of in enumerate(found)]
        best = {row: of[0].factor for row, of in enumerate(found) if reasons[row] is None}
        entries = [
            one.at(one.plan.rate.tuned(of[0].factor, reason))
            for one, of, reason in zip(self._entries, found, reasons, strict=True)
        ]
        untuned = {one.label: why for one, why in zip(entries, reasons, strict=True) if why}
        return Tuned(tuple(entries), self._table(best), untuned, lost=tuple(self._lost))

    def _why_not(self, row: int, candidates: Sequence[Candidate], budget: int) -> str | None:
        """Why a row is not tuned; None where it is."""
        wanted, made = trials_of(budget), sum(one[0] == row for one in self._made)
        if made < wanted:
            return f"of its {wanted} trials {made} ended"
        scores = [score for one in candidates for score in one.scores]
        if self._goal.target is not None and all(math.isinf(one.time_s) for one in scores):
            return f"no trial reached {self._goal.text}"
        return None

    def _try_all(self, trials: Sequence[Trial]) -> Mapping[Trial, Score]:
        tasks = [
            self._entry(row, factor).task(self._seed + SEEDS + place, place + 1, place + 1)
            for row, factor, place in trials
        ]
        by_label = {(task.label, task.seed): one for task, one in zip(tasks, trials, strict=True)}
        try:
            made = self._maker.make(tasks)
        except SimulationError as error:  # the process of every trial of this round died
            if not self._made:
                raise
            made = Made((), None, (str(error),))
        self._lost += made.lost
        for run in (run for row in made.rows for run in row):
            trial = by_label[run.label, run.seed]
            self._made[trial] = self._row(run)
            if run.failure:
                self._broken.add(trial)
        if made.interrupted is not None:
            self._sentence = f"while tuning, {made.interrupted}"
            raise _Interrupted
        return {trial: self._score(trial) for trial in trials if trial in self._made}

    def _entry(self, row: int, factor: float) -> Row:
        one = self._entries[row]
        rate = replace(one.plan.rate, factor=one.plan.rate.factor * factor, is_by_rule=False)
        tried = one.at(rate)
        return replace(tried, label=f"{one.label}, rate {_rate(tried.plan):.3g}")

    def _row(self, run: Run) -> dict[str, Any]:
        return row_of(run.label, self._goal, [run])

    def _score(self, trial: Trial) -> Score:
        row, metric = self._made[trial], self._goal.metric
        time_s, best = row["time_to_target_s"], row[metric.best_column]
        shortfall = math.inf
        if best is not None and trial not in self._broken:
            shortfall = -best if metric.is_rising else best
        return Score(math.inf if time_s is None else time_s, shortfall)

    def _table(self, best: Mapping[int, float]) -> pd.DataFrame:
        """A row for each trial that was made, those of one row and rate beside each other."""
        rows = [
            {
                **made,
                "schedule": self._entries[row].label,
                "learning_rate": _rate(self._entry(row, factor).plan),
                "factor": factor,
                "seed": self._seed + SEEDS + place,
                "is_chosen": best.get(row) == factor,
            }
            for (row, factor, place), made in sorted(self._made.items())
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS)) if rows else no_trials()


def _rate(plan: RunPlan) -> float:
    return plan.model.optimizer.rate(0) * plan.rate.factor
