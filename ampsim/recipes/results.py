"""What a recipe's runs gave, whether they were made now or read from outlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ampsim.data_parallel import SOLVERS
from ampsim.metric import Goal, Metric
from ampsim.recipes.borrowed import borrowed
from ampsim.recipes.grid import Cell
from ampsim.recipes.recipe import Recipe
from ampsim.study.device_rows import sentences_of, with_devices
from ampsim.study.device_spread import Spreading
from ampsim.study.finished_run import FinishedRun
from ampsim.study.ranking import rank
from ampsim.study.row import compared, row_of, times_of
from ampsim.study.validation_time import note_validation


@dataclass(frozen=True)
class Results:
    """What a page is made of.

    Attributes:
        recipe: what was asked.
        table: one row a schedule, as in a forecast.
        over_seeds: the same, with intervals over seeds alone: where no device's number has an
            interval, as `table`.
        comparison: published numbers beside simulated ones; see `compare`.
        runs: every run, in order.
        target: value of the metric aimed at; None without one.
        metric: what was measured.
        model: the model's name.
        cluster: the cluster's name.
        workers: how many workers.
        flop_per_s: FLOP rate of all devices, where the heat map has others; None where it has not.
        manifest: where it came from, all but the hashes of what is written.
        trials: of learning rates, as of a forecast; empty where none were tried.
    """

    recipe: Recipe
    table: pd.DataFrame
    over_seeds: pd.DataFrame
    comparison: pd.DataFrame
    runs: tuple[FinishedRun, ...] = field(repr=False)
    target: float | None
    metric: Metric
    model: str
    cluster: str
    workers: int
    flop_per_s: float | None
    manifest: dict[str, Any] = field(repr=False)
    trials: pd.DataFrame = field(repr=False)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Where each row of the table stands."""
        return self.recipe.cells

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed."""
        return [f"{run.schedule}: {run.failure}" for run in self.runs if run.failure]


@dataclass(frozen=True, slots=True)
class Tables:
    """What the rows of a recipe say together.

    Args:
        table: as of `Results`.
        over_seeds: likewise.
        assumed: sentences on the intervals of the devices' numbers; none without such.
    """

    table: pd.DataFrame
    over_seeds: pd.DataFrame
    assumed: list[str]


def tables_of(
    recipe: Recipe,
    goal: Goal,
    runs: Sequence[FinishedRun],
    rates: Sequence[Mapping[str, Any]],
    copies: Sequence[Mapping[str, Any]],
    *,
    spreads: Sequence[Spreading],
) -> Tables:
    """A row for each schedule of a recipe.

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
    points = [tuple(sorted(cell.point.items())) for cell in recipe.cells]
    return Tables(
        table=_with(with_devices(rows, mine, spreads), copies),
        over_seeds=_with(rows, copies),
        assumed=sentences_of(rows, mine, spreads, points),
    )


def _rows(
    recipe: Recipe,
    goal: Goal,
    runs: Sequence[Sequence[FinishedRun]],
    rates: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The rows, but for what devices' intervals and copies say of them."""
    modes = {entry.title: entry.mode or recipe.file.mode for entry in recipe.file.schedules}
    outlines = [[run.outline for run in of] for of in runs]
    ranking = rank(
        [
            times_of(goal, [run.seed for run in of], made)
            for of, made in zip(runs, outlines, strict=True)
        ]
    )
    rows = [
        {**_row(label, modes, goal, of), **rate}
        for label, of, rate in zip(modes, runs, rates, strict=True)
    ]
    note_validation(rows, [entry.name.casefold() in SOLVERS for entry in recipe.file.schedules])
    lenders = {entry.title: entry.epochs_of for entry in recipe.file.schedules if entry.epochs_of}
    if not lenders:  # ranks are of rows that all learned themselves
        return compared(goal, rows, outlines, ranking)
    by_label = dict(zip(modes, runs, strict=True))
    for place, row in enumerate(rows):
        lender, own = lenders.get(row["schedule"]), by_label[row["schedule"]]
        if lender is not None and not any(run.failure for run in own):
            rows[place] = borrowed(row, goal, own, by_label[lender])
    return rows


def _with(rows: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of rows with further columns."""
    return pd.DataFrame([{**row, **more} for row, more in zip(rows, columns, strict=True)])


def _row(
    label: str, modes: dict[str, str], goal: Goal, runs: Sequence[FinishedRun]
) -> dict[str, Any]:
    failures = [run.failure for run in runs if run.failure]
    made = row_of(label, goal, [run.outline for run in runs], failures)
    if len(set(modes.values())) > 1 and modes[label] == "sleep" and not made["note"]:
        made["note"] = "throughput only: one epoch without numbers"
    return made
