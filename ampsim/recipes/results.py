"""Results of a recipe: its table, intervals, and published numbers beside simulated ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from ampsim.data_parallel import SOLVERS
from ampsim.forecasting.intervals import Spreading, sentences_of, with_devices
from ampsim.forecasting.making import note_validation
from ampsim.metric import Goal
from ampsim.recipes.recipe import Cell, Published, Recipe
from ampsim.runs.rows import compared, is_draining_pipeline, row_of
from ampsim.runs.run import Run, RunTable
from ampsim.study.schedule_names import schedule_of_row

COLUMNS: Final = (
    "schedule",
    "quantity",
    "published",
    "simulated",
    "simulated_per_published",
    "published_ratio",
    "simulated_ratio",
    "source",
)


def compare(table: pd.DataFrame, published: Sequence[Published]) -> pd.DataFrame:
    """Put each published number beside that of the table's row; unknown is None.

    The ratios are to the first published number of the same quantity, and to what was simulated
    for that one: they can be compared where the hardware cannot.
    """
    values: dict[str, dict[str, Any]] = {
        str(row["schedule"]): {str(key): value for key, value in row.items()}
        for row in table.to_dict("records")
    }
    firsts: dict[str, tuple[float, float | None]] = {}
    rows: list[tuple[Any, ...]] = []
    for one in published:
        simulated = _known(values[one.schedule].get(one.quantity))
        first = firsts.setdefault(one.quantity, (one.value, simulated))
        rows.append(
            (
                one.schedule,
                one.quantity,
                one.value,
                simulated,
                _ratio(simulated, one.value),
                _ratio(one.value, first[0]),
                _ratio(simulated, first[1]),
                one.source,
            )
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _known(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


@dataclass(frozen=True, kw_only=True)
class Results(RunTable):
    """What a page is made of.

    Attributes:
        recipe: what was asked.
        table: one row a schedule, as in a forecast.
        comparison: published numbers beside simulated ones; see `compare`.
        runs: every run, in order.
        target: value of the metric aimed at; None without one.
        metric: what was measured.
        model: the model's name.
        cluster: the cluster's name.
        workers: how many workers.
        manifest: where it came from, all but the hashes of what is written.
        trials: of learning rates, as of a forecast; empty where none were tried.
    """

    recipe: Recipe
    comparison: pd.DataFrame

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Where each row of the table stands."""
        return self.recipe.cells


def tables_of(
    recipe: Recipe,
    goal: Goal,
    runs: Sequence[Run],
    rates: Sequence[Mapping[str, Any]],
    copies: Sequence[Mapping[str, Any]],
    *,
    spreads: Sequence[Spreading],
) -> tuple[dict[str, Any], list[str]]:
    """What `Results` has of the runs of a recipe, by its names, and sentences on the intervals.

    Args:
        recipe: what was asked.
        goal: what is measured, and the value aimed at.
        runs: every run, at least one of each row.
        rates: columns of each row's learning rate, which may be none.
        copies: columns of what each row trains copies of, likewise; they come last.
        spreads: what the intervals of its devices' numbers do to each row.
    """
    mine = [[run for run in runs if run.schedule == one.title] for one in recipe.file.schedules]
    rows = _rows(recipe, goal, mine, rates)
    for row, entry in zip(rows, recipe.file.schedules, strict=True):
        schedule = schedule_of_row(entry.name, entry)
        row["is_draining_pipeline"] = is_draining_pipeline(schedule)
    pairs = zip(with_devices(rows, mine, spreads), copies, strict=True)
    table = pd.DataFrame([{**row, **more} for row, more in pairs])
    of_runs = {
        "recipe": recipe,
        "table": table,
        "comparison": compare(table, recipe.file.published),
        "runs": tuple(runs),
        "target": recipe.file.target,
        "metric": goal.metric,
    }
    return of_runs, sentences_of(rows, mine, spreads, [cell.cluster for cell in recipe.cells])


def _rows(
    recipe: Recipe,
    goal: Goal,
    runs: Sequence[Sequence[Run]],
    rates: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The rows, but for what devices' intervals and copies say of them."""
    modes = {entry.title: entry.mode or recipe.file.mode for entry in recipe.file.schedules}
    rows = [
        {**_row(label, modes, goal, of), **rate}
        for label, of, rate in zip(modes, runs, rates, strict=True)
    ]
    note_validation(rows, [entry.name.casefold() in SOLVERS for entry in recipe.file.schedules])
    return compared(goal, rows, runs)


def _row(label: str, modes: dict[str, str], goal: Goal, runs: Sequence[Run]) -> dict[str, Any]:
    made = row_of(label, goal, runs)
    if len(set(modes.values())) > 1 and modes[label] == "sleep" and not made["note"]:
        made["note"] = "throughput only: one epoch without numbers"
    return made
