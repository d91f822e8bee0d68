"""The plane of throughput and epochs, with lines of equal time to the target (paper, Figure 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ampsim.report.axis import Scale, rate_scale
from ampsim.report.columns import format_count, per_second
from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.plot.labels import Label, place_labels
from ampsim.report.plot.series import series
from ampsim.report.style import (
    FAINT_INK,
    INK,
    Axes,
    LineStyle,
    beside,
    line_styles,
    marker_pt,
    new_figure,
    styled,
)
from ampsim.report.words import plain
from ampsim.units import format_seconds

_WIDTH_IN = 8.0
_ROOM = 1.15  # chosen: the axes end this far beyond the farthest points
_LINES_MAX = 7  # chosen: more lines hide the points
_ISO = "#b8bec4"
_NUMBER = "a number: instances in flight, at most"
_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Point:
    """One row: training items per second, and epochs to the target."""

    rate_per_s: float
    epochs: float
    mak: float


def has_points(table: DataFrame) -> bool:
    """Whether some row reached the target."""
    return any(_points(own) for own in series(table).values())


@styled
def plane(table: DataFrame, epoch_items: int, names: Sequence[str] | None = None) -> Figure:
    """Epochs to the target over training throughput, a point a row, a line a schedule.

    Along a grey line the time of training to the target is the same; lower right is faster. A
    point is labelled with its `max_active_keys`, the most instances in flight. Rows that did not
    reach the target have none.

    Args:
        table: one row a schedule.
        epoch_items: training items of an epoch.
        names: the schedule of each row; the column `schedule` unless given.
    """
    assert epoch_items > 0, epoch_items
    lines = {name: own for name, found in series(table, names).items() if (own := _points(found))}
    points = [point for own in lines.values() for point in own]
    rate_max = max((point.rate_per_s for point in points), default=1.0)
    epochs_max = max((point.epochs for point in points), default=1.0)
    scale = rate_scale(rate_max)
    figure = new_figure(_WIDTH_IN, 4.8 + 0.2 * (len(lines) // 3))
    axes = figure.add_subplot(1, 1, 1)
    axes.set_xlim(0.0, _ROOM * rate_max * scale.factor)
    axes.set_ylim(0.0, _ROOM * epochs_max)
    times_s = iso_times([epoch_items * one.epochs / one.rate_per_s for one in points])
    ends = [_draw_iso(axes, time_s, time_s / epoch_items / scale.factor) for time_s in times_s]
    labels = [
        _draw(axes, plain(name, 40), lines[name], (style, scale, marker_pt(index)))
        for index, (name, style) in enumerate(line_styles(lines).items())
    ]
    axes.set_xlabel(scale.label(f"training {per_second(rows(table))}"))
    axes.set_ylabel("epochs to the target")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.plot([], [], color=_ISO, linewidth=0.8, label="equal time of training")
    axes.plot([], [], linestyle="none", color=INK, label=_NUMBER)
    figure.legend(loc="outside upper left", ncols=beside(3))
    place_labels(figure, axes, labels, [((0.0, 0.0), end) for end in ends])
    return figure


def iso_times(times_s: Sequence[float]) -> list[float]:
    """Round times around those that occur: 1, 2 and 5 times powers of ten, fewer if too many.

    >>> iso_times([0.7, 2.1])
    [0.5, 1.0, 2.0, 5.0]
    """
    if not times_s:
        return []
    low, high = math.floor(math.log10(min(times_s))), math.ceil(math.log10(max(times_s)))
    rounds = [step * 10.0**power for power in range(low - 1, high + 1) for step in _STEPS]
    first = max((one for one in rounds if one <= min(times_s)), default=rounds[0])
    last = min((one for one in rounds if one >= max(times_s)), default=rounds[-1])
    inside = [one for one in rounds if first <= one <= last]
    return inside[:: -(-len(inside) // _LINES_MAX)]


def _points(rows: Sequence[Row]) -> list[Point]:
    columns = ("train_per_s", "epochs_to_target", "max_active_keys")
    found = [Point(*(number(row, name) for name in columns)) for row in rows]
    return [one for one in found if one.rate_per_s > 0 and math.isfinite(one.epochs)]


def _draw(
    axes: Axes, name: str, points: Sequence[Point], look: tuple[LineStyle, Scale, float]
) -> list[Label]:
    """Draws a line through the points; gives their labels."""
    style, scale, size_pt = look
    rates = [point.rate_per_s * scale.factor for point in points]
    axes.plot(
        rates, [point.epochs for point in points], **style.drawn,
        linewidth=1.1, markersize=size_pt, label=name, zorder=3,
    )  # fmt: skip
    return [
        Label(rate, point.epochs, format_count(point.mak))
        for rate, point in zip(rates, points, strict=True)
    ]


def _draw_iso(axes: Axes, seconds: float, slope: float) -> tuple[float, float]:
    """Draws a line from the origin to the edge of the axes with a label there; gives that end."""
    width, height = axes.get_xlim()[1], axes.get_ylim()[1]
    is_steep = slope * width > height
    end = (height / slope, height) if is_steep else (width, slope * width)
    axes.plot([0.0, end[0]], [0.0, end[1]], color=_ISO, linewidth=0.8, zorder=1)
    axes.annotate(
        format_seconds(seconds), end, xytext=(0, 3) if is_steep else (4, 0),
        textcoords="offset points", fontsize=7.5, color=FAINT_INK,
        ha="center" if is_steep else "left", va="bottom" if is_steep else "center",
        annotation_clip=False,
    )  # fmt: skip
    return end
