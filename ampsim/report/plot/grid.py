"""A grid of several clusters: what each costs the schedules of a report.

The figure has a panel a measure, in it a line a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ampsim.report.frames import DataFrame, Floats, Row, number, rows
from ampsim.report.style import FAINT_INK, IDLE, INK, LINES, Axes, new_figure, styled
from ampsim.report.words import told_apart
from ampsim.text import distinct
from ampsim.units import format_count, format_percent, format_rate, format_seconds

NOTHING: Final = "Nothing was run that can be compared."


def cluster_words(clusters: Iterable[str]) -> dict[str, str]:
    """The name of each cluster; of files those without their folders, told apart.

    >>> cluster_words(["./a.toml", "b/a.toml"])
    {'./a.toml': 'a', 'b/a.toml': 'a (2)'}
    """
    every = dict.fromkeys(clusters)
    names = distinct(one.rpartition("/")[2].removesuffix(".toml") for one in every)
    return dict(zip(every, told_apart(names, 32).values(), strict=True))


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table whose values are compared."""

    column: str  # of the table
    heading: str  # what it is, in words
    show: Callable[[float], str]  # a value in words
    is_more_better: bool  # whether larger values are better


def _joules(value: float) -> str:
    return "–" if math.isnan(value) else f"{format_count(value)} J"


MEASURES: Final = (
    Measure("train_per_s", "training throughput", format_rate, is_more_better=True),
    Measure("best_accuracy", "best accuracy", format_percent, is_more_better=True),
    Measure("epochs_to_target", "epochs to the target", format_count, is_more_better=False),
    Measure("time_to_target_s", "time to the target", format_seconds, is_more_better=False),
    Measure("energy_to_target_j", "energy to the target", _joules, is_more_better=False),
)


@dataclass(frozen=True, slots=True)
class Costs:
    """One measure of each schedule at each point."""

    measure: Measure  # which
    values: DataFrame  # a line for each schedule, a column for each point; NaN where it is unknown

    @property
    def ratios(self) -> DataFrame:
        """Each value over that of the first point; NaN where one is unknown."""
        first: Any = self.values.iloc[:, 0]
        return self.values.div(first.where(first > 0), axis=0)


def grid_costs(table: DataFrame, cells: Sequence[Any]) -> list[Costs]:
    """Every measure that is known, of the schedules that it is known of, as `MEASURES` has them.

    Args:
        table: one row a schedule and cluster.
        cells: where each row stands, as `ampsim.recipes.recipe.Cell`; rows on one cluster alone
            are left out.
    """
    at: dict[tuple[str, str], Row] = {
        (cell.label, cell.cluster): row
        for cell, row in zip(cells, rows(table), strict=True)
        if cell.cluster is not None
    }
    labels, points = (list(dict.fromkeys(key[part] for key in at)) for part in (0, 1))
    found: list[Costs] = []
    for measure in MEASURES:
        values = [
            [number(at.get((label, point), {}), measure.column) for point in points]
            for label in labels
        ]
        known = DataFrame(values, labels, [*cluster_words(points).values()]).dropna(how="all")
        if len(known):
            found.append(Costs(measure, known))
    return found


def costs_verdict(found: Sequence[Costs]) -> str:
    """Between which ratios throughput and time to the target lie, and where: a sentence each."""
    told = [one for one in found if one.measure.column in ("train_per_s", "time_to_target_s")]
    return " ".join(one for one in map(_range, told) if one) or NOTHING


def _range(costs: Costs) -> str:
    """The smallest and the largest ratio to the first point; empty where none is known."""
    known = [
        (ratio, f"{label}, {point}")
        for label, ratios in costs.ratios.iloc[:, 1:].iterrows()
        for point, ratio in ratios.dropna().items()
    ]
    if not known:
        return ""
    ends = {f"{_times(ratio)} times ({place})": None for ratio, place in (min(known), max(known))}
    first = costs.values.columns[0]
    return f"{costs.measure.heading.capitalize()} is {' to '.join(ends)} that of {first}."


