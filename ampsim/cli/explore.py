"""`ampsim explore`: which schedule is first where, over a space of hardware?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampsim.cli import completion, options
from ampsim.cli.console import Code, answer, complain, in_columns, prepare_json
from ampsim.cli.options import Tuning

if TYPE_CHECKING:
    from ampsim.exploring.exploration import Exploration

POINTS = 8
"""Points of a range; a test compares this and the next two with the library's."""

REPEATS = 8
SURE = 0.9

_SHOWN = 12  # chosen: lines of the printed table, so that the sentences stay on the screen


def explore(
    model: options.ModelArgument,
    *,
    over: options.ForOption = None,
    points: Annotated[int, typer.Option(metavar="N", help="Points of each range.")] = POINTS,
    budget: options.BudgetOption = None,
    settings: options.SetOption = None,
    hardware: options.Hardware,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule",
            metavar="NAME,...",
            help="Schedules that are compared at each point.",
            autocompletion=completion.several_of(*completion.SCHEDULES),
        ),
    ] = "pipeline,amp",
    tuning: Tuning,
    target: options.TargetOption = None,
    max_epochs: Annotated[
        int, typer.Option(metavar="N", help="End a run that has not reached the target by then.")
    ] = 40,
    repeats: Annotated[
        int, typer.Option(metavar="N", help="Seeds of each cell that is trained.")
    ] = REPEATS,
    sure: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="End where at each point the predicted winner is this sure, 0.9 is 90 %.",
        ),
    ] = SURE,
    jobs: options.JobsOption = None,
    data: options.DataOption = None,
    instances: options.InstancesOption = None,
    seed: options.SeedOption = 0,
    out: options.OutFolderOption = None,
    json: options.JsonOption = None,
    quiet: options.QuietOption = False,
) -> Code:
    """Map which schedule trains MODEL soonest at each point of a space of hardware.

    Every point is timed exactly; training is made where it decides, and the rest is predicted, with
    intervals. Writes a page with the map, the table and a manifest to --out (explore-MODEL unless
    told). Finished runs are kept there: the same command goes on where it was, also after its
    budget. The object of --json: ampsim, model, cluster, seed, verdict, learnings, wrong, left_out,
    interrupted, rows (one a point and schedule, with the columns of explore.csv).
    """
    from ampsim.cli.progress import shown
    from ampsim.exploring.axes import Setup, axes_of
    from ampsim.exploring.exploration import FILES, to_json, write_exploration
    from ampsim.exploring.explore import explore as make
    from ampsim.options import seconds_of
    from ampsim.output_folder import taken
    from ampsim.report.words import slug
    from ampsim.runs import Keeping

    loaded, cluster = options.make_model(model, settings, data), hardware.cluster()
    setup = Setup(loaded, cluster, tuple(tuning.schedules(schedule)))
    axes = axes_of(over or (), setup)
    budget_s = None if budget is None else seconds_of("--budget", budget)
    prepare_json(json)
    with taken(out or Path(f"explore-{slug(loaded.name)}"), "exploration", FILES) as folder:
        with shown(is_quiet=quiet) as on_progress:
            found = make(
                *setup, over={axis.key: axis for axis in axes}, points=points, budget_s=budget_s,
                target=target, max_epochs=max_epochs, repeats=repeats, instances=instances,
                seed=seed, sure=sure, jobs=options.make_jobs(jobs), on_progress=on_progress,
                keeping=Keeping(folder.path),
            )  # fmt: skip
        write_exploration(found, folder)
    page = f"wrote {folder.path / 'index.html'}, explore.csv beside it"
    answer(json, lambda: to_json(found, seed=seed), lambda: _text(found, page))
    if found.interrupted:
        complain(found.interrupted)
    return Code.INTERRUPTED if found.is_stopped else Code.FINE


def _text(found: Exploration, page: str) -> str:
    """The points where each schedule leads most, what the map says, and where its page is."""
    from ampsim.exploring.exploration import leads_of, sentences

    lines = [["first", "sooner than the next", "where", "its time is"], *leads_of(found)[:_SHOWN]]
    table = in_columns(lines) if len(lines) > 1 else ""
    return "\n".join(filter(None, [table, *sentences(found), page]))
