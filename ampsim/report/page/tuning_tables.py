"""The learning rates that were tried before the rows of a forecast were compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from ampsim.report.columns import format_count
from ampsim.report.forecast import Forecast
from ampsim.report.frames import DataFrame, Row, number, rows, text
from ampsim.report.page.node_tables import NamedTable
from ampsim.report.table import write_csv
from ampsim.report.words import plain
from ampsim.units import format_seconds

TRIALS: Final = "trials.csv"
HEADING: Final = "Learning rates that were tried"
_NOT_REACHED: Final = "not reached"


def trials_of(forecast: Forecast) -> DataFrame | None:
    """The table of trials; None of a forecast that tuned nothing."""
    found: Any = getattr(forecast, "trials", None)
    return found if found is not None and len(found) else None


def tuning_tables(forecast: Forecast) -> list[NamedTable]:
    """One table, a line for each rate of each row; none of a forecast that tuned nothing."""
    trials = trials_of(forecast)
    if trials is None:
        return []
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows(trials):
        key = (text(row, "schedule"), number(row, "learning_rate"))
        groups.setdefault(key, []).append(row)
    lines = [
        [
            plain(name, 60),
            f"{rate:.3g}",
            "best" if any(number(one, "is_chosen") == 1 for one in of) else "",
            ", ".join(map(_epochs, of)),
            ", ".join(map(_when, of)),
        ]
        for (name, rate), of in groups.items()
    ]
    headings = ["what", "learning rate", "chosen", "epochs of each seed", "time of each seed"]
    return [(HEADING, [headings, *lines])]


def write_trials(forecast: Forecast, place: Path) -> list[Path]:
    """Write trials.csv into `place`; give it in a list, which is empty without a trial.

    Raises:
        OutputError: it cannot be written.
    """
    return write_csv(trials_of(forecast), place / TRIALS)


def _epochs(row: Row) -> str:
    epochs = number(row, "epochs_to_target")
    return _NOT_REACHED if math.isnan(epochs) else format_count(epochs)


def _when(row: Row) -> str:
    time_s = number(row, "time_to_target_s")
    return _NOT_REACHED if math.isnan(time_s) else format_seconds(time_s)
