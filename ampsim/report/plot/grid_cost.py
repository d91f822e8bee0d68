"""What each point of a grid costs each schedule: a panel a measure, a line a schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
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

COLOURS: Final = LinearSegmentedColormap.from_list(
    "better and worse", [LINES[6].colour, "#ffffff", LINES[5].colour]
)
"""Orange where a schedule does worse than at the first point, sky blue where it does better."""

_CELL_IN = (0.98, 0.32)
_SIDE_IN = 1.9
_RANGE = (0.25, 2.0)  # in octaves; chosen: as the least and most that colours tell apart


@styled
def grid_cost(found: Sequence[Costs]) -> Figure:
    """Panels below each other, each with a cell for a schedule at a point.

    A cell of the first column has the value there; all others have how many times that theirs is,
    orange where it is worse.
    """
    columns = max(len(one.points) for one in found)
    heights = [0.75 + len(one.labels) * _CELL_IN[1] for one in found]
    figure = new_figure(_SIDE_IN + columns * _CELL_IN[0], sum(heights) + 0.9)
    scale = Normalize(*_range(found))
    grid = figure.add_gridspec(len(found), 1, height_ratios=heights)
    for index, costs in enumerate(found):
        axes = figure.add_subplot(grid[index, 0])
        axes.set_title(costs.measure.heading)
        _draw_panel(axes, costs, scale)
    end = float(scale.vmax or 0.0)
    marks = {one: f"{2.0 ** abs(one):.2f}×" for one in (-end, -end / 2, 0.0, end / 2, end)}
    bar = colour_key(figure, ScalarMappable(scale, COLOURS), marks, aspect=30, shrink=0.9, pad=0.01)
    bar.set_label("← worse than in the first column      better →")
    return figure


def _range(shown: Sequence[Costs]) -> tuple[float, float]:
    known = [
        abs(math.log2(ratio))
        for costs in shown
        for line in range(len(costs.labels))
        for column in range(len(costs.points))
        if (ratio := costs.ratio(line, column)) > 0
    ]
    end = min(_RANGE[1], max([_RANGE[0], *known]))
    return -end, end


def _draw_panel(axes: Axes, costs: Costs, scale: Normalize) -> None:
    for line in range(len(costs.labels)):
        for column in range(len(costs.points)):
            _draw_cell(axes, costs, (line, column), scale)
    name_cells(axes, [plain(p, 18) for p in costs.points], [plain(n, 24) for n in costs.labels])


def _draw_cell(axes: Axes, costs: Costs, place: tuple[int, int], scale: Normalize) -> None:
    line, column = place
    value, ratio = costs.values[line][column], costs.ratio(line, column)
    colour: Any = IDLE
    if ratio > 0:
        octaves = math.log2(ratio) * (1.0 if costs.measure.is_more_better else -1.0)
        low, high = float(scale.vmin or 0.0), float(scale.vmax or 0.0)
        colour = COLOURS(scale(min(max(octaves, low), high)))
    axes.add_patch(
        Rectangle((column, line), 1.0, 1.0, facecolor=colour, edgecolor="white", linewidth=1.5)
    )
    shown = costs.measure.show(value) if column == 0 else f"{ratio:.2f}×"
    axes.text(
        column + 0.5, line + 0.5, "–" if math.isnan(value) else shown, ha="center", va="center",
        fontsize=8, color=FAINT_INK if math.isnan(value) else INK,
    )  # fmt: skip
