"""The figure of what each cluster costs: a panel a measure, in it a line a schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ampsim.report.grid import Costs
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
from ampsim.report.words import plain

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
