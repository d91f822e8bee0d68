"""ampsim run: one schedule for some epochs, and its trace kept."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import options
from ampsim.cli.say import Code, complain, output_folder, write
from ampsim.errors import OptionError
from ampsim.units import format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from ampsim.clock import Clock
    from ampsim.study import Result
    from ampsim.study.kept_run import Outcome


class ClockName(StrEnum):
    """Whose time passes."""

    VIRTUAL = "virtual"
    WALL = "wall"


ClockOption = Annotated[
    ClockName,
    typer.Option("--clock", help="Jump from event to event, or really wait as the devices would."),
]
StretchOption = Annotated[
    float | None,
    typer.Option(
        "--stretch", metavar="X", show_default=False,
        help="Wall seconds for each virtual second, with --clock wall; "
        "1000 makes a microsecond a millisecond.  [default: 1]",
    ),
]  # fmt: skip


@options.with_schedule_options
def run(
    model: options.ModelArgument,
    *,
    settings: options.SetOption = None,
    device: options.DeviceOption = None,
    workers: options.WorkersOption = None,
    latency_s: options.LatencyOption = None,
    bandwidth_bytes_per_s: options.BandwidthOption = None,
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="NAME", help="The one schedule to run.")
    ] = "amp",
    tuning: options.Tuning,
    placement: options.PlacementOption = options.PLACEMENT,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the training data.")] = 1,
    target: Annotated[
        float | None,
        typer.Option(metavar="X", show_default=False, help="End after the epoch that reaches it."),
    ] = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    mode: options.ModeOption = options.ModeName.NUMERIC,
    clock: ClockOption = ClockName.VIRTUAL,
    stretch: StretchOption = None,
    out: options.OutFolderOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Run MODEL under one schedule and keep its trace as manifest.toml and *.parquet.

    The folder is --out (run-MODEL unless told). Beside the trace lie index.html and report.md:
    verdict, tables and figures. `ampsim gantt` draws the folder.
    """
    from ampsim.cli.progress import shown
    from ampsim.report.naming import slug
    from ampsim.report.run_page import write_run_page
    from ampsim.study.kept_run import RunOptions, run_to_keep
    from ampsim.study.run_dir import write_run

    loaded = options.make_model(model, settings, data)
    cluster = options.make_cluster(
        device, workers=workers, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s
    )
    schedules = options.make_schedules(schedule, tuning)
    if len(schedules) > 1:
        raise OptionError(f"run takes one schedule, got {schedule!r}; forecast compares several")
    with (
        _clock_of(clock, stretch) as time,
        output_folder(out or Path(f"run-{slug(loaded.name)}")) as folder,
    ):
        settled = RunOptions(epochs, seed, mode.value, instances, target, time, placement)
        with shown(is_quiet=quiet) as on_progress:
            outcome = run_to_keep(loaded, cluster, schedules[0], settled, on_progress)
        write_run(outcome, folder)
        write_run_page(outcome, folder, target)
    write(_summary(outcome.result))
    write(
        f"wrote {folder}: manifest.toml, spans, transfers, updates, stashes and epochs (.parquet)"
    )
    write(f"open {folder / 'index.html'} for table and figures, or report.md beside it")
    return _ended(outcome, folder)


@contextlib.contextmanager
def _clock_of(name: ClockName, stretch: float | None) -> Generator[Clock | None]:
    """The clock that the command line names; None for a new virtual one."""
    from ampsim.clock import WallClock

    if name is ClockName.VIRTUAL:
        if stretch is not None:
            raise OptionError("--stretch stretches the wall clock only; add --clock wall")
        yield None
        return
    clock = WallClock(1.0 if stretch is None else stretch)
    try:
        yield clock
    finally:
        clock.close()


def _summary(result: Result) -> str:
    """The run in one line."""
    epochs, metric = result.epochs, result.model.measure
    score = float(epochs[metric.kind].iloc[-1]) if len(epochs) else None
    count = f"{len(epochs)} epoch{'' if len(epochs) == 1 else 's'}"
    return (
        f"{result.model.name}, {result.schedule.name}, {result.workers} workers: {count} in "
        f"{format_seconds(result.makespan_s)}, training {format_rate(result.train_per_s)}, "
        f"{metric.kind} {metric.text(score)}, busy {format_percent(result.utilisation)}"
    )


def _ended(outcome: Outcome, folder: Path) -> Code:
    """Say what did not go to its end."""
    if outcome.is_interrupted:
        complain(f"{outcome.ended}; the trace until then is in {folder}")
        return Code.INTERRUPTED
    if outcome.failure:
        complain(f"{outcome.failure}; the trace until then is in {folder}")
        return Code.FAILED
    return Code.FINE
