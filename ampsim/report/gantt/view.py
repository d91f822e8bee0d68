"""Gantt charts for a browser, as a page of their own or within one."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ampsim.errors import OptionError
from ampsim.files import write_text
from ampsim.report.frames import (
    DataFrame,
    floats,
    integers,
    is_worker,
    row_numbers,
    short_name,
    texts,
)
from ampsim.report.gantt.boxes import (
    OUTAGES,
    Charted,
    ChartRows,
    ChartRun,
    Window,
    arrows_in,
    chart_runs,
    check_window,
    ends_of,
    first_window,
    looks_of,
    outages_in,
    rows_for,
    whole_window,
)
from ampsim.report.saving import render
from ampsim.report.style import DIRECTIONS, TRANSFER
from ampsim.report.words import IN_FULL, plain, told_apart
from ampsim.units import format_percent, format_seconds

TRANSFERS_MAX = 200_000  # chosen: 9 MB of page
STEPS_MAX = 1_000_000  # chosen: 50 MB of page, which browsers still open in seconds

_TYPES: dict[str, str] = {
    "start": "<f8", "end": "<f8", "flop": "<f8", "bytes": "<f8", "instance": "<i4",
    "staleness": "<i4", "node": "<u2", "direction": "u1", "state": "<u4",
    "from": "<u2", "to": "<u2",
}  # fmt: skip
"""Of the numbers that a page has of a step, and of a transfer; little-endian."""


def _in_base64(columns: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Each column as bytes of its type, as text."""
    return {
        name: base64.b64encode(values.astype(_TYPES[name]).tobytes()).decode("ascii")
        for name, values in columns.items()
    }


def _names_in(every: Mapping[str, DataFrame], column: str) -> list[str]:
    """The different texts of a column, sorted; one that is empty where there is no such column."""
    found: set[str] = set()
    for spans in every.values():
        found.update(texts(spans.drop_duplicates(column), column) if column in spans else [""])
    return sorted(found)


def _codes_of(spans: DataFrame, column: str, names: list[str]) -> NDArray[np.int64]:
    """Place of each value in `names`."""
    values = texts(spans, column) if column in spans else [""] * len(spans)
    return pd.Index(names).get_indexer(pd.Index(values))


@dataclass(frozen=True, slots=True)
class Panel:
    """One schedule's chart in words, and as a table.

    A line of `worked` has a worker, or all, how many steps, and shares of the time: busy, forward,
    backward, update.
    """

    name: str
    summary: str
    of: str
    worked: list[list[str]]


@dataclass(frozen=True, slots=True)
class GanttView:
    """The values of `templates/gantt.html`."""

    data: dict[str, Any]  # plain values for `templates/gantt.js`
    panels: list[Panel]  # the chart of each schedule in words
    directions: dict[str, Any]  # label, colours and hatch of each direction
    has_transfers: bool  # whether the chart has arrows
    is_whole: bool  # whether all steps were kept, so that nothing is hatched
    outages: dict[str, str]  # what the legend says of times that are hatched


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
    whole_s = _held_window(spans, window_s)
    first_s = np.clip(window_s or first_window(runs), *whole_s).tolist()
    sent = {name: arrows_in(run.transfers, whole_s) for name, run in runs.items()}
    rows = rows_for(list(spans.values()), whole_s, workers, devices, ends_of(sent.values()))
    nodes, states = _names_in(spans, "node"), _names_in(spans, "state")
    assert len(nodes) < 1 << 16, len(nodes)
    packed = {
        name: _Packed(run, sent[name], rows, (nodes, states), whole_s) for name, run in runs.items()
    }
    shown = told_apart(packed)
    data: dict[str, Any] = {
        "whole": list(whole_s),
        "first": first_s if first_s[0] < first_s[1] else list(whole_s),
        "rows": list(rows.names),
        "workers": [short_name(number) for number in rows.numbers],
        "devices": list(rows.devices),
        "groups": [list(group) for group in rows.groups],
        "closing": rows.closing_line,
        "nodes": [plain(name, IN_FULL) for name in nodes],
        "states": [plain(state, IN_FULL) for state in states],
        "transfer": TRANSFER,
        "directions": [
            {"label": look.label, "fill": look.fill, "ink": look.ink, "hatch": look.hatch_ink}
            for look in DIRECTIONS.values()
        ],
        "schedules": [{"name": shown[name], **one.columns()} for name, one in packed.items()],
    }
    return GanttView(
        data,
        [one.panel(shown[name], workers) for name, one in packed.items()],
        dict(DIRECTIONS),
        has_transfers=any(map(len, sent.values())),
        is_whole=all(one.kept is None for one in packed.values()),
        outages={one: OUTAGES[one][0] for one in looks_of(of.outages for of in packed.values())},
    )


