"""Tuning of each row's settings by successive halving.

Every row begins with the same number of settings (`ampsim.forecasting.settings`). Where rates alone
are tuned, these are its own, the one as given where that is another, those between, and powers of
two around both. All are tried with one seed. While the lowest of the rates is the best, or all
diverge, the half of the lowest is tried too. The better half is then tried with the next seed, the
better half of these with a third, as long as there are trials left; a setting is as good as the
median of its trials. So a row's luck with one seed decides no more than its first half, and each
row gets as many trials as any other, whatever it spends them on.

Source: K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization" (2016), Algorithm 1, with seeds as the resource of which what is left gets more.

Trials are runs as any other, with seeds that no run has by which rows are compared, so that no row
is judged by the seed that chose its setting. They are compared by time to the target, and where
none reaches it by the best validation within as many epochs as a run may take. A row of which no
trial reaches the target is not tuned, nor is one that lost a trial, which would be compared with
fewer than the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Final

import pandas as pd

from ampsim.errors import OptionError
from ampsim.forecasting.making import RunMaker
from ampsim.forecasting.settings import (
    Choice,
    Score,
    SettingSpace,
    Trial,
    TryAll,
    rounds_of,
    search_all,
)
from ampsim.metric import Goal
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run
from ampsim.runs.task import Row, RunPlan
from ampsim.text import short

BUDGET: Final = 8  # rates that a row tries, unless told otherwise (chosen: a sixteenth to 16 times)
BUDGET_MAX: Final = 64  # most rates (chosen: neighbours are then a fifth apart)


def require_budget(budget: object) -> int:
    """Return how many rates each row tries.

    Raises:
        OptionError: it is no whole number from 2 to `BUDGET_MAX`.
    """
    if isinstance(budget, Integral) and 2 <= int(budget) <= BUDGET_MAX:
        return int(budget)
    raise OptionError(
        f"tune must be a whole number of learning rates from 2 to {BUDGET_MAX}, got "
        f"{short(budget)}; try {BUDGET}, or leave tuning out"
    )


SEEDS: Final = (
    1_000_000  # from a run's first seed to the trials' (chosen: more than there are runs)
)

COLUMNS: Final = (
    "schedule", "learning_rate", "factor", "seed", "epochs_to_target", "time_to_target_s",
    "best_accuracy", "best_error", "is_chosen", "note",
)  # fmt: skip
"""What `Forecast.trials` says of each trial; with `optimizer` where several were tried, and with
`setting` where more than rates were."""

SLACK: Final = 1.5
"""Times the epochs of a row's soonest trial after which others with as many in flight end; those of
more are shorter (chosen: seeds differ by less, and what takes longer is not chosen)."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """Rows with their best settings, and the trials."""

    entries: tuple[Row, ...]  # each with the setting that was best
    trials: pd.DataFrame  # a row each, `COLUMNS`
    untuned: Mapping[str, str] = field(default_factory=dict[str, str])  # why not, by label
    interrupted: str | None = None  # what was left out when Ctrl-C ended it
    lost: tuple[str, ...] = ()  # one sentence for each trial whose process died
    runs: tuple[Run, ...] = ()  # of all trials that ended


def no_trials() -> pd.DataFrame:
    """The table of no trial."""
    return pd.DataFrame(columns=list(COLUMNS))


class _Interrupted(Exception):
    """Ctrl-C ended a round; its text says what was left out."""


class Tuner:
    """Tries learning rates of rows."""

    def __init__(self, entries: Sequence[Row], seed: int, goal: Goal, maker: RunMaker) -> None:
        self._entries, self._seed, self._goal, self._maker = entries, seed, goal, maker
        self._spaces = [SettingSpace() for _ in entries]
        self._caps: dict[tuple[int, int], int] = {}  # by row and in flight, epochs
        self._made: dict[Trial, dict[str, Any]] = {}
        self._runs: dict[Trial, Run] = {}
        self._asked: Counter[int] = Counter()
        self._lost: list[str] = []

    def tune(self, budget: int, spaces: Sequence[SettingSpace] | None = None) -> Tuned:
        """Give each row the best of so many rates, or of what else may be set of it.

        Raises:
            OptionError: nothing is measured in mode "sleep".
        """
        if any(one.plan.options.mode == "sleep" for one in self._entries):
            raise OptionError(
                "tune needs what is learned, and mode 'sleep' computes none of it; "
                "take mode 'numeric', or leave tuning out"
            )
        rates = [SettingSpace(given=1 / one.plan.rate.factor) for one in self._entries]
        return self._searched(spaces or rates, budget, self._try_all, moves=0)

    def settle(
        self, spaces: Sequence[SettingSpace], start: int, caps: Mapping[int, int],
        is_spent: Callable[[Collection[Run]], bool],
    ) -> Tuned:  # fmt: skip
        """Give each row the best of its settings, of which it begins with `start`.

        `caps` are epochs at most, by row, of trials with its own number in flight. `is_spent` says
        whether trials have cost enough: asked when the settings are halved, then after each round.
        """
        self._caps = {(row, 0): epochs for row, epochs in caps.items()}

        def is_enough(rounds: int) -> bool:
            return rounds >= rounds_of(start) and is_spent(self._runs.values())

        return self._searched(spaces, start, self._try_capped, is_enough=is_enough)

    def _searched(
        self, spaces: Sequence[SettingSpace], start: int, try_all: TryAll, **options: Any
    ) -> Tuned:
        self._spaces = list(spaces)
        try:
            found = search_all(spaces, start, try_all, **options)
        except _Interrupted as left:
            return Tuned((), self._table({}), interrupted=str(left), lost=tuple(self._lost))
        return self._tuned([of[0].setting for of in found])

    def _try_capped(self, trials: Sequence[Trial]) -> Mapping[Trial, Score]:
        """Make trials, and end later ones that take clearly longer than the best of their kind."""
        scores = self._try_all(trials)
        arrived = [
            (made["time_to_target_s"], made["epochs_to_target"], row, setting.in_flight)
            for (row, setting, _seed), made in self._made.items()
            if made["time_to_target_s"] is not None
        ]
        for _time_s, epochs, row, in_flight in sorted(arrived, reverse=True):
            self._caps[row, in_flight] = math.ceil(SLACK * epochs)
        return scores

    def _tuned(self, best: Sequence[Choice]) -> Tuned:
        """The rows with the settings that were best."""
        entries, untuned, chosen = [*self._entries], dict[str, str](), dict[int, Choice]()
        for row, (one, setting) in enumerate(zip(self._entries, best, strict=True)):
            why = self._why_not(row)
            if self._asked[row]:
                entries[row] = self._spaces[row].chosen(one, setting, why)
            if why is None:
                chosen[row] = setting
            else:
                untuned[one.label] = why
        lost, runs = tuple(self._lost), tuple(self._runs.values())
        return Tuned(tuple(entries), self._table(chosen), untuned, None, lost, runs)

    def _why_not(self, row: int) -> str | None:
        """Why a row is not tuned; None where it is."""
        wanted, made = self._asked[row], [key for key in self._made if key[0] == row]
        if len(made) < wanted:
            return f"of its {wanted} trials {len(made)} ended"
        is_reached = any(self._made[key]["time_to_target_s"] is not None for key in made)
        if wanted and self._goal.target is not None and not is_reached:
            return f"no trial reached {self._goal.text}"
        return None

    def _try_all(self, trials: Sequence[Trial]) -> Mapping[Trial, Score]:
        tasks = [
            self._entry(row, setting).task(self._seed + SEEDS + place, place + 1, place + 1)
            for row, setting, place in trials
        ]
        self._asked.update(row for row, _setting, _place in trials)
        by_label = {(task.label, task.seed): one for task, one in zip(tasks, trials, strict=True)}
        made = self._maker.make(tasks, is_more=bool(self._made))
        self._lost += made.lost
        for run in (run for row in made.rows for run in row):
            trial = by_label[run.label, run.seed]
            self._made[trial] = row_of(run.label, self._goal, [run])
            self._runs[trial] = replace(run, made=None)  # hundreds of traces would fill the memory
        if made.interrupted is not None:
            raise _Interrupted(f"while tuning, {made.interrupted}")
        return {trial: self._score(trial) for trial in trials if trial in self._made}

    def _entry(self, row: int, setting: Choice) -> Row:
        tried = self._spaces[row].row_at(self._entries[row], setting)
        words = ", ".join(filter(None, [f"rate {_rate(tried.plan):.3g}", setting.words]))
        epochs = min(tried.plan.options.epochs, self._caps.get((row, setting.in_flight), math.inf))
        plan = tried.plan.having(is_explained=False, epochs=epochs)
        return replace(tried, label=f"{tried.label}, {words}", plan=plan)

    def _score(self, trial: Trial) -> Score:
        row, metric = self._made[trial], self._goal.metric
        time_s, best = row["time_to_target_s"], row[metric.best_column]
        shortfall = math.inf
        if best is not None and not self._runs[trial].failure:
            shortfall = -best if metric.is_rising else best
        return Score(math.inf if time_s is None else time_s, shortfall)

    def _table(self, best: Mapping[int, Choice]) -> pd.DataFrame:
        """A row for each trial that was made, those of one row and setting beside each other."""
        rows = [
            {
                **made,
                "schedule": self._entries[row].label,
                "learning_rate": _rate(self._entry(row, setting).plan),
                "factor": setting.factor,
                "seed": self._seed + SEEDS + place,
                "is_chosen": best.get(row) == setting,
                "setting": setting.words,
                "optimizer": self._entry(row, setting).plan.model.optimizer.name,
            }
            for (row, setting, place), made in sorted(self._made.items(), key=lambda one: one[0])
        ]
        names = [*COLUMNS, *(["setting"] if any(one["setting"] for one in rows) else [])]
        names += ["optimizer"] if any(setting.optimizer for _, setting, _ in self._made) else []
        return pd.DataFrame(rows, columns=names) if rows else no_trials()


def _rate(plan: RunPlan) -> float:
    return plan.model.optimizer.rate(0) * plan.rate.factor
