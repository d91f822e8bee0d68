"""Epochs and validations of every run as tables, beside a forecast, a report or a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ampsim.report.forecast import Forecast, runs_by_row
from ampsim.report.frames import DataFrame, joined
from ampsim.report.table import write_csv

EPOCHS: Final = "epochs.csv"
VALIDATIONS: Final = "validations.csv"


def epochs_of(forecast: Forecast) -> DataFrame | None:
    """A row for each epoch of each run, with its schedule's label and repeat; None without a run.

    The label is that of the legends: the schedule, and what sets it apart from its namesakes.
    """
    return _of_runs(forecast, "epochs")


def validations_of(forecast: Forecast) -> DataFrame | None:
    """The same of each validation; None where none is within an epoch."""
    return _of_runs(forecast, "validations")


def _of_runs(forecast: Forecast, name: str) -> DataFrame | None:
    frames: list[DataFrame] = []
    for label, runs in runs_by_row(forecast).items():
        for run in runs:
            table: Any = getattr(run, name, None)
            if table is None or not len(table.columns):
                continue
            untyped = table.copy()
            untyped.insert(0, "schedule", label)
            untyped.insert(1, "repeat", run.repeat)
            frames.append(untyped)
    return joined(frames) if frames else None


def write_epochs(forecast: Forecast, place: Path) -> list[Path]:
    """Writes epochs.csv and validations.csv into `place`; gives those that there are data for.

    Raises:
        OutputError: one cannot be written.
    """
    return [
        *write_csv(epochs_of(forecast), place / EPOCHS),
        *write_csv(validations_of(forecast), place / VALIDATIONS),
    ]
