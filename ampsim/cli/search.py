"""`ampsim search`: which hardware and which schedule are beaten by no other choice?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampsim.cli import completion, options
from ampsim.cli.console import Code, answer, complain, in_columns, prepare_json
from ampsim.cli.options import Tuning, optional

if TYPE_CHECKING:
    from ampsim.exploring.searched import Searched

TRIALS = 100
"""Points tried; a test compares this and the next two with the library's."""

REPEATS = 3
IN_FLIGHT = 8


class SamplerName(StrEnum):
    """What proposes points."""

    TPE = "tpe"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Searching:
    """Options of the search itself."""

    minimise: Annotated[
        str,
        typer.Option(
            metavar="COLUMN,...",
            help="What is minimised: time_s, epochs, dollars, joules (to the target), peak_bytes, "
            "epoch_s.",
        ),
    ] = "time_s"
    subject_to: Annotated[
        list[str] | None,
        optional("CONDITION", "What must hold, such as 'peak_bytes <= 16e9'; may be repeated."),
    ] = None
    trials: Annotated[int, typer.Option(metavar="N", help="Points to try.")] = TRIALS
    repeats: Annotated[
        int, typer.Option(metavar="N", help="Seeds of each point; values are medians.")
    ] = REPEATS
    in_flight: Annotated[
        int, typer.Option(metavar="N", help="Points asked for before any of them is told.")
    ] = IN_FLIGHT
    sampler: Annotated[SamplerName, typer.Option(help="What proposes points.")] = SamplerName.TPE
    prune: Annotated[
        bool,
        typer.Option(
            "--prune/--no-prune",
            help="Leave a point as soon as it is dominated for sure; the front stays the same.",
        ),
    ] = True
    against_random: Annotated[
        bool, typer.Option(help="Try as many points at random, too, and say how both compare.")
    ] = False

    def given(self) -> dict[str, Any]:
        """As `ampsim.search` takes them."""
        return {
            "minimise": self.minimise,
            "subject_to": self.subject_to or [],
            "trials": self.trials,
            "repeats": self.repeats,
            "in_flight": self.in_flight,
            "sampler": self.sampler.value,
            "prunes": self.prune,
            "against_random": self.against_random,
        }


def search(
    model: options.ModelArgument,
    *,
    over: options.ForOption = None,
    searching: Searching,
    budget: options.BudgetOption = None,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="NAME,...",
            help="Schedules that are tried.",
            autocompletion=completion.several_of(*completion.SCHEDULES),
        ),
    ] = "pipeline,amp",
    tuning: Tuning,
    target: options.TargetOption = None,
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40,
    jobs: options.JobsOption = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Search hardware and schedules for the points that no other one beats on MODEL.

    Optuna proposes points (pip install 'ampsim[search]'); each is trained until it is dominated for
    sure. Writes a page, the table of trials and a manifest to --out (search-MODEL unless told). The
    journal of trials and finished runs are kept there: the same command goes on where it was. The
    object of --json: ampsim, model, cluster, seed, verdict, objectives, hypervolume,
    hypervolume_random, interrupted, rows (one a trial, with the columns of search.csv).
    """
    from ampsim.cli.progress import shown
    from ampsim.exploring.axes import Setup, axes_of
    from ampsim.exploring.sampling import optuna_here
    from ampsim.exploring.search import search as make
    from ampsim.exploring.searched import FILES, to_json, write_search
    from ampsim.options import seconds_of
    from ampsim.output_folder import taken
    from ampsim.report.words import slug
    from ampsim.runs import Keeping

    optuna_here()
    loaded, cluster = options.make_model(model, settings, data), hardware.cluster()
    setup = Setup(loaded, cluster, tuple(tuning.schedules(schedule)))
    axes = axes_of(over or (), setup)
    budget_s = None if budget is None else seconds_of("--budget", budget)
    prepare_json(json)
    with taken(out or Path(f"search-{slug(loaded.name)}"), "search", FILES) as folder:
        with shown(is_quiet=quiet) as on_progress:
            found = make(
                *setup, over={axis.key: axis for axis in axes}, **searching.given(),
                budget_s=budget_s, target=target, max_epochs=max_epochs, instances=instances,
                seed=seed, jobs=options.make_jobs(jobs), on_progress=on_progress,
                keeping=Keeping(folder.path),
            )  # fmt: skip
        write_search(found, folder)
    page = f"wrote {folder.path / 'index.html'}, search.csv beside it"
    answer(json, lambda: to_json(found, seed=seed), lambda: _text(found, page))
    if found.interrupted:
        complain(found.interrupted)
    return Code.INTERRUPTED if found.is_stopped else Code.FINE


def _text(found: Searched, page: str) -> str:
    """The front, what the search says, and where its page is."""
    from ampsim.exploring.searched import front_lines, sentences

    lines = front_lines(found)
    table = in_columns(lines) if len(lines) > 1 else ""
    return "\n".join(filter(None, [table, *sentences(found), page]))
