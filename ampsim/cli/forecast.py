"""`ampsim forecast`: how fast, and to what accuracy, would a model train?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ampsim.cli import completion, options
from ampsim.cli.console import (
    Code,
    complain,
    prepare_json,
    show_traceback,
    width,
    write,
    write_json,
)
from ampsim.cli.options import Tuning, ValidateEveryOption, optional

if TYPE_CHECKING:
    from ampsim.forecasting import Forecast
    from ampsim.output_folder import OutputFolder


TRIALS: Final = 8
"""Learning rates that a row tries unless told otherwise; a test compares it with the tuner's."""


class ScalingName(StrEnum):
    """How a learning rate grows with the gradients that an update averages."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"


@dataclass(frozen=True, slots=True)
class Comparing:
    """Options by which rows are compared; None of what was not given."""

    repeats: Annotated[
        int, optional("N", "Runs of each schedule, with one seed after the other.  [default: 1]")
    ] = 1
    sure: Annotated[
        float | None,
        optional(
            "X",
            "Go on with more runs of each schedule until it is this sure which is first, 0.9 is "
            "90 %, or --max-repeats are made.",
        ),
    ] = None
    max_repeats: Annotated[
        int | None, optional("N", "Runs of each schedule at most, with --sure.  [default: 40]")
    ] = None
    scale_rate: Annotated[
        ScalingName | None,
        optional(
            None,
            "How a schedule's learning rate grows with the gradients of which its updates take "
            "the mean.  [default: linear for sgd and momentum, sqrt for adam and adagrad]",
        ),
    ] = None
    tune: Annotated[
        bool,
        optional(
            None,
            "Try learning rates for each schedule, as many for each, before they are compared "
            "with the best of each.",
        ),
    ] = False
    trials: Annotated[
        int | None,
        optional("N", f"Learning rates that each schedule tries; tunes.  [default: {TRIALS}]"),
    ] = None
    validate_every: ValidateEveryOption = None

    def given(self) -> dict[str, Any]:
        """As `ampsim.forecast` takes them.

        Raises:
            OptionError: an option would have no effect.
        """
        from ampsim.errors import OptionError
        from ampsim.forecasting.making import MAX_REPEATS

        if self.max_repeats is not None and self.sure is None:
            raise OptionError(
                f"--max-repeats {self.max_repeats} ends what --sure goes on with; "
                "give --sure 0.9 too, or --repeats instead"
            )
        tune = self.trials if self.trials is not None else TRIALS if self.tune else None
        return {
            "repeats": self.repeats,
            "sure": self.sure,
            "max_repeats": MAX_REPEATS if self.max_repeats is None else self.max_repeats,
            "scale_rate": None if self.scale_rate is None else self.scale_rate.value,
            "tune": tune,
            "validate_every": self.validate_every,
        }


def forecast(
    model: options.ModelArgument = "rnn",
    *,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: Annotated[
        str | None,
        optional(
            "NAME,...",
            f"Schedules, one row each.  [default: {options.ALL_SCHEDULES}; of a model that is a "
            f"program only {options.OF_PROGRAMS}]",
            "--schedule",
            autocompletion=completion.several_of(*completion.SCHEDULES),
        ),
    ] = None,
    tuning: Tuning,
    placement: options.PlacementOption = None,
    target: options.TargetOption = None,
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40,
    comparing: Comparing,
    jobs: options.JobsOption = None,
    executor: options.ExecutorOption = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    mode: options.ModeOption = options.ModeName.NUMERIC,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    columns: options.ColumnsOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Say how fast, and to what accuracy, MODEL would train on devices that need not exist.

    Runs every schedule until the target accuracy is reached, prints how they compare, and writes
    table, figures and manifest to --out (forecast-MODEL unless told). Until that is whole, finished
    runs are kept there, and the same command goes on where it was. The object of --json: ampsim,
    model, cluster, seed, verdict (in words), rows (a list, one a schedule, with the columns of
    forecast.csv), epochs (a list, as in epochs.csv), and, where there are some, validations and
    trials likewise.
    """
    from ampsim.cli.progress import Filling, shown
    from ampsim.forecasting.forecast import forecast as make_forecast
    from ampsim.forecasting.page import FILES
    from ampsim.output_folder import taken
    from ampsim.report.table import require_columns
    from ampsim.report.words import slug
    from ampsim.runs import Keeping

    chosen = require_columns(columns)
    loaded = options.make_model(model, settings, data)
    cluster = hardware.cluster()
    usual = options.ALL_SCHEDULES if loaded.make_graph else options.OF_PROGRAMS
    schedules = tuning.schedules(usual if schedule is None else schedule)
    given = comparing.given()
    prepare_json(json)

    def say(line: str) -> None:
        if not quiet:
            complain(line)

    with taken(out or Path(f"forecast-{slug(loaded.name)}"), "forecast", FILES) as folder:
        keeping = Keeping(folder.path, with_failures=False, say=say)
        filling = Filling(loaded, target)
        with shown(is_quiet=quiet, filling=filling) as on_progress:
            made = make_forecast(
                loaded, cluster, schedules, target=target, max_epochs=max_epochs, seed=seed,
                instances=instances, mode=mode.value, placement=placement, keeping=keeping,
                executor=options.make_executor(jobs, executor), on_progress=on_progress,
                on_run=filling.take, **given,
            )  # fmt: skip
        printed = partial(_print_answer, made, chosen, options.free_links_line(cluster))
        code = _deliver(made, folder, json, seed, printed)
        if code is Code.FINE:
            keeping.forget()
        return code


def _deliver(
    made: Forecast,
    folder: OutputFolder,
    json: str | None,
    seed: int,
    printed: Callable[[], None],
) -> Code:
    """Write the files, then say what they say; `printed` prints it."""
    from ampsim.forecasting.forecast import to_json
    from ampsim.forecasting.page import write_forecast
    from ampsim.report.verdict import verdict

    if made.interrupted and not len(made.table):  # what an earlier forecast left there stays
        complain(f"{made.interrupted}; no page was written; run again to go on")
        return Code.INTERRUPTED
    write_forecast(made, folder)
    if json is not None:
        said = verdict(made.table, made.target, made.metric)
        write_json(to_json(made, seed=seed, verdict=said), json)
    if json != "-":
        printed()
        write(f"wrote {folder.path / 'index.html'}, forecast.md and figures beside it")
    return _ended(made, folder)


def _print_answer(made: Forecast, columns: list[str] | None, on_links: str) -> None:
    """Print the table, or these columns of it, the verdict, and the lines below."""
    from rich.console import Console

    from ampsim.report.page.text import beside_answer
    from ampsim.report.table import columns_to_rich, notes, to_rich
    from ampsim.report.verdict import verdict

    console = Console(width=width())
    has_target = made.target is not None
    drawn = [to_rich(made.table, width=console.width, has_target=has_target)]
    if columns is not None:
        drawn = columns_to_rich(made.table, columns, width=console.width)
    for table in drawn:
        console.print(table)
    said = verdict(made.table, made.target, made.metric)
    below = [said, *notes(made.table), *beside_answer(made), on_links]
    write("\n".join(filter(None, below)))


def _ended(made: Forecast, folder: OutputFolder) -> Code:
    for sentence in made.unreached:
        complain(f"note: {sentence}")
    for failure in (*(run.failure for run in made.runs), *made.lost):
        show_traceback(failure)
    for failure in made.failures:
        complain(failure)
    if made.interrupted:
        complain(f"{made.interrupted}; what finished is in {folder}; run again to go on")
        return Code.INTERRUPTED
    return Code.FAILED if made.failures else Code.FINE
