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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any

from matplotlib.figure import Figure

from ampsim.report.frames import DataFrame, hosts_in, is_of_operations, is_worker
from ampsim.report.gantt.boxes import (
    ARROWS_MAX,
    Charted,
    ChartRun,
    Window,
    WorkerRows,
    boxes_in,
    chart_runs,
    check_window,
    lanes_for,
    outages_in,
    whole_window,
)
from ampsim.report.gantt.paint import (
    Chart,
    legend_handles,
    number_boxes,
    paint_arrows,
    paint_boxes,
    paint_outages,
    paint_rows,
)
from ampsim.report.style import FAINT_INK, Axes, new_figure, styled, time_scale
from ampsim.report.words import plain
from ampsim.units import format_percent

_WIDTH_IN = 10.0
_ROW_IN = 0.3  # chosen: a row holds a number of 8 pt
_ROWS_IN_MAX = 12.0  # chosen: more rows than fit into this height become lower


def gantt(
    run: DataFrame | ChartRun,
    *,
    workers: int,
    window_s: Window | None = None,
    title: str = "",
    devices: Sequence[str] = (),
) -> Figure:
    """One schedule's Gantt chart, worker 0 on top.

    Args:
        run: what is drawn, or spans alone.
        workers: how many workers the cluster has.
        window_s: start and end of the time shown; the whole of the spans if not given.
        title: heading, a user's text.
        devices: a device's name per worker; where they differ, rows are grouped by them.

    Raises:
        OptionError: the window is empty or reversed.
    """
    return _stack({title: run}, WorkerRows(workers, devices), window_s, numbered=False)


def gantt_comparison(
    schedules: Charted,
    *,
    workers: int,
    window_s: Window | None = None,
    devices: Sequence[str] = (),
) -> Figure:
    """Schedules above each other, (a), (b), (c), ..., with the same rows on one time axis.

    The arguments are those of `gantt`.

    Raises:
        OptionError: the window is empty or reversed.
    """
    return _stack(schedules, WorkerRows(workers, devices), window_s, numbered=True)


@styled
def _stack(
    charted: Charted, rows: WorkerRows, window_s: Window | None, *, numbered: bool
) -> Figure:
    assert charted, "a chart of no schedule"
    schedules = chart_runs(charted)
    spans = [one.spans for one in schedules.values()]
    rows = replace(rows, hosts=hosts_in(spans), has_threads=any(map(is_of_operations, spans)))
    window = check_window(window_s) if window_s else whole_window(spans)
    charts = _charts(schedules, rows, window)
    lanes = charts[0].lanes
    row_pt = 72.0 * min(_ROW_IN, _ROWS_IN_MAX / (len(lanes.workers) * len(charts)))
    figure, panels = _panels(len(charts), len(lanes.workers) * row_pt / 72.0)
    for index, (axes, chart, name) in enumerate(zip(panels, charts, schedules, strict=True)):
        paint_rows(axes, chart, rows, row_pt)
        paint_outages(axes, chart)
        axes.tick_params(axis="x", labelbottom=axes is panels[-1])
        axes.set_title(
            _summary(chart, rows), loc="right", fontsize=8, fontweight="normal", color=FAINT_INK
        )
        mark = f"({ascii_lowercase[index]}) " if numbered and index < len(ascii_lowercase) else ""
        axes.set_title(f"{mark}{plain(name)}")
    panels[-1].set_xlabel(charts[0].scale.label("virtual time"))
    figure.legend(
        handles=legend_handles(charts, "made ready by" if rows.has_threads else "transfer"),
        loc="outside upper right",
        ncols=7 if rows.has_threads else 6,
    )
    _paint_to_size(figure, panels, charts)
    return figure


def _charts(schedules: Mapping[str, ChartRun], rows: WorkerRows, window: Window) -> list[Chart]:
    boxes = [boxes_in(one.spans, window) for one in schedules.values()]
    arrows = [
        one.arrows(drawn, window) for one, drawn in zip(schedules.values(), boxes, strict=True)
    ]
    joined = frozenset[int]().union(*(each.workers for each in arrows))
    lanes, scale = lanes_for(boxes, rows, joined), time_scale(*window)
    return [
        Chart(
            each,
            lanes,
            scale,
            window,
            *sent.thinned(ARROWS_MAX),
            len(sent.source),
            one.kept,
            outages_in(one.outages, window),
        )
        for each, sent, one in zip(boxes, arrows, schedules.values(), strict=True)
    ]


def _panels(count: int, rows_in: float) -> tuple[Any, list[Axes]]:
    figure = new_figure(_WIDTH_IN, 0.95 + count * (rows_in + 0.45))
    first = figure.add_subplot(count, 1, 1)
    others = [figure.add_subplot(count, 1, place, sharex=first) for place in range(2, count + 1)]
    return figure, [first, *others]


def _summary(chart: Chart, rows: WorkerRows) -> str:
    """How busy the rows are or how much was kept, and the share of arrows that is drawn."""
    what = "rows" if all(map(is_worker, chart.lanes.workers)) else "workers"
    parts = [f"{what} shown are busy {format_percent(chart.busy_fraction)} of this window"]
    if rows.has_threads:
        parts = []
    if not len(chart.boxes.worker):
        parts = ["no step takes time in this window"]
    if chart.gap_s and chart.kept:
        parts = [chart.kept.words]
    if chart.every > 1:
        arrows = "dependencies" if rows.has_threads else "transfers"
        parts.append(f"one in {chart.every} of {chart.transfers:,} {arrows} is drawn")
    return "; ".join(parts)


def _paint_to_size(figure: Any, panels: list[Axes], charts: list[Chart]) -> None:
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    width, height = panels[0].get_position().transformed(figure.transFigure).size
    width_pt = float(width) * 72.0 / figure.dpi
    bottom, top = panels[0].get_ylim()
    row_pt = float(height) * 72.0 / figure.dpi / abs(bottom - top)
    for axes, chart in zip(panels, charts, strict=True):
        paint_boxes(axes, chart, width_pt)
        if chart.transfers:
            paint_arrows(axes, chart, (width_pt, row_pt))
    number_boxes(list(zip(panels, charts, strict=True)), width_pt, row_pt)
