"""Gantt charts in the colours of the paper's Figure 1: who worked on which instance, and when.

Orange is forward, blue backward, yellow update; the number in a box is its instance. Thin arrows
are messages on links that take time; messages from and to the host have no arrow, as the host has
no row. Rows are grouped by device where devices differ. Hatched behind the boxes is when a device
is slow or down, or waits for other ranks or a server.

Of a dependency engine's run a row is a thread and a box an operation, with its name; colours tell
what kind of thread it took. An arrow leads from the end of the operation whose end made another one
ready to that one's start. None is drawn within a row, where what follows is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import TICKRIGHT
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from ampsim.report.frames import DataFrame, Floats, floats, integers, is_worker, texts
from ampsim.report.gantt.boxes import (
    ARROWS_MAX,
    OUTAGES,
    Charted,
    ChartRows,
    ChartRun,
    Window,
    boxes_in,
    chart_runs,
    check_window,
    ends_of,
    looks_of,
    outages_in,
    rows_for,
    whole_window,
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
    new_figure,
    styled,
    text_width_pt,
    time_scale,
)
from ampsim.report.words import told_apart
from ampsim.units import format_percent

_WIDTH_IN = 10.0
_ROW_IN = 0.3  # chosen: a row holds a number of 8 pt
_ROWS_IN_MAX = 12.0  # chosen: more rows than fit into this height become lower
_HALF = 0.42  # chosen: half the height of a box, where rows are 1 apart
_HATCHED_PT = 5.0  # chosen: narrower boxes keep their colour but no hatch, which would fill them
_HAIRLINE_PT = 0.4  # chosen: about a pixel; narrower boxes cannot be seen
_HAIRLINES = 0.05  # chosen: share of a chart's length that hairlines may cover at most
_EDGED_PT = 3.0  # chosen: edges of narrower or lower boxes would hide their colour
_SIZES_PT = (8.0, 7.0, 6.0, 5.0)  # of the numbers in boxes, best first; below 5 nobody can read
_NAMES_PT = 9.0  # chosen: names of 8 pt need this much height
_ENOUGH = 0.97  # chosen: a larger size must keep this share of the numbers that could be shown

_LINE_PT = 0.55
_HEAD_PT = (4.2, 1.5)  # chosen: length and half width
_INSET = 0.2  # chosen: arrows end this far from the middle of a row, whose boxes reach to 0.42
_GAP_HATCH = "xxx"  # apart from the stripes of backward steps
_TICK: Any = TICKRIGHT  # an int, which matplotlib's types forget

Flags = NDArray[np.bool_]


@styled
def gantt(
    schedules: Charted,
    *,
    workers: int,
    window_s: Window | None = None,
    devices: Sequence[str] = (),
) -> Figure:
    """Gantt charts of schedules above each other, with the same rows on one time axis.

    Worker 0 is on top. Headings of several begin with (a), (b), (c), ....

    Args:
        schedules: what is drawn of each, by its heading, a user's text.
        workers: how many workers the cluster has.
        window_s: start and end of the time shown; the whole of the spans if not given.
        devices: a device's name per worker; where they differ, rows are grouped by them.

    Raises:
        OptionError: the window is empty or reversed.
    """
    assert schedules, "a chart of no schedule"
    runs = chart_runs(schedules)
    spans = [one.spans for one in runs.values()]
    window = check_window(window_s) if window_s else whole_window(spans)
    charts = _charts(list(runs.values()), window, workers, devices)
    rows = charts[0].rows
    row_pt = 72.0 * min(_ROW_IN, _ROWS_IN_MAX / (len(rows.numbers) * len(charts)))
    figure = new_figure(_WIDTH_IN, 0.95 + len(charts) * (len(rows.numbers) * row_pt / 72.0 + 0.45))
    panels = list(figure.subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0])
    for index, (axes, chart, name) in enumerate(zip(panels, charts, runs, strict=True)):
        _paint_rows(axes, chart, row_pt)
        _paint_outages(axes, chart)
        axes.tick_params(axis="x", labelbottom=axes is panels[-1])
        axes.set_title(
            _summary(chart), loc="right", fontsize=8, fontweight="normal", color=FAINT_INK
        )
        letter = ascii_lowercase[index : index + 1] if len(charts) > 1 else ""
        axes.set_title(f"({letter}) " * bool(letter) + told_apart(runs)[name])
    panels[-1].set_xlabel(charts[0].scale.label("virtual time"))
    figure.legend(
        handles=_legend_handles(charts, "made ready by" if rows.has_threads else "transfer"),
        loc="outside upper right",
        ncols=7 if rows.has_threads else 6,
    )
    _paint_to_size(figure, panels, charts)
    return figure


@dataclass(frozen=True, slots=True)
class Chart:
    """One schedule's chart.

    Attributes:
        boxes, outages: as `ampsim.report.gantt.boxes` has them.
        rows: those of all charts.
        scale: of time.
        window_s: start and end of the time shown.
        arrows: all of them, of which every `every`-th is drawn.
        run: whose boxes they are.
    """

    boxes: DataFrame
    outages: DataFrame
    rows: ChartRows
    scale: Scale
    window_s: Window
    arrows: DataFrame
    run: ChartRun

    @property
    def every(self) -> int:
        """Step from one arrow that is drawn to the next."""
        return max(1, -(-len(self.arrows) // ARROWS_MAX))

    @property
    def gap_s(self) -> Window | None:
        """Start and end of the time in the window whose steps were not kept; None if all were."""
        return None if self.run.kept is None else self.run.kept.gap_s(self.window_s)

    def x(self, time_s: Floats) -> Floats:
        """Times on the chart's horizontal axis."""
        return (time_s - self.scale.origin) * self.scale.factor

    def corners(self, boxes: DataFrame, half: float = _HALF) -> Any:
        """Corners of boxes of which each reaches so far up and down from the middle of its row.

        Shape (boxes, 4, 2).
        """
        row = self.rows.places(integers(boxes, "row"))
        left, right = (self.x(floats(boxes, end)) for end in ("start_s", "end_s"))
        return _rectangles(left, right, row, half)

    @property
    def busy(self) -> str:
        """Share of the shown workers' time that is spent in boxes, in the window or the run."""
        until_s = min(self.window_s[1], whole_window([self.run.spans])[1])
        total_s = sum(map(is_worker, self.rows.numbers)) * (until_s - self.window_s[0]) or np.nan
        is_own = np.array([is_worker(one) for one in integers(self.boxes, "row").tolist()], bool)
        lengths_s = floats(self.boxes, "end_s") - floats(self.boxes, "start_s")
        of = "of this window" if until_s == self.window_s[1] else "until the run ends"
        return f"{format_percent(float(np.sum(lengths_s[is_own])) / total_s)} {of}"


