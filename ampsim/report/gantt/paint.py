"""A Gantt chart painted: boxes, arrows and outages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.markers import TICKRIGHT
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from ampsim.report.frames import Floats, Integers, KeptPart, is_worker
from ampsim.report.gantt.boxes import (
    OUTAGES,
    Arrows,
    Boxes,
    ChartRows,
    Outages,
    Window,
    WorkerRows,
    looks_of,
    outage_rows,
)
from ampsim.report.style import (
    BOXES,
    DIRECTIONS,
    FAINT_INK,
    GAP_INK,
    IDLE,
    OPERATIONS,
    TRANSFER,
    UNUSED,
    Axes,
    BoxStyle,
    Scale,
    text_width_pt,
)

_HALF = 0.42  # chosen: half the height of a box, where rows are 1 apart
_HATCHED_PT = 5.0  # chosen: narrower boxes keep their colour but no hatch, which would fill them
_HAIRLINE_PT = 0.4  # chosen: about a pixel; narrower boxes cannot be seen
_HAIRLINES = 0.05  # chosen: share of a chart's length that hairlines may cover at most
_EDGED_PT = 3.0  # chosen: edges of narrower boxes would hide their colour
_SIZES_PT = (8.0, 7.0, 6.0, 5.0)  # of the numbers in boxes, best first; below 5 nobody can read
_NAMES_PT = 9.0  # chosen: names of 8 pt need this much height
_ENOUGH = 0.97  # chosen: a larger size must keep this share of the numbers that could be shown

_GAP_HATCH = "xxx"  # apart from the stripes of backward steps
_TICK: Any = TICKRIGHT  # an int, which matplotlib's types forget

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chart:
    """One schedule's chart: boxes, rows, scale, window and arrows.

    `arrows` are the transfers to draw, every `every`-th of all `transfers`; `kept` says how much of
    the run the boxes are of, None for all of it; `outages` are when devices were not as usual.
    """

    boxes: Boxes
    lanes: ChartRows
    scale: Scale
    window_s: Window
    arrows: Arrows
    every: int
    transfers: int
    kept: KeptPart | None
    outages: Outages

    @property
    def gap_s(self) -> Window | None:
        """Start and end of the time in the window whose steps were not kept; None if all were."""
        return None if self.kept is None else self.kept.gap_s(self.window_s)

    def x(self, time_s: Floats) -> Floats:
        """Times on the chart's horizontal axis."""
        return (time_s - self.scale.origin) * self.scale.factor

    @property
    def busy_fraction(self) -> float:
        """Share of the shown workers' time in the window that is spent in boxes."""
        gap = self.gap_s or (0.0, 0.0)
        known_s = self.window_s[1] - self.window_s[0] - (gap[1] - gap[0])
        total_s = sum(map(is_worker, self.lanes.workers)) * known_s or np.nan
        return self.boxes.busy_s / total_s

    def rows_of(self, workers: Integers) -> Integers:
        """Row of each of these workers, 0 on top; all have rows."""
        place = {worker: index for index, worker in enumerate(self.lanes.workers)}
        return np.array([place[int(worker)] for worker in workers], dtype=np.int64)


def paint_rows(axes: Axes, chart: Chart, rows: WorkerRows, row_pt: float) -> None:
    """Paints background, names and limits; idle time is the background between boxes."""
    count = len(chart.lanes.workers)
    left, right = chart.x(np.array(chart.window_s))
    closing = max(0.8, 13.0 / row_pt) if chart.lanes.closing_line else 0.0
    bottom = count - 0.5 + closing
    row = np.arange(count)
    ground = _rectangles(np.full(count, left), np.full(count, right), row)
    colours = [IDLE if busy else UNUSED for busy in chart.lanes.is_busy]
    axes.add_collection(PolyCollection(ground, facecolors=colours, label="idle"), autolim=False)
    if chart.gap_s:
        gap_left, gap_right = chart.x(np.array(chart.gap_s))
        gap = _rectangles(np.full(count, gap_left), np.full(count, gap_right), row)
        hatched = PolyCollection(
            gap, facecolors="white", edgecolors=GAP_INK, hatch=_GAP_HATCH, linewidths=0.0,
            label="not kept",
        )  # fmt: skip
        axes.add_collection(hatched, autolim=False)
    if closing:
        axes.text(
            0.006, bottom - closing / 2, chart.lanes.closing_line, fontsize=7.5, style="italic",
            color=FAINT_INK, va="center", transform=axes.get_yaxis_transform(),
        )  # fmt: skip
    axes.set_xlim(float(left), float(right))
    axes.set_ylim(bottom, -0.5)
    _name_rows(axes, chart.lanes, rows, row_pt)


