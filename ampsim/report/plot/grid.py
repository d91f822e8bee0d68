"""Figures of a grid of hardware: whose best is first at each point, and what each point costs.

A map has a cell for each point, and the line between those where one side is first and the others.
Costs have a panel a measure, in it a line a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ampsim.report.grid import Contest, Costs, GridPoint, axis_words, value_words
from ampsim.report.style import (
    FAINT_INK,
    IDLE,
    INK,
    LINES,
    Axes,
    beside,
    colour_key,
    name_cells,
    new_figure,
    styled,
)
from ampsim.report.words import plain

Edge: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""Two ends of a line, each as column and line counted from the corner of the first cell."""

COLOURS: Final = LinearSegmentedColormap.from_list(
    "ours and others", [LINES[1].colour, "#ffffff", LINES[2].colour]
)
"""Blue where the others win, vermilion where ours do (Okabe and Ito), white where nobody does."""

_OPEN: Final = {"tie": ", a tie", "too few seeds": ", open"}
"""What a cell says behind a lead that is none, by the answer."""

_TIES: Final = ("a tie: less than 5 % apart", "a tie: within 5 %, or open: too few seeds")
_CELL_IN = (1.08, 0.66)
_SIDE_IN = 1.5
_BESIDE_MAX = 3
_HATCH_INK = "#7b8187"
_DARK = 0.45  # chosen: luminance below which letters are white
_RANGE_MIN = 1.0  # in octaves; chosen: a lead of a tenth is not drawn as loud as one of ten
_RANGE_MAX = 3.0  # chosen: beyond 8 times, colours say no more
_AXES: Final = {
    "latency_s": "latency of a link",
    "bandwidth_bytes_per_s": "bandwidth of a link",
    "workers": "workers",
    "cluster": "cluster",
    "topology": "topology",
}


