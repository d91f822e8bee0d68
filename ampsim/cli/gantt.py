"""`ampsim gantt`: who works when, drawn on a terminal or into files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import ampsim
from ampsim.cli import options
from ampsim.cli.console import Code, answer, hold, object_of, typed_options
from ampsim.cli.option_table import CHARTED
from ampsim.cli.options import Tuning
from ampsim.errors import OptionError
from ampsim.files import expanded, prepared_file
from ampsim.units import format_seconds

if TYPE_CHECKING:
    from ampsim.model_parallel import Schedule
    from ampsim.report.frames import DataFrame
    from ampsim.report.gantt.boxes import ChartRun
    from ampsim.report.perfetto.trace import Trace
    from ampsim.runs import LoadedRun

Window: TypeAlias = "tuple[float, float] | None"


@dataclass(frozen=True, slots=True)
class Shown:
    """The subject of a chart: which model on which cluster, and a trace for each schedule."""

    title: str
    traces: list[Trace]

    @property
    def workers(self) -> int:
        """Count the cluster's workers."""
        return self.traces[0].workers

    def charted(self) -> dict[str, ChartRun]:
        """Return the spans of each schedule, its outages, and its transfers."""
        from ampsim.report.frames import joined
        from ampsim.report.gantt.boxes import ChartRun

        return {
            trace.name: ChartRun(
                joined(list(trace.spans())),
                list(trace.transfers()),
                outages=trace.outages,
            )
            for trace in self.traces
        }


def writer_of(out: Path) -> Callable[[Shown, Path, Window], str]:
    """Return the writer of files of a suffix, which says in a line what it wrote.

    Raises:
        OptionError: no file of that suffix is written.
    """
    from ampsim.report.saving import KNOWN_SUFFIXES, check_suffix

    ways = {**dict.fromkeys(KNOWN_SUFFIXES, _write_picture), ".html": _write_page}
    ways |= {".json": _write_trace, ".kineto": _write_profiles}
    return ways[check_suffix(out, ways, "a Gantt chart")]


