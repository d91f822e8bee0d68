"""Gantt charts for a browser, as a page of their own or within one."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ampsim.errors import OptionError
from ampsim.files import write_text
from ampsim.report.frames import (
    DataFrame,
    Integers,
    floats,
    hosts_in,
    integers,
    is_worker,
    owner_of,
    row_numbers,
    short_name,
    texts,
)
from ampsim.report.gantt.boxes import (
    OUTAGES,
    Arrows,
    Charted,
    ChartRows,
    ChartRun,
    Outages,
    Window,
    WorkerRows,
    arrows_in,
    boxes_in,
    chart_runs,
    check_window,
    choose_window,
    instances_of,
    lanes_for,
    looks_of,
    outage_rows,
    outages_in,
    whole_window,
)
from ampsim.report.saving import render
from ampsim.report.style import DIRECTIONS, TRANSFER
from ampsim.report.words import plain
from ampsim.units import format_percent, format_seconds


def sent_columns(sent: Arrows, lanes: ChartRows, most: int) -> dict[str, str]:
    """Transfers in the order of their starts, as `_Packed.columns`; none if more than `most`."""
    order = np.argsort(sent.start_s, kind="stable")
    if len(order) > most:
        order = order[:0]
    place = {worker: row for row, worker in enumerate(lanes.workers)}
    columns: dict[str, Any] = {
        "start": (sent.start_s, "<f8"),
        "end": (sent.end_s, "<f8"),
        "bytes": (sent.size_bytes, "<f8"),
        "from": (np.array([place[int(w)] for w in sent.source], dtype=np.int64), "<u2"),
        "to": (np.array([place[int(w)] for w in sent.target], dtype=np.int64), "<u2"),
    }
    return {name: in_base64(values[order], kind) for name, (values, kind) in columns.items()}


def in_base64(values: NDArray[Any], kind: str) -> str:
    """Numbers as little-endian bytes of that kind, as text."""
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")


def names_in(spans_by_schedule: Mapping[str, DataFrame], column: str) -> list[str]:
    """The different texts of a column, sorted; one that is empty where there is no such column."""
    found: set[str] = set()
    for spans in spans_by_schedule.values():
        known = DataFrame({column: spans[column].unique()}) if column in spans else None
        found.update([""] if known is None else texts(known, column))
    return sorted(found)


def codes_of(spans: DataFrame, column: str, names: list[str]) -> Integers:
    """Place of each value in `names`."""
    if column not in spans:
        return np.full(len(spans), names.index(""))
    places = {name: index for index, name in enumerate(names)}
    return np.array([places[name] for name in texts(spans, column)], dtype=np.int64)


TRANSFERS_MAX = 200_000  # chosen: 9 MB of page
STEPS_MAX = 1_000_000  # chosen: 50 MB of page, which browsers still open in seconds

_TYPES: dict[str, str] = {
    "start": "<f8", "end": "<f8", "flop": "<f8", "bytes": "<f8", "instance": "<i4",
    "staleness": "<i4", "node": "<u2", "direction": "u1", "state": "<u4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Worked:
    """Steps and shares of one worker, or of all: a row of the table beside the chart."""

    name: str
    steps: int
    busy: str
    forward: str
    backward: str
    update: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One schedule's chart in words."""

    name: str
    summary: str
    of: str
    worked: list[Worked]


@dataclass(frozen=True, slots=True)
class GanttView:
    """The values of `templates/gantt.html`.

    Attributes:
        data: plain values for `templates/gantt.js`.
        panels: the chart of each schedule in words.
        directions: label, colours and hatch of each direction.
        has_transfers: whether the chart has arrows.
        is_whole: whether all steps were kept, so that nothing is hatched.
        outages: what the legend says of times that are hatched.
    """

    data: dict[str, Any]
    panels: list[Panel]
    directions: dict[str, Any]
    has_transfers: bool
    is_whole: bool
    outages: dict[str, str]


