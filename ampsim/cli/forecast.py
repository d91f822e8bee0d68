"""ampsim forecast: every schedule to the target, a table, and a folder of figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import completion, options
from ampsim.cli.comparing import Comparing
from ampsim.cli.json_object import prepare_json, write_json
from ampsim.cli.option_groups import with_option_groups
from ampsim.cli.say import Code, complain, width, write
from ampsim.cli.traceback import show_traceback
from ampsim.cli.tuning import Tuning

if TYPE_CHECKING:
    from ampsim.output_folder import OutputFolder
    from ampsim.study import Forecast


@with_option_groups
def forecast(
    model: options.ModelArgument = "rnn",
    *,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="NAME,...",
            autocompletion=completion.several_of(*completion.SCHEDULES),
            help="Schedules, one row each.",
        ),
    ] = options.ALL_SCHEDULES,
    tuning: Tuning,
    placement: options.PlacementOption = None,
    target: options.TargetOption = None,
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40,
    comparing: Comparing,
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
    table, figures and manifest to --out (forecast-MODEL unless told). Until that is whole, finished
    runs are kept there, and the same command goes on where it was. The object of --json: ampsim,
    model, cluster, seed, rows (a list, one a schedule, with the columns of forecast.csv), epochs
    (a list, as in epochs.csv), and, where there are some, validations and trials likewise.
    """
    from ampsim.cli.progress import shown
    from ampsim.output_folder import taken
    from ampsim.report.naming import slug
    from ampsim.report.page.forecast import FILES
    from ampsim.study import Keeping
    from ampsim.study.forecast import forecast as make_forecast

    loaded = options.make_model(model, settings, data)
    cluster = hardware.cluster()
    schedules = tuning.schedules(schedule)
    given = comparing.given()
    prepare_json(json)

    def say(line: str) -> None:
        if not quiet:
            complain(line)

    with taken(out or Path(f"forecast-{slug(loaded.name)}"), "forecast", FILES) as folder:
        keeping = Keeping(folder.path, with_failures=False, say=say)
        with shown(is_quiet=quiet) as on_progress:
            made = make_forecast(
                loaded,
                cluster,
                schedules,
                target=target,
                max_epochs=max_epochs,
                instances=instances,
                seed=seed,
                mode=mode.value,
                placement=placement,
                jobs=options.make_jobs(jobs),
                on_progress=on_progress,
                keeping=keeping,
                **given,
            )
        code = _deliver(made, folder, json, seed)
        if code is Code.FINE:
            keeping.forget()
        return code


def _deliver(made: Forecast, folder: OutputFolder, json: str | None, seed: int) -> Code:
    """Write the files, then say what they say."""
    from ampsim.report.page.forecast import write_forecast
    from ampsim.study.forecast_json import to_json

    if made.interrupted and not len(made.table):  # what an earlier forecast left there stays
        complain(f"{made.interrupted}; no page was written; run again to go on")
        return Code.INTERRUPTED
    write_forecast(made, folder)
    if json is not None:
        write_json(to_json(made, seed=seed), json)
    if json != "-":
        _print_table(made)
        write(f"wrote {folder.path / 'index.html'}, forecast.md and figures beside it")
    return _ended(made, folder)


def _print_table(made: Forecast) -> None:
    from rich.console import Console

    from ampsim.report.page.left_open import left_open
    from ampsim.report.page.text import ruling
    from ampsim.report.table import to_rich

    console = Console(width=width())
    has_target = made.target is not None
    console.print(to_rich(made.table, width=console.width, has_target=has_target))
    write(" ".join(filter(None, [ruling(made), left_open(made)])))


def _ended(made: Forecast, folder: OutputFolder) -> Code:
    """Say what did not go to its end."""
    for sentence in made.unreached:
        complain(f"note: {sentence}")
    for run in made.runs:
        show_traceback(run.failure)
    for failure in made.failures:
        complain(failure)
    if made.interrupted:
        complain(f"{made.interrupted}; what finished is in {folder}; run again to go on")
        return Code.INTERRUPTED
    return Code.FAILED if made.failures else Code.FINE
