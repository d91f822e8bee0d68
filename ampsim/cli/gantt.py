"""ampsim gantt: who works when, of a model or of a run that was kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampsim.cli import options
from ampsim.cli.say import Code, write
from ampsim.errors import OptionError
from ampsim.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

_INSTANCES = 2000  # chosen: enough for a window's worth, done in a moment

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|RUN_DIR", help="A model to run for a moment, or a folder of `ampsim run`."
    ),
]


def gantt(
    source: SourceArgument,
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The picture: .png, .svg or .pdf.")
    ],
    window: Annotated[
        str | None,
        typer.Option(
            metavar="START:END",
            show_default=False,
            help="Virtual seconds to show, such as 0:2e-5.  [default: the first few instances]",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="NAME,...",
            show_default=False,
            help=f"Several are drawn above each other.  [default: {options.ALL_SCHEDULES}]",
        ),
    ] = None,
    settings: options.SetOption = None,
    data: options.DataOption = None,
    device: options.DeviceOption = None,
    workers: options.WorkersOption = None,
    latency_s: options.LatencyOption = None,
    bandwidth_bytes_per_s: options.BandwidthOption = None,
    max_active_keys: options.ActiveKeysOption = None,
    min_update_interval: options.UpdateIntervalOption = None,
    placement: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", show_default=False, help="As in forecast."),
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
) -> Code:
    """Draw who works when: forward orange, backward blue, update yellow, one row per worker."""
    from ampsim.files import prepare_file
    from ampsim.report.saving import check_suffix

    check_suffix(out)
    shown_s = None if window is None else _window(window)
    prepare_file(out)
    given: dict[str, Any] = {
        "schedule": schedule,
        "set": settings,
        "data": data,
        "device": device,
        "workers": workers,
        "latency_s": latency_s,
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "max_active_keys": max_active_keys,
        "min_update_interval": min_update_interval,
        "placement": placement,
        "instances": instances,
        "seed": seed,
        "mode": mode,
    }
    spans, count, title = _kept(source, given) if Path(source).is_dir() else _made(source, given)
    _draw(spans, count, title, out, shown_s)
    return Code.FINE


def _window(text: str) -> tuple[float, float]:
    """Start and end in seconds."""
    from ampsim.report.gantt_boxes import check_window

    try:
        start_s, end_s = (float(part) for part in text.split(":"))
    except ValueError:
        raise OptionError(
            f"--window must be START:END in virtual seconds, such as 0:2e-5, got {text!r}"
        ) from None
    return check_window((start_s, end_s))


def _kept(folder: str, given: dict[str, Any]) -> tuple[dict[str, pd.DataFrame], int, str]:
    """Spans by schedule, count of workers and title of a run that was kept."""
    from ampsim.study.run_dir import read_run

    kept = read_run(folder)
    for option, value in given.items():
        if value not in (None, []):
            raise OptionError(
                f"--{option.replace('_', '-')} belongs to a model that is yet to run, but "
                f"{folder} is a run; leave it out"
            )
    title = f"{kept.model} on {kept.cluster}: {kept.schedule}"
    return {kept.schedule: kept.table("spans")}, kept.workers, title


def _made(source: str, given: dict[str, Any]) -> tuple[dict[str, pd.DataFrame], int, str]:
    """The same of a model, run for a moment."""
    from ampsim.study import simulate

    model = options.make_model(source, given["set"], given["data"])
    keys = ("workers", "latency_s", "bandwidth_bytes_per_s")
    cluster = options.make_cluster(given["device"], **{key: given[key] for key in keys})
    schedules = options.make_schedules(
        given["schedule"] or options.ALL_SCHEDULES,
        given["max_active_keys"],
        given["min_update_interval"],
    )
    instances = _INSTANCES if given["instances"] is None else given["instances"]
    mode = (given["mode"] or options.ModeName.NUMERIC).value
    settled: dict[str, Any] = {
        "seed": given["seed"] or 0,
        "mode": mode,
        "instances": instances,
        "placement": given["placement"] or options.PLACEMENT,
    }
    spans = {
        schedule.name: simulate(model, cluster, schedule, **settled).spans for schedule in schedules
    }
    return spans, cluster.workers, f"{model.name} on {cluster.name}: {schedules[0].name}"


def _draw(
    spans: dict[str, pd.DataFrame],
    workers: int,
    title: str,
    out: Path,
    window_s: tuple[float, float] | None,
) -> None:
    from ampsim.report.gantt import gantt as draw
    from ampsim.report.gantt import gantt_comparison
    from ampsim.report.gantt_boxes import choose_window, whole_window
    from ampsim.report.saving import save

    whole_s = whole_window(spans.values())
    window_s = choose_window(spans) if window_s is None else window_s
    if len(spans) == 1:
        figure = draw(next(iter(spans.values())), workers=workers, window_s=window_s, title=title)
    else:
        figure = gantt_comparison(spans, workers=workers, window_s=window_s)
    save(figure, out)
    rest = "" if math.isclose(whole_s[1], window_s[1]) else f" of {format_seconds(whole_s[1])}"
    write(
        f"wrote {out}: {format_seconds(window_s[0])} to {format_seconds(window_s[1])}{rest}; "
        "--window START:END shows another part"
    )