def paint_boxes(axes: Axes, chart: Chart, width_pt: float) -> None:
    """One box per step, in the colour and hatch of its direction; `width_pt` is the axes' width.

    Steps too short to be seen are drawn as hairlines, unless there are so many of them that
    hairlines would hide idle time.
    """
    boxes = _rectangles(
        chart.x(chart.boxes.start_s), chart.x(chart.boxes.end_s), chart.rows_of(chart.boxes.worker)
    )
    box_pt = _widths_pt(axes, chart, width_pt)
    is_tiny = box_pt < _HAIRLINE_PT
    room_pt = _HAIRLINES * width_pt * len(chart.lanes.workers)
    is_sparse = is_tiny.sum() * _HAIRLINE_PT <= room_pt
    edge_pt = np.where(box_pt >= _EDGED_PT, 0.5, np.where(is_tiny & is_sparse, _HAIRLINE_PT, 0.0))
    for name, style in BOXES.items():
        for each_pt in (0.0, _HAIRLINE_PT, 0.5):
            chosen = (chart.boxes.direction == name) & (edge_pt == each_pt)
            if not chosen.any():
                continue
            collection = PolyCollection(
                boxes[chosen], facecolors=style.fill, edgecolors=style.hatch_ink,
                linewidths=each_pt, label=name,
            )  # fmt: skip
            if each_pt == 0.0:
                collection.set_snap(False)  # snapping swallows the narrowest
            axes.add_collection(collection, autolim=False)
        hatched = (chart.boxes.direction == name) & (box_pt >= _HATCHED_PT)
        if style.hatch and hatched.any():
            axes.add_patch(_hatching(boxes[hatched], style))


def _hatching(boxes: Any, style: BoxStyle) -> PathPatch:
    """The hatch of all `boxes` at once: one by one it would take most of a picture's time."""
    closed = np.concatenate([boxes, boxes[:, :1]], axis=1).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(boxes)
    return PathPatch(
        Path(closed, codes), facecolor="none", edgecolor=style.hatch_ink, hatch=style.hatch,
        linewidth=0.0, label=f"hatch of {style.label}",
    )  # fmt: skip


def number_boxes(panels: list[tuple[Axes, Chart]], width_pt: float, row_pt: float) -> None:
    """Writes the instance into every box that is wide and high enough, all in one size."""
    widths_pt = [_widths_pt(axes, chart, width_pt) for axes, chart in panels]
    labels = [label for _, chart in panels for label in chart.boxes.labels]
    size_pt, fits = _number_size(labels, np.concatenate([np.empty(0), *widths_pt]), row_pt)
    offset = 0
    for (axes, chart), box_pt in zip(panels, widths_pt, strict=True):
        here = slice(offset, offset + len(box_pt))
        _write_numbers(axes, chart, labels[here], fits[here], size_pt)
        offset += len(box_pt)


def legend_handles(charts: Sequence[Chart], arrow: str) -> list[Patch | Line2D]:
    """Entries for boxes, idle time, outages, what was not kept, and what an arrow is."""
    drawn = {str(one) for chart in charts for one in np.unique(chart.boxes.direction)}
    names = [name for name in OPERATIONS if name in drawn] or list(DIRECTIONS)
    handles: list[Patch | Line2D] = [
        Patch(facecolor=style.fill, edgecolor=style.hatch_ink, hatch=style.hatch, label=style.label)
        for style in (BOXES[name] for name in names)
    ]
    handles.append(Patch(facecolor=IDLE, edgecolor=FAINT_INK, linewidth=0.4, label="idle"))
    for label, hatch in map(OUTAGES.__getitem__, looks_of(chart.outages for chart in charts)):
        handles.append(Patch(facecolor=UNUSED, edgecolor=FAINT_INK, hatch=hatch, label=label))
    if any(chart.gap_s for chart in charts):
        gap = Patch(facecolor="white", edgecolor=GAP_INK, hatch=_GAP_HATCH, label="not kept")
        handles.append(gap)
    if any(chart.transfers for chart in charts):
        look: dict[str, Any] = {"marker": ">", "markersize": 4.0, "markevery": [1]}
        handles.append(Line2D([], [], color=TRANSFER, linewidth=1.0, label=arrow, **look))
    return handles


