"""A Gantt chart to zoom in, as one page of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ampsim.files import write_text
from ampsim.report.frames import DataFrame
from ampsim.report.gantt.boxes import Window, check_window
from ampsim.report.gantt.view import gantt_view
from ampsim.report.template import render
from ampsim.report.words import plain


def write_gantt_page(
    spans_by_schedule: Mapping[str, DataFrame],
    path: str | Path,
    *,
    workers: int,
    window_s: Window | None = None,
    title: str = "",
    devices: Sequence[str] = (),
    transfers: Mapping[str, Sequence[DataFrame]] | None = None,
    outages: Mapping[str, DataFrame | None] | None = None,
) -> Path:
    """Writes the schedules' charts above each other into one page that needs no network.

    A reader can zoom, pan, point at a step for its numbers, and follow one instance through all
    workers. Where boxes would be too narrow, the page shows shares of busy time, and says so.

    Args:
        spans_by_schedule: the trace's spans.
        path: the file.
        workers: how many workers the cluster has.
        window_s: what is shown first; the first few instances if not given.
        title: heading, a user's text.
        devices: a device's name per worker; where they differ, rows are grouped by them.
        transfers: each schedule's transfers in chunks, to be drawn as arrows.
        outages: when which device was not as usual, hatched behind its row's boxes.

    Raises:
        OptionError: the window is empty or reversed, or there are too many steps for a page.
        OutputError: the file cannot be written.
    """
    assert spans_by_schedule, "a chart of no schedule"
    if window_s is not None:
        check_window(window_s)
    view = gantt_view(
        spans_by_schedule,
        workers=workers,
        window_s=window_s,
        devices=devices,
        transfers=transfers,
        outages=outages,
    )
    heading = plain(title, 200) or "Who works when"
    write_text(path, render("gantt_page.html", title=heading, view=view))
    return Path(path)