def _write_trace(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.perfetto.trace import write_perfetto

    spans = f"{write_perfetto(shown.traces, out, title=shown.title):,} spans, in whole nanoseconds"
    return f"wrote {out}: {spans}; open it in https://ui.perfetto.dev or chrome://tracing"


def _write_profiles(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.perfetto.kineto import write_kineto

    if len(shown.traces) > 1:
        raise OptionError(
            f"{out.name} holds one schedule, got {len(shown.traces)}; name one with --schedule"
        )
    (trace,) = shown.traces
    with prepared_file(out / "worker-0.json"):
        count, unit_s = write_kineto(trace, expanded(out), title=shown.title)
    return (
        f"wrote {out}: {count:,} steps and transfers of {trace.workers} worker"
        f"{'s' * (trace.workers != 1)}, where 1 µs stands for {format_seconds(unit_s)}; "
        "HTA reads the folder"
    )


def _write_page(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.gantt.boxes import require_within
    from ampsim.report.gantt.view import write_gantt_page

    charted = shown.charted()
    write_gantt_page(
        charted,
        out,
        workers=shown.workers,
        window_s=require_within(window, [one.spans for one in charted.values()]),
        title=f"{shown.title}: {', '.join(charted)}",
        devices=shown.traces[0].devices,
    )
    return f"wrote {out}: open it in a browser, zoom with the wheel, click a box to follow it"


def _write_picture(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.gantt.boxes import first_window, require_within, whole_window
    from ampsim.report.gantt.chart import gantt as drawn
    from ampsim.report.saving import save

    charted = shown.charted()
    spans = [one.spans for one in charted.values()]
    whole_s = whole_window(spans)
    window_s = require_within(window, spans) or first_window(charted)
    is_one = len(charted) == 1
    named = {f"{shown.title}: {name}" if is_one else name: one for name, one in charted.items()}
    devices = shown.traces[0].devices
    save(drawn(named, workers=shown.workers, window_s=window_s, devices=devices), out)
    rest = "" if math.isclose(whole_s[1], window_s[1]) else f" of {format_seconds(whole_s[1])}"
    return (
        f"wrote {out}: {format_seconds(window_s[0])} to {format_seconds(window_s[1])}{rest}; "
        "--window START:END shows another part"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Charting:
    """Options of a model that is yet to run."""

    schedule: str | None = None
    settings: list[str] | None = None
    data: str | None = None
    hardware: options.Hardware
    tuning: Tuning
    placement: str | None = None
    instances: int | None = None
    seed: int = 0
    mode: options.ModeName = "numeric"

    def made(self, source: str) -> Shown:
        """Run the model under each schedule."""
        from ampsim.study.schedule_names import labels_of

        model = options.make_model(source, self.settings, self.data)
        cluster = self.hardware.cluster()
        schedules = self.tuning.schedules(self.schedule or options.usual_of(model))
        count = _charted(model, self.seed) if self.instances is None else self.instances

        def trace(schedule: Schedule, label: str) -> Trace:
            result = ampsim.simulate(
                model, cluster, schedule, seed=self.seed, mode=self.mode, instances=count,
                placement=self.placement,
            )  # fmt: skip
            return _trace(result, lambda table: [getattr(result, table)], label, result.origin)

        traces = list(map(trace, schedules, labels_of(schedules)))
        return Shown(f"{model.name} on {cluster.name}", traces)


_OF_CHARTS: Final = ("out", "window", "json", "traceback")
"""Options of what is drawn, of whatever run."""


def gantt(
    source: str,
    *,
    out: Path,
    window: str | None = None,
    charting: Charting,
    json: str | None = None,
) -> Code:
    """Draw who works when: forward orange, backward blue, update yellow, one row per worker.

    The object of --json: ampsim, file, title, workers, schedules (a list of names), text.
    """
    from ampsim.report.gantt.boxes import parse_window

    writer = writer_of(out)
    choice = None if window is None else parse_window(window)
    if choice is not None and writer in (_write_trace, _write_profiles):
        raise OptionError(
            f"--window does not go with {out.name}: a trace ({out.suffix.lower()}) holds the whole "
            "run; leave --window out and zoom in the viewer"
        )
    hold(prepared_file(out / "worker-0.json" if out.suffix.lower() == ".kineto" else out))
    shown = _kept(source) if os.path.isdir(expanded(source)) else charting.made(source)
    said = writer(shown, out, choice)
    names = [trace.name for trace in shown.traces]
    about = {"title": shown.title, "workers": shown.workers, "schedules": names}
    answer(json, lambda: object_of(file=str(out), **about, text=said), lambda: said)
    return Code.FINE


def _kept(folder: str) -> Shown:
    kept = ampsim.load_run(folder)
    for name, option in typed_options().items():
        if name not in _OF_CHARTS:
            raise OptionError(
                f"{option} belongs to a model that is yet to run, but {folder} is a run; leave it "
                "out"
            )
    return Shown(
        f"{kept.model} on {kept.cluster}", [_trace(kept, kept.chunks, kept.schedule, kept.manifest)]
    )


def _trace(
    run: ampsim.Result | LoadedRun,
    chunks: Callable[[str], Iterable[DataFrame]],
    name: str,
    origin: Mapping[str, Any],
) -> Trace:
    """A run as a trace; `chunks` gives the rows of a table."""
    from ampsim.report.gantt.boxes import outages_of
    from ampsim.report.perfetto.trace import Trace
    from ampsim.study.provenance import devices_of

    return Trace(
        name,
        run.workers,
        partial(chunks, "spans"),
        partial(chunks, "updates"),
        run.epochs,
        partial(chunks, "stashes"),
        partial(chunks, "transfers"),
        devices_of(origin),
        outages_of(run),
        run.memory,
    )


def _charted(model: ampsim.Model, seed: int) -> int | None:
    """Return how many items are run unless told; None, for all, where the data have fewer."""
    try:
        model.data(seed, CHARTED)
    except OptionError:
        return None
    return CHARTED