def _number_size(labels: list[str], box_pt: Floats, row_pt: float) -> tuple[float, Flags]:
    """Largest size at which most numbers fit into their boxes, and which boxes these are."""
    found = [(_SIZES_PT[-1], np.zeros(len(labels), dtype=np.bool_))]
    for size_pt in _SIZES_PT:
        if size_pt * 1.15 <= row_pt * 2 * _HALF:
            needed_pt = [text_width_pt(each, size_pt) if each else np.inf for each in labels]
            found.append((size_pt, np.array(needed_pt) + 2.0 <= box_pt))
    most = max(int(fits.sum()) for _, fits in found)
    return next(
        (size, fits) for size, fits in found[1:] + found[:1] if fits.sum() >= _ENOUGH * most
    )


def _write_numbers(
    axes: Axes, chart: Chart, labels: list[str], fits: Flags, size_pt: float
) -> None:
    middle = chart.x((chart.boxes.start_s + chart.boxes.end_s) / 2)
    row = chart.rows_of(chart.boxes.worker)
    for index in np.flatnonzero(fits).tolist():
        axes.text(
            float(middle[index]), float(row[index]), labels[index],
            fontsize=size_pt, color=BOXES[str(chart.boxes.direction[index])].ink,
            ha="center", va="center_baseline", clip_on=True, in_layout=False,
        )  # fmt: skip


def _widths_pt(axes: Axes, chart: Chart, width_pt: float) -> Floats:
    limits = axes.get_xlim()
    length = chart.x(chart.boxes.end_s) - chart.x(chart.boxes.start_s)
    return np.asarray(length / (limits[1] - limits[0]) * width_pt, dtype=np.float64)


def _rectangles(left: Floats, right: Floats, row: NDArray[Any], half: float = _HALF) -> Any:
    """Corners, shape (boxes, 4, 2)."""
    top, bottom = row - half, row + half
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def _name_rows(axes: Axes, lanes: ChartRows, rows: WorkerRows, row_pt: float) -> None:
    """Names rows; every second, fourth, ... row where rows are too low for all names."""
    step = next((step for step in (1, 2, 4, 8, 16, 32) if step * row_pt >= _NAMES_PT), 64)
    places = range(0, len(lanes.workers), step)
    names = [rows.name(lanes.workers[place]) for place in places]
    axes.set_yticks(list(places), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    for label, place in zip(axes.get_yticklabels(), places, strict=True):
        label.set_color(axes.xaxis.label.get_color() if lanes.is_busy[place] else FAINT_INK)
    axes.spines["left"].set_visible(False)
    widest_pt = max((text_width_pt(name, 8.0) for name in names), default=0.0)
    _bracket_groups(axes, lanes, widest_pt + 10.0, row_pt)


def _bracket_groups(axes: Axes, lanes: ChartRows, shift_pt: float, row_pt: float) -> None:
    """A bracket with its name for each kind of device, left of the rows' names."""
    shift = ScaledTranslation(-shift_pt / 72.0, 0.0, axes.figure.dpi_scale_trans)
    named_until = -np.inf
    for name, first, last in lanes.groups:
        bracket = Line2D(
            [0.0, 0.0], [first - 0.38, last + 0.38], color=FAINT_INK, linewidth=0.8,
            marker=_TICK, markersize=3.0, clip_on=False, label="bracket",
            transform=axes.get_yaxis_transform() + shift,
        )  # fmt: skip
        axes.add_artist(bracket)
        middle = (first + last) / 2
        if (middle - named_until) * row_pt >= _NAMES_PT:
            named_until = middle
            axes.annotate(
                name, (0.0, middle), (-shift_pt - 4.0, 0.0), fontsize=8, ha="right", va="center",
                xycoords=("axes fraction", "data"), textcoords="offset points",
            )  # fmt: skip


_LINE_PT = 0.55
_HEAD_PT = (4.2, 1.5)  # chosen: length and half width
_INSET = 0.2  # chosen: arrows end this far from the middle of a row, whose boxes reach to 0.42


def paint_arrows(axes: Axes, chart: Chart, size_pt: tuple[float, float]) -> None:
    """Draws arrows over the boxes; `size_pt` is the axes' width and a row's height."""
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


def paint_outages(axes: Axes, chart: Chart) -> None:
    """Hatch each outage over the whole height of its row, so that a box leaves its edges."""
    rows = outage_rows(chart.outages, chart.lanes.workers)
    for look in chart.outages.looks:
        label, hatch = OUTAGES[look]
        own = np.array([one[:3] for one in rows if one[3] == look]).reshape(-1, 3)
        boxes = _rectangles(chart.x(own[:, 1]), chart.x(own[:, 2]), own[:, 0], 0.5)
        axes.add_collection(
            PolyCollection(
                boxes, facecolors=UNUSED, edgecolors=FAINT_INK, hatch=hatch, linewidths=0.0,
                label=label,
            ),
            autolim=False,
        )  # fmt: skip