def _times(ratio: float) -> str:
    """A ratio with two decimals, or, where these were nothing but zeros, with two digits."""
    return f"{ratio:#.2g}" if 0.0 < ratio < 0.0995 else f"{ratio:.2f}"


def costs_cells(costs: Costs) -> list[list[str]]:
    """Make a table of texts: headings, then a line a schedule.

    A cell has a value, and how many times that of the first point it is.
    """
    pairs = zip(costs.values.itertuples(), costs.ratios.itertuples(), strict=True)
    lines: list[list[str]] = []
    for (label, *values), (_label, _one, *ratios) in pairs:
        told = ["" if math.isnan(one) else f" ({_times(one)}×)" for one in ratios]
        shown = zip(map(costs.measure.show, values), ["", *told], strict=True)
        lines.append([str(label), *map("".join, shown)])
    return [["schedule", *costs.values.columns], *lines]


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
    orange where it is worse, or their value where nobody knows the first.
    """
    columns = max(len(one.values.columns) for one in found)
    heights = [0.75 + len(one.values) * _COST_IN[1] for one in found]
    figure = new_figure(_NAMES_IN + columns * _COST_IN[0], sum(heights) + 0.9)
    scale = _octaves(np.concatenate([one.ratios.to_numpy().ravel() for one in found]))
    grid = figure.add_gridspec(len(found), 1, height_ratios=heights)
    for index, costs in enumerate(found):
        axes = figure.add_subplot(grid[index, 0])
        axes.set_title(costs.measure.heading)
        _draw_costs(axes, costs, scale)
    end = float(scale.vmax or 0.0)
    marks = {one: f"{2.0 ** abs(one):.2f}×" for one in (-end, -end / 2, 0.0, end / 2, end)}
    bar = figure.colorbar(
        ScalarMappable(scale, COST_COLOURS), ax=figure.axes, orientation="horizontal", aspect=30,
        shrink=0.9, pad=0.01,
    )  # fmt: skip
    bar.set_ticks(list(marks), labels=list(marks.values()))
    bar.outline.set_visible(False)
    bar.set_label("← worse than in the first column      better →")
    return figure


def _draw_costs(axes: Axes, costs: Costs, scale: Normalize) -> None:
    values, ratios = costs.values.to_numpy(), costs.ratios.to_numpy()
    for line, column in np.ndindex(values.shape):
        value, ratio = float(values[line, column]), float(ratios[line, column])
        colour: Any = IDLE
        if ratio > 0:
            octaves = math.log2(ratio) * (1.0 if costs.measure.is_more_better else -1.0)
            colour = COST_COLOURS(scale(octaves))
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": "white", "linewidth": 1.5}
        axes.add_patch(Rectangle((column, line), 1.0, 1.0, **look))
        is_alone = column == 0 or math.isnan(ratio)
        shown = costs.measure.show(value) if is_alone else f"{_times(ratio)}×"
        axes.text(
            column + 0.5, line + 0.5, "–" if math.isnan(value) else shown, ha="center", va="center",
            fontsize=8, color=FAINT_INK if math.isnan(value) else INK,
        )  # fmt: skip
    lines, columns = values.shape
    axes.set(xlim=(0.0, columns), ylim=(lines, 0.0))
    axes.set_xticks(np.arange(columns) + 0.5, [*told_apart(costs.values.columns, 18).values()])
    axes.set_yticks(np.arange(lines) + 0.5, [*told_apart(costs.values.index, 24).values()])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _octaves(ratios: Floats) -> Normalize:
    """A scale of ratios in octaves, which colours tell from -end to end."""
    least, most = _COST_RANGE
    known = np.abs(np.log2(ratios[(ratios > 0.0) & np.isfinite(ratios)]))
    end = min(most, float(np.max(known, initial=least)))
    return Normalize(-end, end, clip=True)
