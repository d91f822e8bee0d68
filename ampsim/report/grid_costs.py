"""What each point of a grid costs each schedule, against the grid's first point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ampsim.report.contest import RowPoint, words
from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.table import format_count
from ampsim.units import format_percent, format_rate, format_seconds


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

    @property
    def is_known(self) -> bool:
        """Whether any value is."""
        return any(not math.isnan(value) for line in self.values for value in line)


def grid_costs(table: DataFrame, cells: Sequence[RowPoint]) -> list[Costs]:
    """Every measure that is known, of the schedules that it is known of, as `MEASURES` has them.

    Args:
        table: one row a schedule and point.
        cells: where each row stands; rows that were not multiplied over the whole grid are left
            out.
    """
    whole = [
        (cell.label, words(cell.point), row)
        for cell, row in zip(cells, rows(table), strict=True)
        if getattr(cell, "is_whole", False)
    ]
    labels = list(dict.fromkeys(label for label, _point, _row in whole))
    points = list(dict.fromkeys(point for _label, point, _row in whole))
    at: dict[tuple[str, str], Row] = {(label, point): row for label, point, row in whole}
    found: list[Costs] = []
    for measure in MEASURES:
        values = {
            label: [number(at.get((label, point), {}), measure.column) for point in points]
            for label in labels
        }
        known = [label for label in labels if not all(map(math.isnan, values[label]))]
        found.append(Costs(measure, known, points, [values[label] for label in known]))
    return [one for one in found if one.is_known]


def costs_verdict(found: Sequence[Costs]) -> str:
    """Between which ratios throughput and time to the target lie, and where: a sentence each."""
    told = [one for one in found if one.measure.column in ("train_per_s", "time_to_target_s")]
    sentences = [one for one in map(_range, told) if one]
    return " ".join(sentences) or "Nothing was run that can be compared."


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


def costs_cells(costs: Costs) -> list[list[Any]]:
    """The same as a table of texts: headings, then a line a schedule."""
    lines = [
        [label, *(_cell(costs, line, column) for column in range(len(costs.points)))]
        for line, label in enumerate(costs.labels)
    ]
    return [["schedule", *costs.points], *lines]


def _cell(costs: Costs, line: int, column: int) -> str:
    """A value, and how many times that of the first point it is."""
    shown = costs.measure.show(costs.values[line][column])
    ratio = costs.ratio(line, column)
    return shown if column == 0 or math.isnan(ratio) else f"{shown} ({ratio:.2f}×)"