class _Packed:
    """Steps of one schedule that take time, sorted by row and time; its transfers and outages."""

    def __init__(
        self,
        run: ChartRun,
        sent: DataFrame,
        rows: ChartRows,
        names: tuple[list[str], list[str]],
        whole_s: Window,
    ) -> None:
        inside = _inside(run.spans, whole_s)
        drawn = _lasting(inside)
        self.free = len(inside) - len(drawn)
        row = rows.places(row_numbers(drawn))
        order = np.lexsort((floats(drawn, "start_s"), row))
        drawn, self.row = drawn.iloc[order], row[order]
        self.rows, self.whole_s = rows, whole_s
        self.sent, self.outages = sent, outages_in(run.outages, whole_s)
        self.kept = run.kept
        last_s = float(np.max(floats(drawn, "end_s"), initial=whole_s[0]))
        if run.kept is not None:  # idle until then, as far as is known
            last_s = run.kept.until_s
        self.gap_s = None if run.kept is None else run.kept.gap_s(whole_s)
        first_s = float(np.min(floats(inside, "start_s"), initial=last_s))
        self.length_s = min(last_s, whole_s[1]) - max(first_s, whole_s[0])
        self.values: dict[str, NDArray[Any]] = {
            "start": floats(drawn, "start_s"),
            "end": floats(drawn, "end_s"),
            **{name: integers(drawn, name) for name in ("flop", "bytes", "instance", "staleness")},
            "node": _codes_of(drawn, "node", names[0]),
            "state": _codes_of(drawn, "state", names[1]),
            "direction": _codes_of(drawn, "direction", list(DIRECTIONS)),
        }
        assert np.abs(self.values["instance"]).max(initial=0) < 1 << 31

    def columns(self) -> dict[str, Any]:
        """The columns in base 64, and where in them each row begins.

        Transfers are in the order of their starts, and left out where there are too many. An outage
        of a worker that has a row is its place, start, end and look.
        """
        begins = np.searchsorted(self.row, np.arange(len(self.rows.numbers) + 1))
        order = np.argsort(floats(self.sent, "start_s"), kind="stable")
        sent = self.sent.iloc[order if len(order) <= TRANSFERS_MAX else []]
        transfers = {
            "start": floats(sent, "start_s"),
            "end": floats(sent, "end_s"),
            "bytes": integers(sent, "bytes"),
            "from": self.rows.places(integers(sent, "source")),
            "to": self.rows.places(integers(sent, "target")),
        }
        known = self.outages[np.isin(integers(self.outages, "row"), self.rows.numbers)]
        places = self.rows.places(integers(known, "row"))
        ends_s = (floats(known, name).tolist() for name in ("start_s", "end_s"))
        outages = zip(places.tolist(), *ends_s, texts(known, "look"), strict=True)
        return {
            "free": self.free,
            "gap": None if self.gap_s is None else list(self.gap_s),
            "begins": begins.tolist(),
            **_in_base64(self.values),
            "sent": _in_base64(transfers),
            "outages": list(map(list, outages)),
        }

    def panel(self, name: str, workers: int) -> Panel:
        """The chart in words: all workers together, then each row."""
        rows, transfers = self.rows, len(self.sent)
        everyone = "all workers" if workers > 1 else "the worker"
        is_own = np.array([is_worker(number) for number in rows.numbers], np.bool_)
        together = self._worked(everyone, is_own[self.row], workers)
        worked = [
            self._worked(f"{row}, {kind}" if kind else row, self.row == place, 1)
            for place, (row, kind) in enumerate(zip(rows.names, rows.devices, strict=True))
        ]
        summary = (
            f"{together[1]} steps that take time in {format_seconds(self.length_s)}, "
            f"of which {everyone} {'are' if workers > 1 else 'is'} busy {together[2]}"
        )
        summary = summary if self.kept is None else f"{self.kept.words}: {summary}"
        free = f"; {self.free:,} free steps are not drawn" if self.free else ""
        arrows = f"; {transfers:,} transfers between workers" if transfers else ""
        if transfers > TRANSFERS_MAX:
            arrows += " are too many for a page; choose a shorter window"
        of = f"the {self.kept.words if self.kept else 'time from its first to its last step'}"
        return Panel(name, summary + free + arrows, of, [together, *worked])

    def _worked(self, name: str, chosen: NDArray[np.bool_], rows: int) -> list[str]:
        ends_s = (np.clip(self.values[end], *self.whole_s) for end in ("end", "start"))
        length_s = np.subtract(*ends_s)[chosen]
        direction = self.values["direction"][chosen]
        sums = np.bincount(direction, weights=length_s, minlength=len(DIRECTIONS))
        total_s = rows * self.length_s or math.nan
        shares = (format_percent(each / total_s) for each in [sum(sums), *sums.tolist()])
        return [name, f"{len(length_s):,}", *shares]


def _inside(spans: DataFrame, window_s: Window) -> DataFrame:
    """The steps that overlap a window or touch it."""
    is_inside = (floats(spans, "end_s") >= window_s[0]) & (floats(spans, "start_s") <= window_s[1])
    return spans[is_inside]


def _lasting(spans: DataFrame) -> DataFrame:
    """The steps that take time."""
    return spans[floats(spans, "end_s") > floats(spans, "start_s")]


def _held_window(spans_by_schedule: Mapping[str, DataFrame], window_s: Window | None) -> Window:
    """The time of all spans, or, where these are too many for a page, the window.

    Raises:
        OptionError: there are too many steps in the window, too, or there is none.
    """
    spans, count = spans_by_schedule.values(), 0
    for tried_s in filter(None, (whole_window(spans), window_s)):
        count = sum(len(_lasting(_inside(one, tried_s))) for one in spans)
        if count <= STEPS_MAX:
            return tried_s
    raise OptionError(
        f"a page holds at most {STEPS_MAX:,} steps that take time, got {count:,}; choose a "
        "shorter window (--window START:END), or write a trace (.json)"
    )


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
    heading = plain(title, IN_FULL) or "Who works when"
    write_text(path, render("gantt_page.html", title=heading, view=view))
    return Path(path)
