"""What a report over a grid of hardware has in place of one long table: a verdict, tables, maps."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from matplotlib.figure import Figure

from ampsim.report import words as markdown
from ampsim.report.frames import DataFrame, number, rows
from ampsim.report.grid import (
    BestRow,
    Contest,
    Costs,
    GridPoint,
    contest,
    contest_verdict,
    costs_cells,
    costs_verdict,
    grid_costs,
    value_words,
)
from ampsim.report.page.text import Picture
from ampsim.report.plot.grid import grid_cost, heat_map
from ampsim.report.table import format_count, format_ratio
from ampsim.units import UNKNOWN

_MAP = Picture(
    "heat-map.png",
    "Who is first where",
    "For each point of the grid, who is first and by how much",
    "A cell has the best row there, how many times as good it is as the best of the other side, "
    "and its median time to the target (or, where nothing was learned, its training throughput). "
    "Hatched: a tie, where the interval of the ratio of their times lies within 5 %, or open, "
    "where there are too few seeds to say who is first. "
    "The thick line parts the cells where ours are first in the median from the others.",
)
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
    found = _contest(findings, file)
    if found is not None:
        return contest_verdict(found), _point_table(found, findings, file)
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
    """The maps of a recipe with a grid, those that it names."""
    if getattr(file, "grid", None) is None:
        return []
    figures: list[tuple[Picture, Figure]] = []
    found = _contest(findings, file)
    if "heat-map" in wanted and found is not None and found.compared:
        figures.append((_MAP, heat_map(found)))
    costs = [one for one in grid_costs(findings.table, findings.cells)
             if one.measure.column in _DRAWN]  # fmt: skip
    if "grid-cost" in wanted and costs and len(costs[0].points) > 1:
        figures.append((_COST, grid_cost(costs)))
    return figures


_PLACE = (
    "Times, epochs and throughputs are medians of the repeats; in brackets, how many times that of "
    "the first column. Every row with all its numbers stands in report.csv."
)


_TIMES = (
    "Times to the target are medians, with intervals as in report.csv, where every row stands with "
    "all its numbers. Ours / others: how many times as soon. A tie: the interval of "
    "that lies within 5 %. Open: too few seeds to say."
)
_OF_DEVICES = (
    "Intervals here are over seeds alone: what the devices' numbers leave open, they leave open "
    "for both sides. In report.csv intervals hold that, too."
)
_RATES = (
    "Ours / others: how many times as fast. A tie: less than 5 % apart. Every row with all its "
    "numbers stands in report.csv."
)


def _contest(findings: Any, file: Any) -> Contest | None:
    if file.heat_map is None:
        return None
    return contest(findings.over_seeds, findings.cells, file.heat_map, findings.times)


def _costs(costs: list[Costs]) -> list[str]:
    parts: list[str] = []
    for one in costs:
        headings, *lines = costs_cells(one)
        table = markdown.table(headings, lines, left=("schedule",)).rstrip("\n")
        parts += [f"## {one.measure.heading.capitalize()}", table]
    return parts


def _point_table(found: Contest, findings: Any, file: Any) -> list[str]:
    """A table with a line for each point."""
    value = "time to the target" if found.is_time else "training throughput"
    known = ["epochs", value, "interval"] if found.is_time else [value]
    headings = [
        "at", "best of ours", *known, "best of the others", *(f"{one} " for one in known),
        "ours / others", "first",
    ]  # fmt: skip
    seen: dict[str, list[str]] = {}
    for place, point in found.compared:
        seen.setdefault(place, _line(place, point))
    left = ("at", "best of ours", "best of the others", "first")
    told = _TIMES if found.is_time else _RATES
    if "train_per_s_low" in findings.table:
        told = f"{told} {_OF_DEVICES}"
    return ["## Point by point", markdown.table(headings, seen.values(), left=left).rstrip("\n"),
            told]  # fmt: skip


def _line(place: str, point: GridPoint) -> list[str]:
    first = "nobody" if point.winner is None else point.winner.label
    if point.answer in ("tie", "too few seeds"):
        ahead = f", {first} in the median" if point.is_ranked else ""
        first = f"{'a tie' if point.answer == 'tie' else 'open'}{ahead}"
    sides = [*_side(point.group, point), *_side(point.others, point)]
    return [place, *sides, format_ratio(point.ratio), first]


def _side(best: BestRow | None, point: GridPoint) -> list[str]:
    if best is None:
        return ["not reached", *[UNKNOWN] * (3 if point.is_time else 1)]
    if not point.is_time:
        return [best.label, value_words(best.value, is_time=False)]
    value, low, high = (value_words(one, is_time=True) for one in (best.value, best.low, best.high))
    interval = f"[{low}, {high}]" if best.low < best.high else UNKNOWN
    return [best.label, format_count(best.epochs), value, interval]
