"""ampsim forecast: every schedule to the target, a table, and a folder of figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import options
from ampsim.cli.say import Code, complain, output_folder, width, write

if TYPE_CHECKING:
    from ampsim.study import Forecast


@options.with_schedule_options
def forecast(
    model: options.ModelArgument = "rnn",
    *,
    settings: options.SetOption = None,
    device: options.DeviceOption = None,
    workers: options.WorkersOption = None,
    latency_s: options.LatencyOption = None,
    bandwidth_bytes_per_s: options.BandwidthOption = None,
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="NAME,...", help="Schedules, one row each.")
    ] = options.ALL_SCHEDULES,
    tuning: options.Tuning,
    placement: options.PlacementOption = options.PLACEMENT,
    target: options.TargetOption = None,
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40,
    repeats: Annotated[
        int, typer.Option(metavar="N", help="Runs of each schedule, with one seed after the other.")
    ] = 1,
    jobs: options.JobsOption = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    mode: options.ModeOption = options.ModeName.NUMERIC,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Say how fast, and to what accuracy, MODEL would train on devices that need not exist.

    Runs every schedule until the target accuracy is reached, prints how they compare, and writes
    table, figures and manifest to --out (forecast-MODEL unless told).
    """
    from ampsim import study
    from ampsim.cli.progress import shown
    from ampsim.report.naming import slug

    loaded = options.make_model(model, settings, data)
    cluster = options.make_cluster(
        device, workers=workers, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s
    )
    schedules = options.make_schedules(schedule, tuning)
    options.prepare_json(json)
    with output_folder(out or Path(f"forecast-{slug(loaded.name)}")) as folder:
        with shown(is_quiet=quiet) as on_progress:
            made = study.forecast(
                loaded,
                cluster,
                schedules,
                target=target,
                max_epochs=max_epochs,
                repeats=repeats,
                instances=instances,
                seed=seed,
                mode=mode.value,
                placement=placement,
                jobs=options.make_jobs(jobs),
                on_progress=on_progress,
            )
        return _deliver(made, folder, json, seed)


def _deliver(made: Forecast, folder: Path, json: str | None, seed: int) -> Code:
    """Write the files, then say what they say."""
    from ampsim.report.forecast_page import write_forecast
    from ampsim.study.forecast_json import to_json

    if made.interrupted and not len(made.table):  # what an earlier forecast left there stays
        complain(f"{made.interrupted}; nothing was written")
        return Code.INTERRUPTED
    write_forecast(made, folder)
    if json is not None:
        options.write_json(to_json(made, seed=seed), json)
    if json != "-":
        _print_table(made)
        write(f"wrote {folder / 'index.html'}, forecast.md and figures beside it")
    return _ended(made, folder)


def _print_table(made: Forecast) -> None:
    from rich.console import Console

    from ampsim.report.table import to_rich
    from ampsim.report.verdict import verdict

    console = Console(width=width())
    has_target = made.target is not None
    console.print(to_rich(made.table, width=console.width, has_target=has_target))
    write(verdict(made.table, made.target, made.metric))


def _ended(made: Forecast, folder: Path) -> Code:
    """Say what did not go to its end."""
    for failure in made.failures:
        complain(failure)
    if made.interrupted:
        complain(f"{made.interrupted}; what finished is in {folder}")
        return Code.INTERRUPTED
    return Code.FAILED if made.failures else Code.FINE
