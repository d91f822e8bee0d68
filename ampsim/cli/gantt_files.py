"""The files that ampsim gantt writes: one way for each suffix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ampsim.errors import OptionError
from ampsim.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

    from ampsim.report.gantt.window import Choice
    from ampsim.report.perfetto.trace import Trace

Window: TypeAlias = "Choice | None"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is to be drawn: which model on which cluster, and a trace for each schedule.

    `has_transfers` tells whether to draw messages on links that take time.
    """

    title: str
    traces: list[Trace]
    has_transfers: bool = True

    @property
    def workers(self) -> int:
        """How many workers the cluster has."""
        return self.traces[0].workers

    def spans(self) -> dict[str, pd.DataFrame]:
        """All spans of each schedule."""
        from ampsim.report.frames import joined

        return {trace.name: joined(list(trace.spans())) for trace in self.traces}

    def outages(self) -> dict[str, pd.DataFrame | None]:
        """When which device was not as usual, of each schedule."""
        return {trace.name: trace.outages for trace in self.traces}

    def transfers(self) -> dict[str, list[pd.DataFrame]]:
        """All transfers of each schedule that are to be drawn, in chunks."""
        if not self.has_transfers:
            return {trace.name: [] for trace in self.traces}
        return {trace.name: list(trace.transfers()) for trace in self.traces}


def writer_of(out: Path) -> Callable[[Shown, Path, Window], str]:
    """What writes a file of that suffix, and then says in a line what it wrote.

    Raises:
        OptionError: no file of that suffix is written.
    """
    from ampsim.report.saving import KNOWN_SUFFIXES

    ways = {**dict.fromkeys(KNOWN_SUFFIXES, _write_picture), ".html": _write_page}
    ways[".json"] = _write_trace
    suffix = out.suffix.lower()
    if suffix not in ways:
        raise OptionError(
            f"cannot write a Gantt chart to {str(out)!r}: its suffix must be one of "
            f"{', '.join(ways)}, got {suffix or 'none'!r}"
        )
    return ways[suffix]


def require_no_window(out: Path, window: str | None) -> None:
    """Refuse a window where the whole run is written.

    Raises:
        OptionError: a window was given for a trace.
    """
    if window is not None and out.suffix.lower() == ".json":
        raise OptionError(
            f"--window does not go with {out.name}: a trace (.json) holds the whole run; leave "
            "--window out and zoom in the viewer"
        )


def _write_trace(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.perfetto.trace import write_perfetto

    traces = shown.traces
    if not shown.has_transfers:
        traces = [replace(trace, transfers=tuple) for trace in traces]
    count = write_perfetto(traces, out, title=shown.title)
    return f"wrote {out}: {count:,} spans; open it in https://ui.perfetto.dev or chrome://tracing"


def _write_page(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.gantt.page import write_gantt_page
    from ampsim.report.gantt.window import chosen_window

    spans = shown.spans()
    title = f"{shown.title}: {', '.join(spans)}"
    write_gantt_page(
        spans,
        out,
        workers=shown.workers,
        window_s=None if window is None else chosen_window(window, spans),
        title=title,
        devices=shown.traces[0].devices,
        transfers=shown.transfers(),
        outages=shown.outages(),
    )
    return f"wrote {out}: open it in a browser, zoom with the wheel, click a box to follow it"


def _write_picture(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.gantt.boxes import choose_window, whole_window
    from ampsim.report.gantt.chart import Schedule, gantt, gantt_comparison
    from ampsim.report.gantt.outages import instances_of
    from ampsim.report.gantt.window import chosen_window
    from ampsim.report.saving import save

    spans, transfers, outages = shown.spans(), shown.transfers(), shown.outages()
    whole_s = whole_window(spans.values())
    count = instances_of(outages.values())
    window_s = choose_window(spans, count) if window is None else chosen_window(window, spans)
    same: dict[str, Any] = {
        "workers": shown.workers, "window_s": window_s, "devices": shown.traces[0].devices,
    }  # fmt: skip
    if len(spans) == 1:
        name, only = next(iter(spans.items()))
        title = f"{shown.title}: {name}"
        drawn = {"transfers": transfers[name], "outages": outages[name]}
        figure = gantt(only, title=title, **drawn, **same)
    else:
        drawn = {
            name: Schedule(each, transfers[name], outages=outages[name])
            for name, each in spans.items()
        }
        figure = gantt_comparison(drawn, **same)
    save(figure, out)
    rest = "" if math.isclose(whole_s[1], window_s[1]) else f" of {format_seconds(whole_s[1])}"
    return (
        f"wrote {out}: {format_seconds(window_s[0])} to {format_seconds(window_s[1])}{rest}; "
        "--window START:END shows another part"
    )
