"""ampsim run: one schedule for some epochs, and its trace kept."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ampsim.cli import completion, options
from ampsim.cli.json_object import object_of, prepare_json, write_json
from ampsim.cli.option_groups import with_option_groups
from ampsim.cli.say import Code, complain, write
from ampsim.cli.traceback import show_traceback
from ampsim.cli.tuning import Tuning
from ampsim.errors import OptionError
from ampsim.units import format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from ampsim.clock import WallClock
    from ampsim.study import Result
    from ampsim.study.run_to_keep import Outcome


KEPT: Final = 0.02
"""Share by which a run on the wall may take longer for its times to be kept (chosen)."""

LONG: Final = 2.0
"""Times as long, from which on a percentage says little (chosen)."""


class ClockName(StrEnum):
    """Whose time passes."""

    VIRTUAL = "virtual"
    WALL = "wall"


ClockOption = Annotated[
    ClockName,
    typer.Option(
        "--clock",
        help="Jump from event to event, or really wait as the devices would; a terminal "
        "shows what each worker does meanwhile.",
    ),
]
StretchOption = Annotated[
    float | None,
    typer.Option(
        "--stretch", metavar="X", show_default=False,
        help="Wall seconds for each virtual second, with --clock wall; "
        "1000 makes a microsecond a millisecond.  [default: 1]",
    ),
]  # fmt: skip


@with_option_groups
def run(
    model: options.ModelArgument,
    *,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="NAME",
            autocompletion=completion.one_of(*completion.SCHEDULES),
            help="The one schedule to run.",
        ),
    ] = "amp",
    tuning: Tuning,
    placement: options.PlacementOption = None,
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the training data.")] = 1,
    target: Annotated[
        float | None,
        typer.Option(metavar="X", show_default=False, help="End after the epoch that reaches it."),
    ] = None,
    validate_every: options.ValidateEveryOption = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    mode: options.ModeOption = options.ModeName.NUMERIC,
    clock: ClockOption = ClockName.VIRTUAL,
    stretch: StretchOption = None,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Run MODEL under one schedule and keep its trace as manifest.toml and *.parquet.

    The folder is --out (run-MODEL unless told). Beside the trace lie index.html and report.md:
    verdict, tables and figures. `ampsim gantt` draws the folder.

    The object of --json: ampsim, model, cluster, seed, rows (one, as of forecast), folder, ended,
    epochs and, with --validate-every, validations (lists, as in epochs.csv and validations.csv).
    """
    from ampsim.cli.live import watching
    from ampsim.output_folder import taken
    from ampsim.report.naming import slug
    from ampsim.report.page.run import FILES, write_run_folder
    from ampsim.study.run_dir import tables_of
    from ampsim.study.run_to_keep import RunOptions, run_to_keep
    from ampsim.study.schedule_names import labels_of

    loaded = options.make_model(model, settings, data)
    cluster = hardware.cluster()
    schedules = tuning.schedules(schedule)
    if len(schedules) > 1:
        several = "; ".join(labels_of(schedules))
        raise OptionError(f"run takes one schedule, got {several}; forecast compares several")
    prepare_json(json)
    with (
        _clock_of(clock, stretch) as time,
        taken(out or Path(f"run-{slug(loaded.name)}"), "run", FILES) as place,
    ):
        with watching(time, is_quiet=quiet) as (on_progress, watch):
            settled = RunOptions(
                epochs, seed, mode.value, instances, target, time, placement, on_start=watch,
                validate_every=validate_every,
            )  # fmt: skip
            outcome = run_to_keep(loaded, cluster, schedules[0], settled, on_progress)
        write_run_folder(outcome, place, target)
    folder = place.path
    if json is not None:
        write_json(_as_json(outcome, folder, target, seed), json)
    if json == "-":
        return _ended(outcome, folder)
    write(_summary(outcome.result))
    if time is not None:
        write(_kept_time(time))
    *tables, last = tables_of(outcome.result)
    write(f"wrote {folder}: manifest.toml, {', '.join(tables)} and {last} (.parquet), epochs.csv")
    write(f"open {folder / 'index.html'} for table and figures, or report.md beside it")
    return _ended(outcome, folder)


@contextlib.contextmanager
def _clock_of(name: ClockName, stretch: float | None) -> Generator[WallClock | None]:
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


def _as_json(outcome: Outcome, folder: Path, target: float | None, seed: int) -> str:
    """The run as a forecast of one row, with its epochs."""
    from ampsim.report.page.run import view_of
    from ampsim.study.forecast_json import row_values

    view = view_of(outcome, target)
    within = looks.to_dict("records") if len(looks := view.run.validations) else None
    return object_of(
        model=view.model,
        cluster=view.cluster,
        seed=seed,
        rows=[row_values(record) for record in view.table.to_dict("records")],
        folder=str(folder),
        ended=outcome.ended,
        epochs=outcome.result.epochs.to_dict("records"),
        **({} if within is None else {"validations": within}),
    )


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


def _kept_time(clock: WallClock) -> str:
    """How well the wall kept the times of the trace, and what to do where it did not."""
    passes_s = clock.now
    ratio = clock.elapsed_s / passes_s if passes_s else 1.0
    longer = f"{ratio:.3g} times as long" if ratio >= LONG else f"{100 * (ratio - 1):.2g} % longer"
    said = (
        f"on the wall: {format_seconds(clock.elapsed_s * clock.stretch)} for "
        f"{format_seconds(passes_s)} x {clock.stretch:g}, {longer}; events came "
        f"at most {format_seconds(clock.late_max_s)} late"
    )
    if ratio < 1 + KEPT:
        return said
    return (
        f"{said}. This machine computes and wakes up more slowly than the devices would; --stretch "
        f"{float(f'{clock.stretch * (ratio - 1) / KEPT:.1e}'):g} leaves it the time"
    )


def _ended(outcome: Outcome, folder: Path) -> Code:
    """Say what did not go to its end."""
    if outcome.is_interrupted:
        complain(f"{outcome.ended}; the trace until then is in {folder}")
        return Code.INTERRUPTED
    if outcome.failure:
        show_traceback(outcome.failure)
        complain(f"{outcome.failure}; the trace until then is in {folder}")
        return Code.FAILED
    return Code.FINE
