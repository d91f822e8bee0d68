"""A report's runs: each schedule with each seed, taken from the store where it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.metric import Metric
from ampsim.study.jobs import Task, run_all
from ampsim.study.outline import Outline
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import costs, software
from ampsim.study.recipe import RECIPE, Recipe
from ampsim.study.recipe_compare import compare
from ampsim.study.recipe_plan import Row, Rows, make_rows
from ampsim.study.recipe_store import FOLDER, RunStore, key_of
from ampsim.study.result import Result
from ampsim.study.row import row_of
from ampsim.study.source_digest import source_digest

KIND: Final = "report"
FORMAT: Final = 1


@dataclass(frozen=True)
class RecipeRun:
    """One run of a report.

    Args:
        schedule: label of its row.
        repeat: which of the row's runs, from 1.
        seed: its seed.
        outline: its numbers and tables.
        failure: why it ended early; None where it did not.
    """

    schedule: str
    repeat: int
    seed: int
    outline: Outline = field(repr=False)
    failure: str | None = None

    @property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch."""
        return self.outline.epochs

    @property
    def spans(self) -> pd.DataFrame:
        """The leading spans."""
        return self.outline.spans

    @property
    def messages(self) -> int:
        """Spans in all, kept or not."""
        return self.outline.messages

    @property
    def staleness(self) -> pd.DataFrame:
        """The histogram of all gradients."""
        return self.outline.staleness

    @property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """The share of the time that each worker spends on steps of each direction."""
        return self.outline.utilisation_by_worker


@dataclass(frozen=True)
class Findings:
    """What a recipe's runs gave; a page is made of it.

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
    """

    recipe: Recipe
    table: pd.DataFrame
    comparison: pd.DataFrame
    runs: tuple[RecipeRun, ...] = field(repr=False)
    target: float | None
    metric: Metric
    model: str
    cluster: str
    workers: int
    manifest: dict[str, Any] = field(repr=False)

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed."""
        return [f"{run.schedule}: {run.failure}" for run in self.runs if run.failure]


class InterruptedReport(KeyboardInterrupt):
    """Ctrl-C in the midst of a report's runs; those that finished are kept.

    Attributes:
        finished: how many runs are kept.
        planned: how many there are.
    """

    def __init__(self, finished: int, planned: int) -> None:
        """Count the runs."""
        super().__init__(f"interrupted: {finished} of {planned} runs are kept; run again to go on")
        self.finished = finished
        self.planned = planned


def run_recipe(
    recipe: Recipe,
    folder: Path,
    *,
    jobs: int = 1,
    on_progress: OnProgress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Findings:
    """Run what is not in the store of `folder` yet, and gather everything.

    Args:
        recipe: what to run.
        folder: the report's; finished runs are kept in a folder within.
        jobs: runs to make at a time.
        on_progress: told of each run that is made.
        say: told in a line of each run that is taken from the store.

    Raises:
        FileFormatError: something in the recipe does not fit.
        MissingDataError: a data file is not there.
        InterruptedReport: Ctrl-C; what finished is kept.
    """
    rows, store = make_rows(recipe), RunStore(folder / FOLDER)
    seeds = recipe.file.seeds
    tasks = [
        Task(row.plan, row.schedule, seed, row.label, repeat, len(seeds))
        for row in rows.rows
        for repeat, seed in enumerate(seeds, 1)
    ]
    keys = [key_of(row.decided_by(seed)) for row in rows.rows for seed in seeds]
    made = {key: kept for key in keys if (kept := store.get(key)) is not None}
    left: dict[str, Task] = {}
    for task, key in zip(tasks, keys, strict=True):
        if key in made:
            say(f"{task.label}, seed {task.seed}: kept from before")
        else:
            left.setdefault(key, task)
    order = list(left)

    def keep(place: int, result: Result, failure: str | None) -> None:
        outline, key = result.outline(), order[place]
        store.put(key, outline, failure)
        made[key] = (outline, failure)

    try:
        run_all(list(left.values()), jobs, on_progress, keep)
    except KeyboardInterrupt:
        raise InterruptedReport(sum(key in made for key in keys), len(keys)) from None
    runs = [
        RecipeRun(task.label, task.repeat, task.seed, *made[key])
        for task, key in zip(tasks, keys, strict=True)
    ]
    return _gather(recipe, rows, runs)


def _gather(recipe: Recipe, rows: Rows, runs: list[RecipeRun]) -> Findings:
    table = pd.DataFrame([_row(row, rows, runs) for row in rows.rows])
    file = recipe.file
    manifest = {
        "kind": KIND,
        "format": FORMAT,
        **software(),
        "command": ["ampsim", "report", recipe.name],
        "code": source_digest(),
        "recipe": {"file": RECIPE, "sha256": recipe.sha256},
        "seeds": file.seeds,
        "epochs": file.epochs,
        "max_epochs": file.max_epochs,
        "target": file.target,
        "metric": rows.goal.metric.kind,
        "instances": "all" if file.instances is None else file.instances,
        **rows.origin,
        "costs": costs(rows.cluster),
    }
    return Findings(
        recipe=recipe,
        table=table,
        comparison=compare(table, file.published),
        runs=tuple(runs),
        target=file.target,
        metric=rows.goal.metric,
        model=rows.model.name,
        cluster=rows.cluster.name,
        workers=rows.cluster.workers,
        manifest=manifest,
    )


def _row(row: Row, rows: Rows, runs: list[RecipeRun]) -> dict[str, Any]:
    mine = [run for run in runs if run.schedule == row.label]
    failures = [run.failure for run in mine if run.failure]
    made = row_of(row.label, rows.goal, [run.outline for run in mine], failures)
    modes = {one.plan.mode for one in rows.rows}
    if len(modes) > 1 and row.plan.mode == "sleep" and not made["note"]:
        made["note"] = "throughput only: one epoch without numbers"
    return made
