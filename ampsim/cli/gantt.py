"""`ampsim gantt`: who works when, drawn on a terminal or into files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ampsim.cli import completion, options
from ampsim.cli.console import (
    Code,
    hold,
    object_of,
    prepare_json,
    write,
    write_json,
)
from ampsim.cli.tuning import Tuning
from ampsim.errors import OptionError
from ampsim.files import expanded
from ampsim.units import format_seconds

if TYPE_CHECKING:
    from ampsim.report.gantt.boxes import ChartRun, Choice
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

    def charted(self) -> dict[str, ChartRun]:
        """All spans of each schedule, its outages, and its transfers if they are to be drawn."""
        from ampsim.report.frames import joined
        from ampsim.report.gantt.boxes import ChartRun

        return {
            trace.name: ChartRun(
                joined(list(trace.spans())),
                list(trace.transfers()) if self.has_transfers else (),
                outages=trace.outages,
            )
            for trace in self.traces
        }


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
    from ampsim.report.gantt.boxes import chosen_window
    from ampsim.report.gantt.view import write_gantt_page

    charted = shown.charted()
    spans = {name: one.spans for name, one in charted.items()}
    write_gantt_page(
        charted,
        out,
        workers=shown.workers,
        window_s=None if window is None else chosen_window(window, spans),
        title=f"{shown.title}: {', '.join(spans)}",
        devices=shown.traces[0].devices,
    )
    return f"wrote {out}: open it in a browser, zoom with the wheel, click a box to follow it"


def _write_picture(shown: Shown, out: Path, window: Window) -> str:
    from ampsim.report.gantt.boxes import choose_window, chosen_window, instances_of, whole_window
    from ampsim.report.gantt.chart import gantt, gantt_comparison
    from ampsim.report.saving import save

    charted = shown.charted()
    spans = {name: one.spans for name, one in charted.items()}
    whole_s = whole_window(spans.values())
    count = instances_of(one.outages for one in charted.values())
    window_s = choose_window(spans, count) if window is None else chosen_window(window, spans)
    same: dict[str, Any] = {
        "workers": shown.workers, "window_s": window_s, "devices": shown.traces[0].devices,
    }  # fmt: skip
    if len(charted) == 1:
        ((name, only),) = charted.items()
        figure = gantt(only, title=f"{shown.title}: {name}", **same)
    else:
        figure = gantt_comparison(charted, **same)
    save(figure, out)
    rest = "" if math.isclose(whole_s[1], window_s[1]) else f" of {format_seconds(whole_s[1])}"
    return (
        f"wrote {out}: {format_seconds(window_s[0])} to {format_seconds(window_s[1])}{rest}; "
        "--window START:END shows another part"
    )


_INSTANCES = 2000  # chosen: enough for a window's worth, done in a moment

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|RUN_DIR",
        autocompletion=completion.models,
        help="A model to run for a moment, or a folder of `ampsim run`.",
    ),
]


def gantt(
    source: SourceArgument,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Picture .png, .svg, .pdf; page to zoom in .html; trace for Perfetto .json.",
        ),
    ],
    window: Annotated[
        str | None,
        typer.Option(
            metavar="START:END|instance:N[-N]",
            show_default=False,
            help="What to show: virtual time, such as 0:2e-5 (seconds) or 0:20us, or the time that "
            "some instances take, such as instance:3-7.  [default: the first few instances]",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            autocompletion=completion.several_of(*completion.SCHEDULES),
            metavar="NAME,...",
            show_default=False,
            help=f"Several are drawn above each other.  [default: {options.ALL_SCHEDULES}; of a "
            f"model that is a program only {options.OF_PROGRAMS}]",
        ),
    ] = None,
    transfers: Annotated[
        bool,
        typer.Option(
            help="Draw messages on links that take time: arrows, or tracks in a trace (.json)."
        ),
    ] = True,
    settings: options.SetOption = None,
    data: options.DataOption = None,
    hardware: options.Hardware,
    tuning: Tuning,
    placement: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            show_default=False,
            autocompletion=completion.placements,
            help="As in forecast.",
        ),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default=False, help=f"Training items to use.  [default: {_INSTANCES}]"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Of everything.  [default: 0]")
    ] = None,
    mode: Annotated[
        options.ModeName | None, typer.Option(help="As in forecast.  [default: numeric]")
    ] = None,
    json: options.JsonOption = None,
) -> Code:
    """Draw who works when: forward orange, backward blue, update yellow, one row per worker.

    The object of --json: ampsim, file, title, workers, schedules (a list of names), text.
    """
    from ampsim.files import prepared_file
    from ampsim.report.gantt.boxes import parse_window

    writer_of(out)
    choice = None if window is None else parse_window(window)
    require_no_window(out, window)
    hold(prepared_file(out))
    prepare_json(json)
    given: dict[str, Any] = {
        "schedule": schedule,
        "set": settings,
        "data": data,
        **asdict(hardware),
        **tuning.given(),
        "placement": placement,
        "instances": instances,
        "seed": seed,
        "mode": mode,
    }
    is_kept = os.path.isdir(expanded(source))
    shown = _kept(source, given) if is_kept else _made(source, hardware, tuning, given)
    said = writer_of(out)(replace(shown, has_transfers=transfers), out, choice)
    if json is not None:
        names = [trace.name for trace in shown.traces]
        about = {"title": shown.title, "workers": shown.workers, "schedules": names}
        write_json(object_of(file=str(out), **about, text=said), json)
    if json != "-":
        write(said)
    return Code.FINE


def _kept(folder: str, given: dict[str, Any]) -> Shown:
    from ampsim.report.gantt.boxes import outages_of
    from ampsim.report.perfetto.trace import Trace
    from ampsim.runs.loaded_run import load_run

    kept = load_run(folder)
    for option, value in given.items():
        if value not in (None, []):
            raise OptionError(
                f"--{option.replace('_', '-')} belongs to a model that is yet to run, but "
                f"{folder} is a run; leave it out"
            )
    trace = Trace(
        kept.schedule,
        kept.workers,
        lambda: kept.chunks("spans"),
        lambda: kept.chunks("updates"),
        kept.table("epochs"),
        lambda: kept.chunks("stashes"),
        lambda: kept.chunks("transfers"),
        kept.devices,
        outages_of(kept),
        kept.table("memory"),
    )
    return Shown(f"{kept.model} on {kept.cluster}", [trace])


def _made(source: str, hardware: options.Hardware, tuning: Tuning, given: dict[str, Any]) -> Shown:
    from ampsim.report.gantt.boxes import outages_of
    from ampsim.report.perfetto.trace import Trace
    from ampsim.study import Result, simulate
    from ampsim.study.schedule_names import labels_of

    model = options.make_model(source, given["set"], given["data"])
    cluster = hardware.cluster()
    usual = options.ALL_SCHEDULES if model.make_graph else options.OF_PROGRAMS
    schedules = tuning.schedules(given["schedule"] or usual)
    instances = _INSTANCES if given["instances"] is None else given["instances"]
    mode = (given["mode"] or options.ModeName.NUMERIC).value
    settled: dict[str, Any] = {
        "seed": given["seed"] or 0,
        "mode": mode,
        "instances": instances,
        "placement": given["placement"],
    }

    def trace(result: Result, label: str) -> Trace:
        return Trace(
            label,
            result.workers,
            lambda: [result.spans],
            lambda: [result.updates],
            result.epochs,
            lambda: [result.stashes],
            lambda: [result.transfers],
            [device.name for device in cluster.devices],
            outages_of(result),
            result.memory,
        )

    traces = [
        trace(simulate(model, cluster, schedule, **settled), label)
        for schedule, label in zip(schedules, labels_of(schedules), strict=True)
    ]
    return Shown(f"{model.name} on {cluster.name}", traces)
