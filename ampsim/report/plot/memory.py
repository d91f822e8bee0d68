"""Memory: what lies in the fullest worker's, at its peak and over time, by category."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from ampsim.report.frames import DataFrame, Row, floats, integers, number, row_labels, rows
from ampsim.report.style import (
    FAINT_INK,
    LINES,
    Axes,
    beside,
    legend_on_top,
    name_rows,
    new_figure,
    styled,
    time_scale,
)
from ampsim.report.words import plain
from ampsim.units import format_bytes

CATEGORIES: Final[Mapping[str, tuple[str, str]]] = {
    "weights": (LINES[0].colour, ""),
    "gradients": (LINES[7].colour, "////"),
    "optimizer": (LINES[8].colour, "...."),
    "stashes": (LINES[4].colour, "\\\\\\\\"),
    "activations": (LINES[1].colour, ""),
    "messages": (LINES[6].colour, "xxxx"),
}
"""Colour and hatch of each category, in the order in which they lie on each other."""

_WIDTH_IN = 7.5
_LINE_IN = 0.2
_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def has_peaks(table: DataFrame) -> bool:
    """Whether the peak of some row is known."""
    return any(number(row, "peak_bytes") > 0 for row in rows(table))


@styled
def peak_memory(table: DataFrame) -> Figure:
    """A bar a row: what lay in the fullest worker's memory at its peak, by category."""
    names, records = row_labels(table), rows(table)
    figure = new_figure(_WIDTH_IN, 1.0 + _legend_in() + 0.36 * max(1, len(records)))
    axes = figure.add_subplot(1, 1, 1)
    divisor, unit = _unit(max(_known(number(row, "peak_bytes")) for row in records))
    for place, row in enumerate(records):
        _draw_row(axes, place, row, divisor)
    name_rows(axes, names)
    axes.margins(x=0.14)
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"memory of the fullest worker at its peak ({unit})")
    axes.grid(visible=True, axis="x")
    legend_on_top(figure, axes, CATEGORIES, beside(len(CATEGORIES)))
    return figure


def _draw_row(axes: Axes, place: int, row: Row, divisor: float) -> None:
    """The bar of one row, and its length in words."""
    begin = 0.0
    for category, (colour, hatch) in CATEGORIES.items():
        length = _known(number(row, f"peak_{category}_bytes")) / divisor
        axes.barh(
            place, length, left=begin, height=0.62, linewidth=0.0, label=category,
            facecolor=colour, edgecolor="white", hatch=hatch,
        )  # fmt: skip
        begin += length
    axes.annotate(
        format_bytes(number(row, "peak_bytes")), (begin, place), xytext=(4, 0),
        textcoords="offset points", va="center", fontsize=7.5, color=FAINT_INK,
    )  # fmt: skip


@styled
def memory_over_time(memory_by_schedule: Mapping[str, DataFrame]) -> Figure:
    """A panel a schedule: what lies in the fullest worker's memory over virtual time.

    Each step of a line is the fullest moment of a stretch of time.

    Args:
        memory_by_schedule: for each schedule the rows of `Result.memory`.
    """
    count = max(1, len(memory_by_schedule))
    figure = new_figure(_WIDTH_IN, 0.6 + _legend_in() + 1.9 * count)
    fullest = {name: _of_fullest(memory) for name, memory in memory_by_schedule.items()}
    highest = max((float(floats(one, "bytes").max()) for _, one in fullest.values()), default=1.0)
    end_s = max((float(floats(one, "time_s").max()) for _, one in fullest.values()), default=0.0)
    (divisor, unit), scale = _unit(highest), time_scale(0.0, end_s)
    for index, (name, (worker, memory)) in enumerate(fullest.items()):
        axes = figure.add_subplot(count, 1, index + 1)
        axes.set_title(f"{plain(name, 32)}, worker {worker}")
        _draw_timeline(axes, memory, divisor, scale.factor)
        axes.set_xlim(0.0, end_s * scale.factor or 1.0)
        axes.set_ylim(0.0, 1.08 * highest / divisor or 1.0)
        axes.set_ylabel(f"memory ({unit})")
        if index + 1 == count:
            axes.set_xlabel(scale.label("virtual time"))
            legend_on_top(figure, axes, CATEGORIES, beside(len(CATEGORIES)))
    return figure


def _of_fullest(memory: DataFrame) -> tuple[int, DataFrame]:
    untyped: Any = memory
    worker = int(integers(memory, "worker")[int(np.argmax(floats(memory, "bytes")))])
    return worker, untyped[untyped["worker"] == worker]


def _draw_timeline(axes: Axes, memory: DataFrame, divisor: float, factor: float) -> None:
    """Areas on each other; the first moment stands for the time before it, too."""
    times = np.append(0.0, floats(memory, "time_s") * factor)
    layers = [floats(memory, category) / divisor for category in CATEGORIES]
    layers = [np.append(layer[:1], layer) for layer in layers]
    areas = axes.stackplot(
        times, *layers, labels=list(CATEGORIES), step="post",
        colors=[colour for colour, _hatch in CATEGORIES.values()], linewidth=0.0,
    )  # fmt: skip
    for area, (_colour, hatch) in zip(areas, CATEGORIES.values(), strict=True):
        area.set(hatch=hatch, edgecolor="white")


def _legend_in() -> float:
    """Height of the legend in inches: a line, or, on a phone, one for each category."""
    return _LINE_IN * len(CATEGORIES) / beside(len(CATEGORIES))


def _unit(highest: float) -> tuple[float, str]:
    return next((pair for pair in _UNITS if highest >= pair[0]), _UNITS[-1])


def _known(value: float) -> float:
    return 0.0 if math.isnan(value) else value