def _charts(
    runs: Sequence[ChartRun], window: Window, workers: int, devices: Sequence[str]
) -> list[Chart]:
    boxes = [boxes_in(one.spans, window) for one in runs]
    arrows = [one.arrows(drawn, window) for one, drawn in zip(runs, boxes, strict=True)]
    rows = rows_for([one.spans for one in runs], window, workers, devices, ends_of(arrows))
    scale = time_scale(*window)
    return [
        Chart(each, outages_in(one.outages, window), rows, scale, window, sent, one)
        for each, sent, one in zip(boxes, arrows, runs, strict=True)
    ]


def _summary(chart: Chart) -> str:
    """Tell how busy the rows are or how much was kept, and the share of arrows that is drawn."""
    what = "rows" if all(map(is_worker, chart.rows.numbers)) else "workers"
    parts = [f"{what} shown are busy {chart.busy}"]
    if chart.rows.has_threads:
        parts = []
    if not len(chart.boxes):
        parts = ["no step takes time in this window"]
    if chart.gap_s and chart.run.kept:
        parts = [chart.run.kept.words]
    if chart.every > 1:
        arrows = "dependencies" if chart.rows.has_threads else "transfers"
        parts.append(f"one in {chart.every} of {len(chart.arrows):,} {arrows} is drawn")
    return "; ".join(parts)


def _paint_to_size(figure: Any, panels: list[Axes], charts: list[Chart]) -> None:
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # and none of it when it is saved: "none" draws all twice
    width, height = panels[0].get_position().transformed(figure.transFigure).size
    width_pt = float(width) * 72.0 / figure.dpi
    bottom, top = panels[0].get_ylim()
    row_pt = float(height) * 72.0 / figure.dpi / abs(bottom - top)
    for axes, chart in zip(panels, charts, strict=True):
        _paint_boxes(axes, chart, width_pt, row_pt)
        if len(chart.arrows):
            _paint_arrows(axes, chart, (width_pt, row_pt))
    _number_boxes(list(zip(panels, charts, strict=True)), width_pt, row_pt)


