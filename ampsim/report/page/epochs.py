"""The epochs of every run as one table, for epochs.csv beside a forecast, a report or a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ampsim.report.forecast import Forecast, runs_by_row
from ampsim.report.frames import DataFrame, joined
from ampsim.report.table import write_csv

EPOCHS: Final = "epochs.csv"


def epochs_of(forecast: Forecast) -> DataFrame | None:
    """A row for each epoch of each run, with its schedule's label and repeat; None without a run.

    The label is that of the legends: the schedule, and what sets it apart from its namesakes.
    """
    frames: list[DataFrame] = []
    for label, runs in runs_by_row(forecast).items():
        for run in runs:
            untyped: Any = run.epochs.copy()
            untyped.insert(0, "schedule", label)
            untyped.insert(1, "repeat", run.repeat)
            frames.append(untyped)
    return joined(frames) if frames else None


def write_epochs(forecast: Forecast, place: Path) -> list[Path]:
    """Writes epochs.csv into `place`; gives it in a list, which is empty without a run.

    Raises:
        OutputError: it cannot be written.
    """
    return write_csv(epochs_of(forecast), place / EPOCHS)