def gantt_view(
    charted: Charted,
    *,
    workers: int,
    window_s: Window | None = None,
    devices: Sequence[str] = (),
) -> GanttView:
    """Prepares the interactive chart of some schedules on one time axis.

    Args:
        charted: what is drawn of each; free steps are counted but not drawn. Where there are more
            than `TRANSFERS_MAX` transfers of one, the page has none of it and says so.
        workers: how many workers the cluster has.
        window_s: what is shown first; the first few instances if not given. Where all steps are
            too many for a page, those outside are left out.
        devices: a device's name per worker; where they differ, rows are grouped by them.

    Raises:
        OptionError: there are too many steps for a page.
    """
    runs = chart_runs(charted)
    spans = {name: run.spans for name, run in runs.items()}
    whole_s = whole_window(spans.values())
    count = instances_of(run.outages for run in runs.values())
    first_s = window_s or choose_window(spans, count)
    if _steps(spans, whole_s) > STEPS_MAX:
        whole_s = _only_window(spans, window_s)
    rows = WorkerRows(workers, devices=devices, hosts=hosts_in(spans.values()))
    sent = {name: arrows_in(run.transfers, whole_s) for name, run in runs.items()}
    boxes = (boxes_in(one, whole_s) for one in spans.values())
    lanes = lanes_for(boxes, rows, frozenset[int]().union(*(one.workers for one in sent.values())))
    nodes, states = names_in(spans, "node"), names_in(spans, "state")
    assert len(nodes) < 1 << 16, len(nodes)
    packed = {name: _Packed(run, lanes, (nodes, states), whole_s) for name, run in runs.items()}
    found = {name: outages_in(run.outages, whole_s) for name, run in runs.items()}
    data: dict[str, Any] = {
        "whole": list(whole_s),
        "first": list(_overlap(first_s, whole_s)),
        **_rows(lanes, rows),
        "nodes": [plain(name) for name in nodes],
        "states": [plain(state, 200) for state in states],
        "transfer": TRANSFER,
        "directions": _directions(),
        "schedules": [
            {"name": plain(name), **one.columns(), **_beside(sent[name], found[name], lanes)}
            for name, one in packed.items()
        ],
    }
    pairs = zip(data["rows"], data["devices"], strict=True)
    names = [f"{row}, {kind}" if kind else row for row, kind in pairs]
    return GanttView(
        data,
        [one.panel(plain(name), (names, workers), sent[name]) for name, one in packed.items()],
        dict(DIRECTIONS),
        has_transfers=any(len(one.source) for one in sent.values()),
        is_whole=all(one.kept is None for one in packed.values()),
        outages={look: OUTAGES[look][0] for look in looks_of(found.values())},
    )


def _directions() -> list[dict[str, str]]:
    return [
        {"label": look.label, "fill": look.fill, "ink": look.ink, "hatch": look.hatch_ink}
        for look in DIRECTIONS.values()
    ]


def _beside(sent: Arrows, outages: Outages, lanes: ChartRows) -> dict[str, Any]:
    """A schedule's transfers and outages."""
    columns = sent_columns(sent, lanes, TRANSFERS_MAX)
    return {"sent": columns, "outages": outage_rows(outages, lanes.workers)}


def _rows(lanes: ChartRows, rows: WorkerRows) -> dict[str, Any]:
    """The rows: names, workers, devices where there are several kinds, and these as groups."""
    kinds = [
        rows.devices[owner_of(worker)] if lanes.groups and owner_of(worker) >= 0 else ""
        for worker in lanes.workers
    ]
    return {
        "rows": [rows.name(worker) for worker in lanes.workers],
        "workers": [short_name(worker) for worker in lanes.workers],
        "devices": [plain(kind, 24) for kind in kinds],
        "groups": [list(group) for group in lanes.groups],
        "closing": lanes.closing_line,
    }