def _paint_rows(axes: Axes, chart: Chart, row_pt: float) -> None:
    """Paints background, names and limits; idle time is the background between boxes."""
    rows, count = chart.rows, len(chart.rows.numbers)
    left, right = chart.x(np.array(chart.window_s))
    closing = max(0.8, 13.0 / row_pt) if rows.closing_line else 0.0
    bottom = count - 0.5 + closing
    ground = _rectangles(np.full(count, left), np.full(count, right), np.arange(count))
    colours = [IDLE if busy else UNUSED for busy in rows.is_busy]
    axes.add_collection(PolyCollection(ground, facecolors=colours, label="idle"), autolim=False)
    if chart.gap_s:
        gap_left, gap_right = chart.x(np.array(chart.gap_s))
        gap = _rectangles(np.full(count, gap_left), np.full(count, gap_right), np.arange(count))
        look = {"facecolors": "white", "edgecolors": GAP_INK, "hatch": _GAP_HATCH}
        _hatch(axes, gap, **look, label="not kept")
    if closing:
        axes.text(
            0.006, bottom - closing / 2, rows.closing_line, fontsize=7.5, style="italic",
            color=FAINT_INK, va="center", transform=axes.get_yaxis_transform(),
        )  # fmt: skip
    axes.set_xlim(float(left), float(right))
    axes.set_ylim(bottom, -0.5)
    _name_rows(axes, rows, row_pt)


def _hatch(axes: Axes, boxes: Any, **look: Any) -> None:
    axes.add_collection(PolyCollection(boxes, linewidths=0.0, **look), autolim=False)


def _paint_outages(axes: Axes, chart: Chart) -> None:
    """Hatch each outage over the whole height of its row, so that a box leaves its edges."""
    known = chart.outages[np.isin(integers(chart.outages, "row"), chart.rows.numbers)]
    for look in looks_of([chart.outages]):
        label, hatch = OUTAGES[look]
        boxes = chart.corners(known[known["look"] == look], 0.5)
        _hatch(axes, boxes, facecolors=UNUSED, edgecolors=FAINT_INK, hatch=hatch, label=label)


def _paint_boxes(axes: Axes, chart: Chart, width_pt: float, row_pt: float) -> None:
    """One box per step, in the colour and hatch of its direction; `width_pt` is the axes' width.

    Steps too short to be seen are drawn as hairlines, unless there are so many of them that
    hairlines would hide idle time.
    """
    boxes, looks = chart.corners(chart.boxes), np.array(texts(chart.boxes, "look"), np.str_)
    box_pt = _widths_pt(axes, chart, width_pt)
    is_tiny = box_pt < _HAIRLINE_PT
    is_sparse = is_tiny.sum() * _HAIRLINE_PT <= _HAIRLINES * width_pt * len(chart.rows.numbers)
    is_edged = np.minimum(box_pt, 2 * _HALF * row_pt) >= _EDGED_PT
    edge_pt = np.where(is_edged, 0.5, np.where(is_tiny & is_sparse, _HAIRLINE_PT, 0.0))
    for name, style in BOXES.items():
        for each_pt in (0.0, _HAIRLINE_PT, 0.5):
            chosen = (looks == name) & (edge_pt == each_pt)
            if not chosen.any():
                continue
            collection = PolyCollection(
                boxes[chosen], facecolors=style.fill, edgecolors=style.hatch_ink,
                linewidths=each_pt, label=name,
            )  # fmt: skip
            if each_pt == 0.0:
                collection.set_snap(False)  # snapping swallows the narrowest
            axes.add_collection(collection, autolim=False)
        hatched = (looks == name) & (box_pt >= _HATCHED_PT)
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


