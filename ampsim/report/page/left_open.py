"""What a comparison leaves open though it could be known: sentences for behind the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ampsim.metric import Goal
from ampsim.report.forecast import Forecast, looks_of, runs_by_row
from ampsim.report.frames import Row, floats, number, rows, text
from ampsim.report.page.tuning_tables import trials_of
from ampsim.report.words import listed, plain

_NAMED: Final = 4
"""Rows that a sentence names at most (chosen: of more it says how many there are)."""


def left_open(forecast: Forecast) -> str:
    """Rows that may have arrived before the first look, and rates at the end of what was tried."""
    return " ".join(filter(None, [_first_look(forecast), _ends_of_rates(forecast)]))


def rows_at_first_look(forecast: Forecast) -> list[str]:
    """Rows that had reached the target when they were first validated, in half of their runs."""
    if forecast.target is None:
        return []
    goal = Goal(forecast.metric, forecast.target)
    found: list[str] = []
    for label, runs in runs_by_row(forecast).items():
        scores = [floats(looks_of(run), forecast.metric.kind) for run in runs]
        early = sum(goal.reached_by(one) == 0 for one in scores)
        if runs and 2 * early > len(runs):
            found.append(label)
    return found


def _first_look(forecast: Forecast) -> str:
    names = rows_at_first_look(forecast)
    if not names:
        return ""
    was = "was" if len(names) == 1 else "were"
    return (
        f"{_names(names)} {was} there at the first validation, and may have been there sooner: "
        "validation within epochs, --validate-every or the recipe's validate_every, tells."
    )


def _ends_of_rates(forecast: Forecast) -> str:
    """Which rows have the lowest or the highest of the rates that they tried."""
    trials = trials_of(forecast)
    if trials is None:
        return ""
    by_row: dict[str, list[Row]] = {}
    for row in rows(trials):
        by_row.setdefault(text(row, "schedule"), []).append(row)
    ends: dict[str, list[str]] = {"lowest": [], "highest": []}
    for name, of in by_row.items():
        tried = {number(row, "factor") for row in of}
        chosen = {number(row, "factor") for row in of if number(row, "is_chosen") == 1}
        if len(tried) > 1 and chosen:
            if min(tried) in chosen:
                ends["lowest"].append(name)
            elif max(tried) in chosen:
                ends["highest"].append(name)
    told = [
        f"{_names(names)} {'has' if len(names) == 1 else 'have'} the {end} rate of those tried"
        for end, names in ends.items()
        if names
    ]
    return f"{', '.join(told)}: rates beyond may be better." if told else ""


def _names(names: Sequence[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} rows"
    return listed([plain(name, 32) for name in names])
