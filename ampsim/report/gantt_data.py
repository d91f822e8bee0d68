"""A Gantt chart's steps as a page carries them: columns sorted by row and time, in base 64."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ampsim.errors import OptionError
from ampsim.report.frames import DataFrame, Integers, floats, integers, texts
from ampsim.report.gantt_boxes import (
    Lanes,
    Window,
    WorkerRows,
    boxes_in,
    choose_window,
    lanes_for,
    whole_window,
)
from ampsim.report.style import DIRECTIONS
from ampsim.report.words import plain
from ampsim.units import format_percent, format_seconds

STEPS_MAX = 1_000_000  # chosen: 50 MB of page, which browsers still open in seconds

_TYPES: dict[str, str] = {
    "start": "<f8", "end": "<f8", "flop": "<f8", "bytes": "<f8", "instance": "<i4",
    "staleness": "<i4", "node": "<u2", "direction": "u1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Worked:
    """What one worker did, or all of them: a row of the table beside the chart."""

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
    worked: list[Worked]


@dataclass(frozen=True, slots=True)
class GanttView:
    """What `templates/gantt.html` shows.

    Attributes:
        data: plain values for `templates/gantt.js`.
        panels: the same in words, a panel for each schedule.
        directions: looks of the three kinds of step.
    """

    data: dict[str, Any]
    panels: list[Panel]
    directions: dict[str, Any]


def gantt_view(
    spans_by_schedule: Mapping[str, DataFrame], *, workers: int, window_s: Window | None = None
) -> GanttView:
    """Prepares the interactive chart of some schedules on one time axis.

    Args:
        spans_by_schedule: the trace's spans; free steps are counted but not drawn.
        workers: how many workers the cluster has.
        window_s: what is shown first; the first few instances if not given. Where all steps are
            too many for a page, those outside are left out.

    Raises:
        OptionError: there are too many steps for a page.
    """
    whole_s = whole_window(spans_by_schedule.values())
    first_s = choose_window(spans_by_schedule) if window_s is None else window_s
    if _steps(spans_by_schedule, whole_s) > STEPS_MAX:
        whole_s = _only_window(spans_by_schedule, window_s)
    rows = WorkerRows(workers)
    lanes = lanes_for((boxes_in(spans, whole_s) for spans in spans_by_schedule.values()), rows)
    nodes = sorted({name for spans in spans_by_schedule.values() for name in _nodes(spans)})
    assert len(nodes) < 1 << 16, len(nodes)
    packed = [_Packed(spans, lanes, nodes, whole_s) for spans in spans_by_schedule.values()]
    data = {
        "whole": list(whole_s),
        "first": list(_overlap(first_s, whole_s)),
        "rows": [rows.name(worker) for worker in lanes.workers],
        "workers": list(lanes.workers),
        "closing": lanes.closing_line,
        "nodes": [plain(name) for name in nodes],
        "directions": [
            {"label": look.label, "fill": look.fill, "ink": look.ink, "hatch": look.hatch_ink}
            for look in DIRECTIONS.values()
        ],
        "schedules": [
            {"name": plain(name), **one.columns()}
            for name, one in zip(spans_by_schedule, packed, strict=True)
        ],
    }
    panels = [
        one.panel(plain(name), [rows.name(worker) for worker in lanes.workers])
        for name, one in zip(spans_by_schedule, packed, strict=True)
    ]
    return GanttView(data, panels, dict(DIRECTIONS))


class _Packed:
    """Steps of one schedule that take time, sorted by row and time."""

    def __init__(self, spans: DataFrame, lanes: Lanes, nodes: list[str], whole_s: Window) -> None:
        start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
        is_inside = (end_s >= whole_s[0]) & (start_s <= whole_s[1])
        is_drawn = is_inside & (end_s > start_s)
        place = np.full(max(lanes.workers, default=0) + 1, -1)
        place[list(lanes.workers)] = np.arange(len(lanes.workers))
        drawn = np.flatnonzero(is_drawn)
        row = place[integers(spans, "worker")[drawn]]
        order = np.lexsort((start_s[drawn], row))
        chosen = drawn[order]
        self.row: Integers = row[order]
        self.rows = len(lanes.workers)
        self.free = int(is_inside.sum()) - len(drawn)
        last_s = float(np.max(end_s[drawn], initial=whole_s[0]))
        self.length_s = min(last_s, whole_s[1]) - whole_s[0]
        self.values: dict[str, NDArray[Any]] = {
            "start": start_s[chosen],
            "end": end_s[chosen],
            "flop": integers(spans, "flop")[chosen],
            "bytes": integers(spans, "bytes")[chosen],
            "instance": integers(spans, "instance")[chosen],
            "staleness": integers(spans, "staleness")[chosen],
            "node": _codes(spans, "node", nodes)[chosen],
            "direction": _codes(spans, "direction", list(DIRECTIONS))[chosen],
        }
        assert np.abs(self.values["instance"]).max(initial=0) < 1 << 31

    def columns(self) -> dict[str, Any]:
        """The columns in base 64, and where in them each row begins."""
        begins = np.searchsorted(self.row, np.arange(self.rows + 1))
        return {
            "free": self.free,
            "begins": begins.tolist(),
            **{
                name: base64.b64encode(values.astype(_TYPES[name]).tobytes()).decode("ascii")
                for name, values in self.values.items()
            },
        }

    def panel(self, name: str, rows: list[str]) -> Panel:
        """The chart in words: all rows together, then each."""
        together = self._worked("all of these", np.ones(len(self.row), dtype=np.bool_), self.rows)
        worked = [self._worked(row, self.row == index, 1) for index, row in enumerate(rows)]
        summary = (
            f"{together.steps:,} steps that take time in {format_seconds(self.length_s)}, "
            f"workers shown are busy {together.busy}"
        )
        free = f"; {self.free:,} free steps are not drawn" if self.free else ""
        return Panel(name, summary + free, [together, *worked])

    def _worked(self, name: str, chosen: NDArray[np.bool_], rows: int) -> Worked:
        length_s = (self.values["end"] - self.values["start"])[chosen]
        direction = self.values["direction"][chosen]
        sums = np.bincount(direction, weights=length_s, minlength=len(DIRECTIONS))
        total_s = rows * self.length_s or math.nan
        busy, *shares = (format_percent(each / total_s) for each in [sum(sums), *sums.tolist()])
        return Worked(name, len(length_s), busy, *shares)


def _overlap(first_s: Window, whole_s: Window) -> Window:
    """The part of the run that is shown first; the whole of it where the window lies outside."""
    start_s, end_s = max(first_s[0], whole_s[0]), min(first_s[1], whole_s[1])
    return (start_s, end_s) if start_s < end_s else whole_s


def _steps(spans_by_schedule: Mapping[str, DataFrame], window_s: Window) -> int:
    """How many steps take time in a window."""
    return sum(
        int(((end_s > start_s) & (end_s >= window_s[0]) & (start_s <= window_s[1])).sum())
        for start_s, end_s in (
            (floats(spans, "start_s"), floats(spans, "end_s"))
            for spans in spans_by_schedule.values()
        )
    )


def _only_window(spans_by_schedule: Mapping[str, DataFrame], window_s: Window | None) -> Window:
    """The window, if what it holds is not too much."""
    count = _steps(spans_by_schedule, window_s or whole_window(spans_by_schedule.values()))
    if window_s is None or count > STEPS_MAX:
        raise OptionError(
            f"a page holds at most {STEPS_MAX:,} steps that take time, got {count:,}; choose a "
            "shorter window (--window START:END), or write a trace (.json)"
        )
    return window_s


def _nodes(spans: DataFrame) -> set[str]:
    return set(texts(DataFrame({"node": spans["node"].unique()}), "node"))


def _codes(spans: DataFrame, column: str, names: list[str]) -> Integers:
    """Place of each value in `names`."""
    places = {name: index for index, name in enumerate(names)}
    return np.array([places[name] for name in texts(spans, column)], dtype=np.int64)
