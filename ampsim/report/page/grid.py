"""What a report on several clusters has in place of one long table: a verdict, tables, a figure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.figure import Figure

from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, number, rows
from ampsim.report.grid import Costs, costs_cells, costs_verdict, grid_costs
from ampsim.report.page.text import Picture
from ampsim.report.plot.grid import grid_cost
from ampsim.report.table import format_count

_COST = Picture(
    "grid-cost.png",
    "What it costs",
    "Throughput, time and energy to the target of each schedule, against the first column",
    "The first column has the value, the others how many times that theirs is; orange where it "
    "is worse. A dash: the target was not reached, or the number is not known.",
)
_DRAWN = ("train_per_s", "time_to_target_s", "energy_to_target_j")


def grid_parts(findings: Any, file: Any) -> tuple[str, list[str]]:
    """Verdict in plain text, and tables and legends in Markdown; both empty without a grid."""
    if getattr(file, "grid", None) is None:
        return "", []
    costs = grid_costs(findings.table, findings.cells)
    return costs_verdict(costs), [*_costs(costs), _PLACE]


def with_all_workers(said: str, table: DataFrame) -> str:
    """A sentence that begins with how many workers there are, with all counts of rows that differ.

    >>> import pandas as pd
    >>> with_all_workers("4 workers, 1 repeat.", pd.DataFrame({"workers": [4, 2, 4]}))
    '2 or 4 workers, 1 repeat.'
    """
    counts = sorted({number(row, "workers") for row in rows(table)})
    if len(counts) < 2:
        return said
    several = " or ".join([", ".join(map(format_count, counts[:-1])), format_count(counts[-1])])
    return re.sub(r"^\d+ workers?", f"{several} workers", said)


def without_rows(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest without what it says of each row, of which a grid makes very many."""
    return {key: value for key, value in manifest.items() if key != "schedules"}


def grid_figures(findings: Any, file: Any, wanted: Collection[str]) -> list[tuple[Picture, Figure]]:
    """The figure of a recipe with a grid, if it names it."""
    if getattr(file, "grid", None) is None or "grid-cost" not in wanted:
        return []
    every = grid_costs(findings.table, findings.cells)
    costs = [one for one in every if one.measure.column in _DRAWN]
    return [(_COST, grid_cost(costs))] if costs and len(costs[0].points) > 1 else []


_PLACE = (
    "Times, epochs and throughputs are medians of the repeats; in brackets, how many times that of "
    "the first column. Every row with all its numbers stands in report.csv."
)


def _costs(costs: list[Costs]) -> list[str]:
    parts: list[str] = []
    for one in costs:
        headings, *lines = costs_cells(one)
        table = markdown.table(headings, lines, left=("schedule",)).rstrip("\n")
        parts += [f"## {one.measure.heading.capitalize()}", table]
    return parts
