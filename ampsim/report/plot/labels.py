"""Labels beside points, each in a place where it covers no point, line or other label."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ampsim.report.style import FAINT_INK, Axes, text_width_pt

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
        taken += [_around(point, _POINT_PT) for point in places.tolist()]
        for begin, end in itertools.pairwise(places):
            taken += _along(begin, end)
    for ends in others:
        taken += _along(*(axes.transData.transform(ends) * 72.0 / figure.dpi))
    labels = [label for line in lines for label in line]
    for label, (x, y) in zip(labels, points, strict=True):
        across, up = _offset(label.text, (x, y), taken)
        taken.append(_box(label.text, (x, y), (across, up)))
        axes.annotate(
            label.text, (label.x, label.y), xytext=(across, up), textcoords="offset points",
            fontsize=SIZE_PT, ha="center", va="center", annotation_clip=False,
            arrowprops=_LEADER if _is_far(label.text, (across, up)) else None,
        )  # fmt: skip


def _is_far(text: str, offset: tuple[float, float]) -> bool:
    """Whether a label needs a thin line to its point."""
    gaps = abs(offset[0]) - text_width_pt(text, SIZE_PT) / 2, abs(offset[1]) - _HEIGHT_PT / 2
    return max(gaps) > _REACHES[1] * _GAP_PT


def _along(begin: Any, end: Any) -> list[_Box]:
    """A straight line as dots."""
    steps = max(2, int(np.hypot(*(end - begin)) / _STEP_PT))
    inner = begin + np.linspace(0.0, 1.0, steps)[:, None] * (end - begin)
    return [_around(point, _LINE_PT) for point in inner.tolist()]


def _around(point: Sequence[float], half_pt: float) -> _Box:
    x, y = point
    return x - half_pt, y - half_pt, x + half_pt, y + half_pt


def _offset(text: str, point: tuple[float, float], taken: Sequence[_Box]) -> tuple[float, float]:
    """The way from the point to the middle of its label, in points."""
    half, first = text_width_pt(text, SIZE_PT) / 2, None
    for reach in _REACHES:
        for side, rise in _PLACES:
            gap = _GAP_PT * reach
            offset = (side * (gap + half), rise * (gap + _HEIGHT_PT / 2))
            box = _box(text, point, offset)
            if not any(_overlap(box, other) for other in taken):
                return offset
            first = offset if first is None else first
    assert first is not None
    return first


def _box(text: str, point: tuple[float, float], offset: tuple[float, float]) -> _Box:
    half = text_width_pt(text, SIZE_PT) / 2
    x, y = point[0] + offset[0], point[1] + offset[1]
    return x - half, y - _HEIGHT_PT / 2, x + half, y + _HEIGHT_PT / 2


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
