"""What each cluster costs the schedules of a report that runs all of them on several.

The figure has a panel a measure, in it a line a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.style import (
    FAINT_INK,
    IDLE,
    INK,
    LINES,
    Axes,
    colour_key,
    name_cells,
    new_figure,
    styled,
)
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


COST_COLOURS: Final = LinearSegmentedColormap.from_list(
    "better and worse", [LINES[6].colour, "#ffffff", LINES[5].colour]
)
"""Orange where a schedule does worse than at the first point, sky blue where it does better."""

_COST_IN = (0.98, 0.32)
_NAMES_IN = 1.9
_COST_RANGE = (0.25, 2.0)  # in octaves; chosen: as the least and most that colours tell apart


@styled
def grid_cost(found: Sequence[Costs]) -> Figure:
    """Panels below each other, each with a cell for a schedule at a point.

    A cell of the first column has the value there; all others have how many times that theirs is,
    orange where it is worse.
    """
    columns = max(len(one.points) for one in found)
    heights = [0.75 + len(one.labels) * _COST_IN[1] for one in found]
    figure = new_figure(_NAMES_IN + columns * _COST_IN[0], sum(heights) + 0.9)
    ratios = (
        costs.ratio(line, column)
        for costs in found
        for line in range(len(costs.labels))
        for column in range(len(costs.points))
    )
    scale = _octaves(ratios, *_COST_RANGE)
    grid = figure.add_gridspec(len(found), 1, height_ratios=heights)
    for index, costs in enumerate(found):
        axes = figure.add_subplot(grid[index, 0])
        axes.set_title(costs.measure.heading)
        _draw_costs(axes, costs, scale)
    end = float(scale.vmax or 0.0)
    marks = {one: f"{2.0 ** abs(one):.2f}×" for one in (-end, -end / 2, 0.0, end / 2, end)}
    bar = colour_key(
        figure, ScalarMappable(scale, COST_COLOURS), marks, aspect=30, shrink=0.9, pad=0.01
    )
    bar.set_label("← worse than in the first column      better →")
    return figure


def _draw_costs(axes: Axes, costs: Costs, scale: Normalize) -> None:
    for line in range(len(costs.labels)):
        for column in range(len(costs.points)):
            _draw_cost(axes, costs, (line, column), scale)
    name_cells(axes, [plain(p, 18) for p in costs.points], [plain(n, 24) for n in costs.labels])


def _draw_cost(axes: Axes, costs: Costs, place: tuple[int, int], scale: Normalize) -> None:
    line, column = place
    value, ratio = costs.values[line][column], costs.ratio(line, column)
    colour: Any = IDLE
    if ratio > 0:
        octaves = math.log2(ratio) * (1.0 if costs.measure.is_more_better else -1.0)
        low, high = float(scale.vmin or 0.0), float(scale.vmax or 0.0)
        colour = COST_COLOURS(scale(min(max(octaves, low), high)))
    _paint_cell(axes, (column, line), colour)
    shown = costs.measure.show(value) if column == 0 else f"{ratio:.2f}×"
    axes.text(
        column + 0.5, line + 0.5, "–" if math.isnan(value) else shown, ha="center", va="center",
        fontsize=8, color=FAINT_INK if math.isnan(value) else INK,
    )  # fmt: skip


def _octaves(ratios: Iterable[float], least: float, most: float) -> Normalize:
    """A scale of ratios in octaves, which colours tell from -end to end."""
    known = [abs(math.log2(one)) for one in ratios if 0.0 < one < math.inf]
    end = min(most, max([least, *known]))
    return Normalize(-end, end)


def _paint_cell(axes: Axes, place: tuple[int, int], colour: Any) -> None:
    axes.add_patch(Rectangle(place, 1.0, 1.0, facecolor=colour, edgecolor="white", linewidth=1.5))
