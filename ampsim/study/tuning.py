"""Learning rates of a forecast's rows, tuned with the same number of trials for each.

Trials are runs as any other, with seeds that no run has by which rows are compared, so that no row
is judged by the seed that chose its rate. The rates are those of `ampsim.study.halving` around the
row's own; they are compared by time to the target, and where none reaches it by the best validation
within as many epochs as a run may take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from ampsim.errors import OptionError
from ampsim.metric import Goal
from ampsim.study.forecast_runs import Run, RunMaker
from ampsim.study.halving import Candidate, Score, Trial, halve
from ampsim.study.repeats import Entry
from ampsim.study.row import row_of

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
        unreached: labels of the rows of which no trial reached the target.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
        lost: one sentence for each trial whose process died.
    """

    entries: tuple[Entry, ...]
    trials: pd.DataFrame
    unreached: tuple[str, ...] = ()
    interrupted: str | None = None
    lost: tuple[str, ...] = ()


def no_trials() -> pd.DataFrame:
    """The table of no trial."""
    return pd.DataFrame(columns=list(COLUMNS))


class _Interrupted(Exception):
    """Ctrl-C ended a round."""


class Tuner:
    """Tries learning rates of rows.

    Args:
        entries: the rows, each with the rate around which is tried.
        seed: of the first run by which rows are compared.
        goal: what is aimed at.
        maker: makes the trials.
    """

    def __init__(self, entries: Sequence[Entry], seed: int, goal: Goal, maker: RunMaker) -> None:
        """Try nothing yet."""
        self._entries, self._seed, self._goal, self._maker = entries, seed, goal, maker
        self._made: dict[Trial, dict[str, Any]] = {}
        self._lost: list[str] = []
        self._sentence: str | None = None

    def tune(self, budget: int) -> Tuned:
        """Give each row the best of so many rates.

        Raises:
            OptionError: nothing is measured in mode "sleep".
        """
        if any(one.plan.mode == "sleep" for one in self._entries):
            raise OptionError(
                "tune needs what is learned, and mode 'sleep' computes none of it; "
                "take mode 'numeric', or leave tuning out"
            )
        try:
            found = halve(len(self._entries), budget, self._try_all)
        except _Interrupted:
            table = self._table({})
            return Tuned((), table, interrupted=self._sentence, lost=tuple(self._lost))
        best = {row: candidates[0] for row, candidates in enumerate(found)}
        entries = [
            replace(one, plan=replace(one.plan, rate=one.plan.rate.tuned(best[row].factor)))
            for row, one in enumerate(self._entries)
        ]
        unreached = [one.label for one, of in zip(self._entries, found, strict=True) if _never(of)]
        named = tuple(unreached) if self._goal.target is not None else ()
        return Tuned(tuple(entries), self._table(best), named, lost=tuple(self._lost))

    def _try_all(self, trials: Sequence[Trial]) -> Mapping[Trial, Score]:
        tasks = [
            self._entry(row, factor).task(self._seed + SEEDS + place, place + 1, place + 1)
            for row, factor, place in trials
        ]
        by_label = {(task.label, task.seed): one for task, one in zip(tasks, trials, strict=True)}
        made = self._maker.make(tasks)
        self._lost += made.lost
        for run in (run for row in made.rows for run in row):
            self._made[by_label[run.label, run.seed]] = self._row(run)
        if made.interrupted is not None:
            self._sentence = f"while tuning, {made.interrupted}"
            raise _Interrupted
        return {trial: self._score(row) for trial, row in self._made.items()}

    def _entry(self, row: int, factor: float) -> Entry:
        one = self._entries[row]
        plan = replace(one.plan, rate=replace(one.plan.rate, factor=one.plan.rate.factor * factor))
        return Entry(f"{one.label}, rate {_rate(plan):.3g}", one.schedule, plan)

    def _row(self, run: Run) -> dict[str, Any]:
        return row_of(run.label, self._goal, [run.outline], [run.failure] if run.failure else [])

    def _score(self, row: Mapping[str, Any]) -> Score:
        time_s, best = row["time_to_target_s"], row[self._goal.metric.best_column]
        shortfall = math.inf if best is None else -best if self._goal.metric.is_rising else best
        return Score(math.inf if time_s is None else time_s, shortfall)

    def _table(self, best: Mapping[int, Candidate]) -> pd.DataFrame:
        """A row for each trial that was made, those of one row and rate beside each other."""
        rows = [
            {
                **made,
                "schedule": self._entries[row].label,
                "learning_rate": _rate(self._entry(row, factor).plan),
                "factor": factor,
                "seed": self._seed + SEEDS + place,
                "is_chosen": row in best and best[row].factor == factor,
            }
            for (row, factor, place), made in sorted(self._made.items())
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS)) if rows else no_trials()


def _rate(plan: Any) -> float:
    return plan.model.optimizer.rate(0) * plan.rate.factor


def _never(candidates: Sequence[Candidate]) -> bool:
    return all(not math.isfinite(one.time_s) for of in candidates for one in of.scores)