def _number_boxes(panels: list[tuple[Axes, Chart]], width_pt: float, row_pt: float) -> None:
    """Writes its label into every box that is wide and high enough, all in one size."""
    widths_pt = [_widths_pt(axes, chart, width_pt) for axes, chart in panels]
    labels = [label for _, chart in panels for label in texts(chart.boxes, "label")]
    size_pt, fits = _number_size(labels, np.concatenate(widths_pt), row_pt)
    ends = np.cumsum([len(own) for own in widths_pt])
    for (axes, chart), own in zip(panels, np.split(fits, ends[:-1]), strict=True):
        boxes = chart.boxes
        middle = chart.x((floats(boxes, "start_s") + floats(boxes, "end_s")) / 2)
        row, look = chart.rows.places(integers(boxes, "row")), texts(boxes, "look")
        for place in np.flatnonzero(own).tolist():
            axes.text(
                float(middle[place]), float(row[place]), boxes["label"].iat[place],
                fontsize=size_pt, color=BOXES[look[place]].ink,
                ha="center", va="center_baseline", clip_on=True, in_layout=False,
            )  # fmt: skip


def _legend_handles(charts: Sequence[Chart], arrow: str) -> list[Patch | Line2D]:
    """Entries for boxes, idle time, outages, what was not kept, and what an arrow is."""
    drawn = {look for chart in charts for look in texts(chart.boxes, "look")}
    names = [name for name in OPERATIONS if name in drawn] or list(DIRECTIONS)
    handles: list[Patch | Line2D] = [BOXES[name].entry() for name in names]
    handles.append(Patch(facecolor=IDLE, edgecolor=FAINT_INK, linewidth=0.4, label="idle"))
    for label, hatch in map(OUTAGES.__getitem__, looks_of(chart.outages for chart in charts)):
        handles.append(Patch(facecolor=UNUSED, edgecolor=FAINT_INK, hatch=hatch, label=label))
    if any(chart.gap_s for chart in charts):
        handles += [Patch(facecolor="white", edgecolor=GAP_INK, hatch=_GAP_HATCH, label="not kept")]
    if any(len(chart.arrows) for chart in charts):
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


def _widths_pt(axes: Axes, chart: Chart, width_pt: float) -> Floats:
    limits = axes.get_xlim()
    length = chart.x(floats(chart.boxes, "end_s")) - chart.x(floats(chart.boxes, "start_s"))
    return np.asarray(length / (limits[1] - limits[0]) * width_pt, dtype=np.float64)


def _rectangles(left: Floats, right: Floats, row: NDArray[Any], half: float = _HALF) -> Any:
    """Corners, shape (boxes, 4, 2)."""
    top, bottom = row - half, row + half
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def _name_rows(axes: Axes, rows: ChartRows, row_pt: float) -> None:
    """Names rows; every second, fourth, ... row where rows are too low for all names."""
    step = next((step for step in (1, 2, 4, 8, 16, 32) if step * row_pt >= _NAMES_PT), 64)
    places, names = range(0, len(rows.numbers), step), rows.names[::step]
    axes.set_yticks(list(places), names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    for label, place in zip(axes.get_yticklabels(), places, strict=True):
        label.set_color(axes.xaxis.label.get_color() if rows.is_busy[place] else FAINT_INK)
    axes.spines["left"].set_visible(False)
    widest_pt = max((text_width_pt(name, 8.0) for name in names), default=0.0)
    _bracket_groups(axes, rows, widest_pt + 10.0, row_pt)


def _bracket_groups(axes: Axes, rows: ChartRows, shift_pt: float, row_pt: float) -> None:
    """A bracket with its name for each kind of device, left of the rows' names."""
    shift = ScaledTranslation(-shift_pt / 72.0, 0.0, axes.figure.dpi_scale_trans)
    named_until = -np.inf
    for name, first, last in rows.groups:
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


def _paint_arrows(axes: Axes, chart: Chart, size_pt: tuple[float, float]) -> None:
    """Draws arrows over the boxes; `size_pt` is the axes' width and a row's height."""
    arrows = chart.arrows[:: chart.every]
    ends = [integers(arrows, end) for end in ("source", "target")]
    rows = [chart.rows.places(end).astype(np.float64) for end in ends]
    down = np.sign(rows[1] - rows[0])
    left, right = axes.get_xlim()
    per_pt = np.array([(right - left) / size_pt[0], 1.0 / size_pt[1]])
    times = [chart.x(floats(arrows, each)) for each in ("start_s", "end_s")]
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
