"""What each point of a grid costs each schedule: a panel a measure, a line a schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ampsim.report.grid_costs import Costs
from ampsim.report.style import FAINT_INK, IDLE, INK, LINES, Axes, new_figure, styled
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
    shown = list(found)
    columns = max(len(one.points) for one in shown)
    heights = [0.75 + len(one.labels) * _CELL_IN[1] for one in shown]
    figure = new_figure(_SIDE_IN + columns * _CELL_IN[0], sum(heights) + 0.9)
    scale = Normalize(*_range(shown))
    grid = figure.add_gridspec(len(shown), 1, height_ratios=heights)
    for index, costs in enumerate(shown):
        axes = figure.add_subplot(grid[index, 0])
        axes.set_title(costs.measure.heading)
        _draw_panel(axes, costs, scale)
    _key(figure, scale)
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
    axes.set_xlim(0.0, len(costs.points))
    axes.set_ylim(len(costs.labels), 0.0)
    axes.set_xticks(
        [x + 0.5 for x in range(len(costs.points))], [plain(p, 18) for p in costs.points]
    )
    axes.set_yticks(
        [y + 0.5 for y in range(len(costs.labels))], [plain(n, 24) for n in costs.labels]
    )
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


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


def _key(figure: Any, scale: Normalize) -> None:
    bar = figure.colorbar(
        ScalarMappable(norm=scale, cmap=COLOURS), ax=figure.axes, orientation="horizontal",
        aspect=30, shrink=0.9, pad=0.01,
    )  # fmt: skip
    end = float(scale.vmax or 0.0)
    marks = [-end, -end / 2, 0.0, end / 2, end]
    bar.set_ticks(marks, labels=[f"{2.0 ** abs(one):.2f}×" for one in marks])
    bar.set_label("← worse than in the first column      better →")
    bar.outline.set_visible(False)
