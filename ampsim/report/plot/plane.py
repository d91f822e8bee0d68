"""Throughput and epochs of each row on one plane, with lines of equal time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from matplotlib.figure import Figure

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.style import (
    FAINT_INK,
    INK,
    Axes,
    LineStyle,
    Scale,
    epoch_ticks,
    line_styles,
    marker_pt,
    new_axes,
    rate_scale,
    styled,
    text_width_pt,
)
from ampsim.report.table import per_second, series
from ampsim.report.words import told_apart
from ampsim.units import format_count, format_seconds

SIZE_PT = 7.5
_HEIGHT_PT = 1.3 * SIZE_PT  # with what is above and below letters
_GAP_PT = 6.0
_POINT_PT = 4.0  # chosen: half the width of a marker
_STEP_PT = 3.0  # chosen: a line counts as dots this far apart
_LINE_PT = 1.0
_PLACES = ((1, 0), (1, 1), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1), (-1, -1))
_REACHES = (1.0, 2.2, 3.6, 5.4, 7.5)  # chosen: first beside the point, then farther away

_LEADER: dict[str, Any] = {
    "arrowstyle": "-", "color": FAINT_INK, "linewidth": 0.5, "shrinkA": 0.0, "shrinkB": 4.0,
}  # fmt: skip

_Box: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right, top in points."""


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a point; `x` and `y` are the point's data coordinates."""

    x: float
    y: float
    text: str


def place_labels(
    figure: Any,
    axes: Axes,
    lines: Sequence[Sequence[Label]],
    others: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
) -> None:
    """Writes each label beside its point, in the first place where it covers nothing.

    A label without such a place stands beside its point, over what is there.

    Args:
        figure: holds everything but the labels.
        axes: holds the points.
        lines: labels of the points of each line, in order along the line.
        others: ends of other straight lines that no label may cover, in data coordinates.
    """
    figure.draw_without_rendering()
    points: list[Any] = []
    taken: list[_Box] = []
    for line in lines:
        places = axes.transData.transform([(one.x, one.y) for one in line]) * 72.0 / figure.dpi
        points += places.tolist()
        taken += [_box(x, y, _POINT_PT, _POINT_PT) for x, y in places.tolist()]
        for begin, end in itertools.pairwise(places):
            taken += _along(begin, end)
    for ends in others:
        taken += _along(*(axes.transData.transform(ends) * 72.0 / figure.dpi))
    labels = [label for line in lines for label in line]
    for label, (x, y) in zip(labels, points, strict=True):
        half = text_width_pt(label.text, SIZE_PT) / 2, _HEIGHT_PT / 2
        across, up = _offset(half, (x, y), taken)
        taken.append(_box(x + across, y + up, *half))
        is_far = max(abs(across) - half[0], abs(up) - half[1]) > _REACHES[1] * _GAP_PT
        axes.annotate(
            label.text, (label.x, label.y), xytext=(across, up), textcoords="offset points",
            fontsize=SIZE_PT, ha="center", va="center", annotation_clip=False,
            arrowprops=_LEADER if is_far else None,
        )  # fmt: skip


def _along(begin: Any, end: Any) -> list[_Box]:
    steps = max(2, int(np.hypot(*(end - begin)) / _STEP_PT))
    inner = begin + np.linspace(0.0, 1.0, steps)[:, None] * (end - begin)
    return [_box(x, y, _LINE_PT, _LINE_PT) for x, y in inner.tolist()]


def _box(x: float, y: float, half_width: float, half_height: float) -> _Box:
    return x - half_width, y - half_height, x + half_width, y + half_height


def _offset(
    half: tuple[float, float], point: tuple[float, float], taken: Sequence[_Box]
) -> tuple[float, float]:
    """The first place of a label of that half width and height where nothing is taken."""
    offsets = [
        (side * (gap + half[0]), rise * (gap + half[1]))
        for gap in (_GAP_PT * reach for reach in _REACHES)
        for side, rise in _PLACES
    ]
    for offset in offsets:
        left, low, right, high = _box(point[0] + offset[0], point[1] + offset[1], *half)
        if not any(
            left < other[2] and other[0] < right and low < other[3] and other[1] < high
            for other in taken
        ):
            return offset
    return offsets[0]


_WIDTH_IN = 8.0
_ROOM = 1.15  # chosen: the axes end this far beyond the farthest points
_LINES_MAX = 7  # chosen: more lines hide the points
_ISO = "#b8bec4"
_NUMBER = "a number: instances in flight, at most"
_STEPS = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class PlanePoint:
    """One row: training items per second, and epochs to the target."""

    rate_per_s: float
    epochs: float
    mak: float


def has_points(table: DataFrame) -> bool:
    """Tell whether some row reached the target."""
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
    figure, axes = new_axes(_WIDTH_IN, 4.8 + 0.2 * (len(lines) // 3))
    axes.set_xlim(0.0, _ROOM * rate_max * scale.factor)
    axes.set_ylim(0.0, _ROOM * epochs_max)
    times_s = iso_times([epoch_items * one.epochs / one.rate_per_s for one in points])
    ends = [_draw_iso(axes, time_s, time_s / epoch_items / scale.factor) for time_s in times_s]
    labels = [
        _draw(axes, told_apart(lines, 40)[name], lines[name], (style, scale, marker_pt(index)))
        for index, (name, style) in enumerate(line_styles(lines).items())
    ]
    axes.set_xlabel(scale.label(f"training {per_second(rows(table))}"))
    axes.set_ylabel("epochs to the target")
    axes.yaxis.set_major_locator(epoch_ticks(epochs_max))
    axes.plot([], [], color=_ISO, linewidth=0.8, label="equal time of training")
    axes.plot([], [], linestyle="none", color=INK, label=_NUMBER)
    figure.legend(loc="outside upper left", ncols=3)
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


def _points(rows: Sequence[Row]) -> list[PlanePoint]:
    columns = ("train_per_s", "epochs_to_target", "max_active_keys")
    found = [PlanePoint(*(number(row, name) for name in columns)) for row in rows]
    return [one for one in found if one.rate_per_s > 0 and math.isfinite(one.epochs)]


def _draw(
    axes: Axes, name: str, points: Sequence[PlanePoint], look: tuple[LineStyle, Scale, float]
) -> list[Label]:
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