@styled
def heat_map(found: Contest) -> Figure:
    """A panel for each value of the third key, a cell for each point: who is first, by how much.

    A cell is hatched where it is a tie, or where seeds are too few to say who is first. A thick
    line parts the cells where ours are first, in the median, from those where others are.
    """
    across, down = found.across[1], found.down[1]
    wide = beside(min(len(found.points), _BESIDE_MAX))
    tall = -(-len(found.points) // wide)
    size = (0.25 + len(across) * _CELL_IN[0], 1.0 + len(down) * _CELL_IN[1])
    figure = new_figure(max(5.8, _SIDE_IN + wide * size[0]), tall * size[1] + 1.1)
    scale = _octaves((one.ratio for _, one in found.compared), _RANGE_MIN, _RANGE_MAX)
    for index, (panel, points) in enumerate(zip(found.panels[1], found.points, strict=True)):
        axes = figure.add_subplot(tall, wide, index + 1)
        if panel is not None:
            axes.set_title(axis_words(found.panels[0], panel))
        _draw_panel(axes, found, points, scale)
        if index % wide:
            axes.set_yticks([])
            axes.set_ylabel("")
    _key(figure, found, scale)
    return figure


def winner_edges(signs: Sequence[Sequence[int]]) -> list[Edge]:
    """The sides of cells between those with sign 1 and those with sign -1.

    Args:
        signs: by line and column; 0 where nobody is first.

    >>> winner_edges([[1, -1], [1, 1]])
    [((1.0, 0.0), (1.0, 1.0)), ((1.0, 1.0), (2.0, 1.0))]
    """
    found: list[Edge] = []
    for y, line in enumerate(signs):
        for x, sign in enumerate(line):
            if x + 1 < len(line) and sign * line[x + 1] < 0:
                found.append(((x + 1.0, float(y)), (x + 1.0, y + 1.0)))
            if y + 1 < len(signs) and sign * signs[y + 1][x] < 0:
                found.append(((float(x), y + 1.0), (x + 1.0, y + 1.0)))
    return found


def sign_of(point: GridPoint | None) -> int:
    """1 where ours are first in the median, -1 where others are, 0 where nobody is."""
    if point is None or math.isnan(point.ratio) or point.ratio == 1.0:
        return 0
    return 1 if point.ratio > 1.0 else -1


def _octaves(ratios: Iterable[float], least: float, most: float) -> Normalize:
    """A scale of ratios in octaves, which colours tell from -end to end."""
    known = [abs(math.log2(one)) for one in ratios if 0.0 < one < math.inf]
    end = min(most, max([least, *known]))
    return Normalize(-end, end)


def _paint_cell(axes: Axes, place: tuple[int, int], colour: Any) -> None:
    axes.add_patch(Rectangle(place, 1.0, 1.0, facecolor=colour, edgecolor="white", linewidth=1.5))


def _draw_panel(
    axes: Axes, found: Contest, points: Sequence[Sequence[GridPoint | None]], scale: Normalize
) -> None:
    (across, columns), (down, lines) = found.across, found.down
    for y, line in enumerate(points):
        for x, point in enumerate(line):
            _draw_cell(axes, (x, y), point, scale)
    for (x0, y0), (x1, y1) in winner_edges([[sign_of(one) for one in line] for line in points]):
        axes.plot([x0, x1], [y0, y1], color=INK, linewidth=3.0, solid_capstyle="round", zorder=5)
    name_cells(
        axes,
        [axis_words(across, one) for one in columns],
        [axis_words(down, one) for one in lines],
    )
    axes.set_xlabel(_AXES[across])
    axes.set_ylabel(_AXES[down])


def _draw_cell(
    axes: Axes, place: tuple[int, int], point: GridPoint | None, scale: Normalize
) -> None:
    x, y = place
    winner = None if point is None else point.winner
    colour: Any = IDLE
    if point is not None and winner is not None:
        low, high = (2.0 ** float(one or 0.0) for one in (scale.vmin, scale.vmax))
        octaves = math.log2(min(max(point.ratio, low), high))
        colour = COLOURS(scale(octaves))
    is_open = point is not None and point.answer in _OPEN
    _paint_cell(axes, place, colour)
    if is_open:  # letters need a cell without a hatch behind them
        axes.add_patch(
            Rectangle(
                (x + 0.02, y + 0.03), 0.96, 0.94, facecolor=colour, edgecolor=_HATCH_INK,
                linewidth=0.0, hatch="////",
            )
        )  # fmt: skip
        axes.add_patch(
            Rectangle((x + 0.07, y + 0.15), 0.86, 0.7, facecolor=colour, linewidth=0.0, zorder=2)
        )
    axes.text(
        x + 0.5, y + 0.5, _cell_text(point), ha="center", va="center", fontsize=7.5,
        color=_ink_on(colour), linespacing=1.25, zorder=3,
    )  # fmt: skip


def _cell_text(point: GridPoint | None) -> str:
    if point is None:
        return "not run"
    winner = point.winner
    if winner is None:
        return "not reached"
    factor = max(point.ratio, 1.0 / point.ratio) if point.ratio > 0 else math.inf
    lead = "alone" if math.isinf(factor) else f"{factor:.2f}×"
    told = f"{lead}{_OPEN.get(point.answer or '', '')}"
    return f"{plain(winner.label, 20)}\n{told}\n{value_words(winner.value, is_time=point.is_time)}"


def _ink_on(colour: Any) -> str:
    """Black letters, or white ones on a dark cell."""
    if isinstance(colour, str):
        return FAINT_INK
    red, green, blue = colour[:3]
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < _DARK else INK


def _key(figure: Any, found: Contest, scale: Normalize) -> None:
    last = int(scale.vmax or 0)
    marks = {float(one): f"{2 ** abs(one)}×" for one in range(-last, last + 1)}
    bar = colour_key(figure, ScalarMappable(scale, COLOURS), marks, aspect=50, shrink=0.7, pad=0.03)
    group = plain(found.group_names, 48)
    what = "sooner at the target" if found.is_time else "faster"
    bar.set_label(f"← best of the others is {what}          {group} is {what} →")
    handles: list[Any] = []
    if any(point.answer in _OPEN for _, point in found.compared):
        told = _TIES[found.is_time]
        handles.append(Patch(facecolor="white", edgecolor=_HATCH_INK, hatch="////", label=told))
    if len({sign_of(point) for _, point in found.compared} - {0}) > 1:
        handles += figure.axes[0].plot(
            [], [], color=INK, linewidth=3.0, label="where the first changes"
        )
    if handles:
        figure.legend(handles=handles, loc="outside upper left", ncols=beside(2))


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