class _Packed:
    """Steps of one schedule that take time, sorted by row and time."""

    def __init__(
        self,
        run: ChartRun,
        lanes: ChartRows,
        names: tuple[list[str], list[str]],
        whole_s: Window,
    ) -> None:
        spans, kept = run.spans, run.kept
        start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
        is_inside = (end_s >= whole_s[0]) & (start_s <= whole_s[1])
        is_drawn = is_inside & (end_s > start_s)
        drawn = np.flatnonzero(is_drawn)
        numbers, number = np.unique(row_numbers(spans)[drawn], return_inverse=True)
        place = {worker: row for row, worker in enumerate(lanes.workers)}
        places = np.array([place[worker] for worker in numbers.tolist()], np.int64)
        row = places[number]
        self.is_worker = np.array([is_worker(worker) for worker in lanes.workers], np.bool_)
        order = np.lexsort((start_s[drawn], row))
        chosen = drawn[order]
        self.row: Integers = row[order]
        self.rows = len(lanes.workers)
        self.free = int(is_inside.sum()) - len(drawn)
        last_s = float(np.max(end_s[drawn], initial=whole_s[0]))
        self.kept = kept
        self.gap_s = None if kept is None else kept.gap_s(whole_s)
        if kept is not None:  # idle until then, as far as is known
            last_s = kept.until_s
        self.length_s = min(last_s, whole_s[1]) - whole_s[0]
        self.values: dict[str, NDArray[Any]] = {
            "start": start_s[chosen],
            "end": end_s[chosen],
            "flop": integers(spans, "flop")[chosen],
            "bytes": integers(spans, "bytes")[chosen],
            "instance": integers(spans, "instance")[chosen],
            "staleness": integers(spans, "staleness")[chosen],
            "node": codes_of(spans, "node", names[0])[chosen],
            "state": codes_of(spans, "state", names[1])[chosen],
            "direction": codes_of(spans, "direction", list(DIRECTIONS))[chosen],
        }
        assert np.abs(self.values["instance"]).max(initial=0) < 1 << 31

    def columns(self) -> dict[str, Any]:
        """The columns in base 64, and where in them each row begins."""
        begins = np.searchsorted(self.row, np.arange(self.rows + 1))
        return {
            "free": self.free,
            "gap": None if self.gap_s is None else list(self.gap_s),
            "begins": begins.tolist(),
            **{name: in_base64(values, _TYPES[name]) for name, values in self.values.items()},
        }

    def panel(self, name: str, shown: tuple[list[str], int], sent: Arrows) -> Panel:
        """The chart in words: all workers together, then each that is `shown`, of so many."""
        rows, workers = shown
        everyone = "all workers" if workers > 1 else "the worker"
        together = self._worked(everyone, self.is_worker[self.row], workers)
        worked = [self._worked(row, self.row == index, 1) for index, row in enumerate(rows)]
        summary = (
            f"{together.steps:,} steps that take time in {format_seconds(self.length_s)}, "
            f"of which {everyone} {'are' if workers > 1 else 'is'} busy {together.busy}"
        )
        if self.kept is not None:
            summary = f"{self.kept.words}: {summary}"
        free = f"; {self.free:,} free steps are not drawn" if self.free else ""
        count = len(sent.source)
        arrows = f"; {count:,} transfers between workers" if count else ""
        if count > TRANSFERS_MAX:
            arrows += " are too many for a page; choose a shorter window"
        of = (
            "the time from its first to its last step"
            if self.kept is None
            else f"the {self.kept.words}"
        )
        return Panel(name, summary + free + arrows, of, [together, *worked])

    def _worked(self, name: str, chosen: NDArray[np.bool_], rows: int) -> Worked:
        length_s = (self.values["end"] - self.values["start"])[chosen]
        direction = self.values["direction"][chosen]
        sums = np.bincount(direction, weights=length_s, minlength=len(DIRECTIONS))
        total_s = rows * self.length_s or math.nan
        busy, *shares = (format_percent(each / total_s) for each in [sum(sums), *sums.tolist()])
        return Worked(name, len(length_s), busy, *shares)


def _overlap(first_s: Window, whole_s: Window) -> Window:
    start_s, end_s = max(first_s[0], whole_s[0]), min(first_s[1], whole_s[1])
    return (start_s, end_s) if start_s < end_s else whole_s


def _steps(spans_by_schedule: Mapping[str, DataFrame], window_s: Window) -> int:
    return sum(
        int(((end_s > start_s) & (end_s >= window_s[0]) & (start_s <= window_s[1])).sum())
        for start_s, end_s in (
            (floats(spans, "start_s"), floats(spans, "end_s"))
            for spans in spans_by_schedule.values()
        )
    )


def _only_window(spans_by_schedule: Mapping[str, DataFrame], window_s: Window | None) -> Window:
    """The window, if a page can hold its steps.

    Raises:
        OptionError: there are too many steps, or no window was given.
    """
    count = _steps(spans_by_schedule, window_s or whole_window(spans_by_schedule.values()))
    if window_s is None or count > STEPS_MAX:
        raise OptionError(
            f"a page holds at most {STEPS_MAX:,} steps that take time, got {count:,}; choose a "
            "shorter window (--window START:END), or write a trace (.json)"
        )
    return window_s


def write_gantt_page(
    charted: Charted,
    path: str | Path,
    *,
    workers: int,
    window_s: Window | None = None,
    title: str = "",
    devices: Sequence[str] = (),
) -> Path:
    """Writes the schedules' charts above each other into one page that needs no network.

    A reader can zoom, pan, point at a step for its numbers, and follow one instance through all
    workers. Where boxes would be too narrow, the page shows shares of busy time, and says so.

    Args:
        charted: what is drawn of each schedule.
        path: the file.
        workers: how many workers the cluster has.
        window_s: what is shown first, as of `gantt_view`.
        title: heading, a user's text.
        devices: a device's name per worker.

    Raises:
        OptionError: the window is empty or reversed, or there are too many steps for a page.
        OutputError: the file cannot be written.
    """
    assert charted, "a chart of no schedule"
    if window_s is not None:
        check_window(window_s)
    view = gantt_view(charted, workers=workers, window_s=window_s, devices=devices)
    heading = plain(title, 200) or "Who works when"
    write_text(path, render("gantt_page.html", title=heading, view=view))
    return Path(path)
