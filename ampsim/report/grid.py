"""What each cluster costs the schedules of a report that runs all of them on several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.table import format_count
from ampsim.report.words import plain
from ampsim.units import format_percent, format_rate, format_seconds

NOTHING: Final = "Nothing was run that can be compared."


def cluster_words(cluster: str) -> str:
    """A cluster's name; of a file, that without its folder.

    >>> cluster_words("./a.toml")
    'a'
    """
    return plain(cluster.rpartition("/")[2].removesuffix(".toml"), 32)


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table whose values are compared.

    Attributes:
        column: of the table.
        heading: what it is, in words.
        show: a value in words.
        is_more_better: whether larger values are better.
    """

    column: str
    heading: str
    show: Callable[[float], str]
    is_more_better: bool


def _joules(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g} J"


MEASURES: Final = (
    Measure("train_per_s", "training throughput", format_rate, is_more_better=True),
    Measure("best_accuracy", "best accuracy", format_percent, is_more_better=True),
    Measure("epochs_to_target", "epochs to the target", format_count, is_more_better=False),
    Measure("time_to_target_s", "time to the target", format_seconds, is_more_better=False),
    Measure("energy_to_target_j", "energy to the target", _joules, is_more_better=False),
)


@dataclass(frozen=True, slots=True)
class Costs:
    """One measure of each schedule at each point.

    Attributes:
        measure: which.
        labels: of the schedules, the lines.
        points: in words, the columns.
        values: by line and column; NaN where it is unknown.
    """

    measure: Measure
    labels: list[str]
    points: list[str]
    values: list[list[float]]

    def ratio(self, line: int, column: int) -> float:
        """A value over that of the first point; NaN where one is unknown."""
        first = self.values[line][0]
        return self.values[line][column] / first if first > 0 else math.nan


def grid_costs(table: DataFrame, cells: Sequence[Any]) -> list[Costs]:
    """Every measure that is known, of the schedules that it is known of, as `MEASURES` has them.

    Args:
        table: one row a schedule and cluster.
        cells: where each row stands, as `ampsim.recipes.recipe.Cell`; rows on one cluster alone
            are left out.
    """
    at: dict[tuple[str, str], Row] = {
        (cell.label, cluster_words(cell.cluster)): row
        for cell, row in zip(cells, rows(table), strict=True)
        if cell.cluster is not None
    }
    labels, points = (list(dict.fromkeys(key[part] for key in at)) for part in (0, 1))
    found: list[Costs] = []
    for measure in MEASURES:
        values = {
            label: [number(at.get((label, point), {}), measure.column) for point in points]
            for label in labels
        }
        known = [label for label in labels if not all(map(math.isnan, values[label]))]
        if known:
            found.append(Costs(measure, known, points, [values[label] for label in known]))
    return found


def costs_verdict(found: Sequence[Costs]) -> str:
    """Between which ratios throughput and time to the target lie, and where: a sentence each."""
    told = [one for one in found if one.measure.column in ("train_per_s", "time_to_target_s")]
    return " ".join(one for one in map(_range, told) if one) or NOTHING


def _range(costs: Costs) -> str:
    """The smallest and the largest ratio to the first point; empty where none is known."""
    known = [
        (costs.ratio(line, column), f"{label}, {point}")
        for line, label in enumerate(costs.labels)
        for column, point in enumerate(costs.points)
        if column and not math.isnan(costs.ratio(line, column))
    ]
    if not known:
        return ""
    ends = {f"{ratio:.2f} times ({place})": None for ratio, place in (min(known), max(known))}
    return f"{costs.measure.heading.capitalize()} is {' to '.join(ends)} that of {costs.points[0]}."


def costs_cells(costs: Costs) -> list[list[str]]:
    """The same as a table of texts: headings, then a line a schedule.

    A cell has a value, and how many times that of the first point it is.
    """
    lines: list[list[str]] = []
    for line, label in enumerate(costs.labels):
        shown = [costs.measure.show(value) for value in costs.values[line]]
        ratios = [costs.ratio(line, column) for column in range(1, len(shown))]
        told = ["" if math.isnan(one) else f" ({one:.2f}×)" for one in ratios]
        cells = [f"{value}{more}" for value, more in zip(shown, ["", *told], strict=True)]
        lines.append([label, *cells])
    return [["schedule", *costs.points], *lines]
