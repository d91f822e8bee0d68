"""Tiny runs: a row on its leading instances, whose digest is a witness of what the code does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.study.leading import leading
from ampsim.study.outline import Outline
from ampsim.study.result import Result
from ampsim.study.row import row_of
from ampsim.study.row_plan import Row
from ampsim.study.task import Task
from ampsim.study.witness import TOLERANCE, Witness, condense, difference

TRAINED_MIN: Final = 24
"""Training instances of a tiny run at least (chosen: nodes update themselves several times)."""

TRAINED_MAX: Final = 40
"""And at most, twice as many as may be in flight (chosen: the witnesses of all shipped reports
are made in about two minutes of one core)."""

VALIDATED: Final = 4
"""Its validation instances (chosen: more than one is in flight)."""

_WORDS: Final = frozenset({"schedule", "note"})
"""Columns of a report's table that are sentences."""

_SELDOM: Final = frozenset({"energy_j", "energy_to_target_j", "cost_usd", "cost_to_target_usd"})
"""Columns that count only where they are known, as earlier witnesses have none."""


@dataclass(frozen=True, slots=True)
class TinyRun:
    """A tiny run of a row.

    Args:
        witness: what is kept of it.
        frames: its tables in full, to name a record that differs.
    """

    witness: Witness
    frames: Mapping[str, pd.DataFrame]

    def difference(self, before: Witness, tolerance: float = TOLERANCE) -> str | None:
        """Name the first record in which the run differs from another; None where none does."""
        return difference(before, self.frames, self.witness, tolerance)


def tiny_run(row: Row, goal: Goal, seed: int) -> TinyRun:
    """Run a row as its report does, on the leading instances, for one epoch.

    Args:
        row: of a recipe.
        goal: what the recipe measures.
        seed: of the run.

    Raises:
        MissingDataError: a data file that the model reads is not there.
    """
    return condensed(row, goal, *tiny_task(row, seed).run(None))


def tiny_task(row: Row, seed: int) -> Task:
    """The tiny run of a row, to be made."""
    model = leading(row.plan.model, _trained(row.schedule), VALIDATED)
    plan = replace(row.plan, model=model, max_epochs=1, stop_at=None)
    return Task(plan, row.schedule, seed, row.label, 1, 1)


def condensed(row: Row, goal: Goal, result: Result, failure: str | None) -> TinyRun:
    """What a tiny run of a row gave, and why it ended early if it did, as its witness."""
    outline = result.outline()
    frames = {
        "spans": result.spans,
        "transfers": result.transfers,
        "admissions": result.admissions,
        "updates": result.updates,
        "staleness": outline.staleness,
    }
    tables = {name: condense(frame) for name, frame in frames.items()}
    numbers = _numbers(row, goal, outline, failure)
    return TinyRun(Witness(tables, numbers, failure), frames)


def _trained(schedule: Schedule) -> int:
    """Instances in which as many as may be in flight are so, and what drains drains twice."""
    return min(TRAINED_MAX, max(TRAINED_MIN, 2 * (schedule.admission.in_flight_max or 1)))


def _numbers(row: Row, goal: Goal, outline: Outline, failure: str | None) -> dict[str, Any]:
    """Everything of a report's table, and what of its figures is computed and not recorded."""
    made = row_of(row.label, goal, [outline], [failure] if failure else [])
    numbers: dict[str, Any] = {
        f"{column} of epoch {place}": value
        for column in outline.epochs
        for place, value in enumerate(outline.epochs[column].tolist(), 1)
    }
    for column in outline.utilisation_by_worker:
        values: list[Any] = outline.utilisation_by_worker[column].tolist()
        numbers |= {f"{column} share of worker {place}": one for place, one in enumerate(values)}
    table = {
        name: value
        for name, value in made.items()
        if name not in _WORDS and (value is not None or name not in _SELDOM)
    }
    return {name: _plain(value) for name, value in {**numbers, **table}.items()}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
