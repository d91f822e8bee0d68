"""Painting transfers into a Gantt chart: thin lines with a head each, over the boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D

from ampsim.report.gantt.paint import Chart
from ampsim.report.style import TRANSFER, Axes

_LINE_PT = 0.55
_HEAD_PT = (4.2, 1.5)  # chosen: length and half width
_INSET = 0.2  # chosen: arrows end this far from the middle of a row, whose boxes reach to 0.42


def paint_arrows(axes: Axes, chart: Chart, size_pt: tuple[float, float]) -> None:
    """Draws arrows over the boxes.

    Args:
        axes: where rows are 1 apart, row 0 on top.
        chart: what to draw; all workers that its arrows join have rows.
        size_pt: width of the axes and height of a row, in points.
    """
    arrows = chart.arrows
    rows = [chart.rows_of(workers).astype(np.float64) for workers in (arrows.source, arrows.target)]
    down = np.sign(rows[1] - rows[0])
    left, right = axes.get_xlim()
    per_pt = np.array([(right - left) / size_pt[0], 1.0 / size_pt[1]])
    times = [chart.x(each) for each in (arrows.start_s, arrows.end_s)]
    tails = np.stack([times[0], rows[0] + _INSET * down], axis=1)
    heads = np.stack([times[1], rows[1] - _INSET * down], axis=1)
    ways: Any = np.stack([tails, heads], axis=1)
    lines = LineCollection(
        ways, colors=TRANSFER, linewidths=_LINE_PT, alpha=0.6,
        label="transfer", zorder=2.5,
    )  # fmt: skip
    axes.add_collection(lines, autolim=False)
    way_pt = (heads - tails) / per_pt
    length_pt = np.maximum(np.hypot(*way_pt.T), 1e-9)[:, None]
    along, across = way_pt / length_pt, (way_pt / length_pt)[:, ::-1] * (-1.0, 1.0)
    back = heads - along * _HEAD_PT[0] * per_pt
    wide = across * _HEAD_PT[1] * per_pt
    corners: Any = np.stack([heads, back + wide, back - wide], axis=1)
    tips = PolyCollection(
        corners, facecolors=TRANSFER, edgecolors="none", label="arrow heads", zorder=2.6
    )
    axes.add_collection(tips, autolim=False)


def legend_arrow() -> Line2D:
    """The legend's entry for an arrow."""
    return Line2D(
        [], [], color=TRANSFER, linewidth=1.0, marker=">", markersize=4.0, markevery=[1],
        label="transfer",
    )  # fmt: skip
