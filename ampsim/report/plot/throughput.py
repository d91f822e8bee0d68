"""Throughput: training and validation items per second, a pair of bars for each schedule."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ampsim.report.axis import rate_scale
from ampsim.report.columns import format_ratio, per_second
from ampsim.report.frames import DataFrame, Floats, floats, row_labels, rows
from ampsim.report.style import FAINT_INK, Axes, beside, line_styles, new_figure, styled
from ampsim.report.words import plain
from ampsim.units import UNKNOWN, format_rate

_WIDTH_IN = 8.0
_BAR = 0.38  # chosen: height of a bar where rows are 1 apart
_ROOM = 1.22  # chosen: the axis ends this far beyond the longest bar, for the value beside it


@styled
def throughput(table: DataFrame) -> Figure:
    """Bars of `train_per_s` (full) and `valid_per_s` (hatched) per row, with their values.

    Beside each training bar stands its ratio to the first row's. An unknown rate is a dash and has
    no bar.
    """
    names = row_labels(table)
    train, valid = floats(table, "train_per_s"), floats(table, "valid_per_s")
    highest = float(np.nanmax(np.concatenate([train, valid, [0.0]])))
    scale = rate_scale(highest)
    styles = line_styles(names)
    colours = [styles[name].colour for name in names]
    figure = new_figure(_WIDTH_IN, 1.15 + 0.62 * max(1, len(names)))
    axes = figure.add_subplot(1, 1, 1)
    row: Floats = np.arange(len(names), dtype=np.float64)
    _bars(axes, row - np.float64(_BAR / 2), train * scale.factor, colours, hatch="")
    _bars(axes, row + np.float64(_BAR / 2), valid * scale.factor, colours, hatch="////")
    _values(axes, row - np.float64(_BAR / 2), train, scale.factor, with_ratio=True)
    _values(axes, row + np.float64(_BAR / 2), valid, scale.factor, with_ratio=False)
    axes.set_yticks(row, [plain(name, 32) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0.0, highest * scale.factor * _ROOM if highest > 0 else 1.0)
    axes.set_xlabel(scale.label(per_second(rows(table))))
    axes.grid(visible=True, axis="x")
    figure.legend(handles=_legend_handles(), loc="outside upper right", ncols=beside(2))
    return figure


def _bars(axes: Axes, place: Floats, length: Floats, colours: list[str], *, hatch: str) -> None:
    known = np.nan_to_num(length)
    fills = ["white"] * len(colours) if hatch else colours
    axes.barh(place, known, height=_BAR, color=fills, edgecolor=colours, hatch=hatch, linewidth=0.8)


def _values(axes: Axes, place: Floats, rate: Floats, factor: float, *, with_ratio: bool) -> None:
    """The rate beside each bar, and its ratio to the first row's."""
    first = float(rate[0]) if len(rate) else math.nan
    for y, value in zip(place.tolist(), rate.tolist(), strict=True):
        known = not math.isnan(value)
        text = format_rate(value) if known else UNKNOWN
        if with_ratio and known and first > 0 and y != place[0]:
            text += f"  ({format_ratio(value / first)})"
        axes.annotate(
            text, (value * factor if known else 0.0, y), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip


def _legend_handles() -> list[Patch]:
    return [
        Patch(facecolor=FAINT_INK, edgecolor=FAINT_INK, label="training"),
        Patch(facecolor="white", edgecolor=FAINT_INK, hatch="////", label="validation"),
    ]
