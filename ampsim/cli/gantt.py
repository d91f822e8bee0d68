"""ampsim gantt: who works when, of a model or of a run that was kept."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ampsim.cli import completion, options
from ampsim.cli.gantt_files import Shown, require_no_window, writer_of
from ampsim.cli.json_object import object_of, prepare_json, write_json
from ampsim.cli.option_groups import with_option_groups
from ampsim.cli.resources import hold
from ampsim.cli.say import Code, write
from ampsim.cli.tuning import Tuning
from ampsim.errors import OptionError
from ampsim.paths import expanded

_INSTANCES = 2000  # chosen: enough for a window's worth, done in a moment

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|RUN_DIR",
        autocompletion=completion.runs_or_models,
        help="A model to run for a moment, or a folder of `ampsim run`.",
    ),
]


@with_option_groups
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
            help=f"Several are drawn above each other.  [default: {options.ALL_SCHEDULES}]",
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
    from ampsim.report.gantt.window import parse_window

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
    """What is to be drawn of a run that was kept."""
    from ampsim.report.gantt.outages import outages_of
    from ampsim.report.perfetto.trace import Trace
    from ampsim.study.loaded_run import LoadedRun
    from ampsim.study.run_dir import read_run

    kept = read_run(folder)
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
        outages_of(LoadedRun(kept)),
        kept.table("memory"),
    )
    return Shown(f"{kept.model} on {kept.cluster}", [trace])


def _made(source: str, hardware: options.Hardware, tuning: Tuning, given: dict[str, Any]) -> Shown:
    """The same of a model, run for a moment."""
    from ampsim.report.gantt.outages import outages_of
    from ampsim.report.perfetto.trace import Trace
    from ampsim.study import Result, simulate
    from ampsim.study.schedule_names import labels_of

    model = options.make_model(source, given["set"], given["data"])
    cluster = hardware.cluster()
    schedules = tuning.schedules(given["schedule"] or options.ALL_SCHEDULES)
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
