"""The runs of a recipe, made or kept, with the learning rates that its rows have.

Learning rates are by rule or by trial; page and manifest say which. Short runs are made at the ends
of the intervals of devices' numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import SimulationError
from ampsim.exploring.axes import NAMES
from ampsim.forecasting.forecast import copies_of
from ampsim.forecasting.intervals import Spreading, sentences_of, with_devices
from ampsim.forecasting.making import (
    EndRuns,
    RunMaker,
    beside_each_other,
    end_runs,
    gathered,
    leading_of,
    rated,
    tasks_of,
)
from ampsim.forecasting.settings import SettingSpace
from ampsim.forecasting.tuning import BUDGET_MAX, SEEDS, Tuner
from ampsim.metric import Goal
from ampsim.recipes.beside import witnesses_to_text
from ampsim.recipes.recipe import RECIPE, Recipe, RecipeFile
from ampsim.recipes.results import Results, compare
from ampsim.recipes.rows import Rows, make_rows
from ampsim.runs.executor import RunExecutor
from ampsim.runs.jobs import ExecutorLike, Listeners, opened, run_all
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run
from ampsim.runs.store import RunCache, RunKey, known_by
from ampsim.runs.task import Row
from ampsim.runs.witness import Witness, condensed, tiny_task
from ampsim.study.learning_rates import COLUMNS, methods_of
from ampsim.study.placement_advice import advice_on, blindness
from ampsim.study.placement_trials import Trials
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import costs, software, source_digest
from ampsim.study.result import Result
from ampsim.study.schedule_names import schedule_of_row

TRIALS: Final = "trials.csv"


def tuned_rows(recipe: Recipe, rows: Rows, maker: RunMaker) -> Rows:
    """Try learning rates for each row, if the recipe says so.

    Raises:
        KeyboardInterrupt: Ctrl-C; what finished is kept.
        SimulationError: the process of a trial died; what finished is kept.
    """
    if recipe.file.tune is None:
        return rows
    spaces = [
        SettingSpace(methods_of(row.plan.model), scaling=recipe.file.scale_rate)
        for row in rows.rows
        if recipe.file.tune_optimizer
    ]
    seeds, first = recipe.file.seeds, recipe.file.seeds[0]
    if {*seeds}.intersection(range(first + SEEDS, first + SEEDS + BUDGET_MAX)):
        first = max(seeds)  # so that no trial has the seed of a run, which would favour its choice
    tuned = Tuner(rows.rows, first, rows.goal, maker).tune(recipe.file.tune, spaces)
    if tuned.interrupted is not None:
        raise KeyboardInterrupt(tuned.interrupted)
    if tuned.lost:
        raise SimulationError(f"{tuned.lost[0]}; run again to go on")
    unreached = tuple(tuned.untuned)
    return replace(rows, rows=tuned.entries, trials=tuned.trials, unreached=unreached)


def has_rates(file: RecipeFile) -> bool:
    """Tell whether rows may have other learning rates than their models."""
    return file.tune is not None or file.scale_rate != "none"


KIND: Final = "report"
FORMAT: Final = 1


class InterruptedReport(KeyboardInterrupt):
    """Ctrl-C in the midst of a report's runs; those that finished are kept.

    Args:
        finished: how many runs are kept; None where it came before they were looked for.
        planned: how many there are.
        what: they are called.
    """

    def __init__(self, finished: int | None, planned: int, what: str = "runs") -> None:
        kept = f"{finished} of {planned} {what} are kept"
        if finished is None:
            kept = f"what was kept of {planned} runs is as it was"
        super().__init__(f"interrupted: {kept}; run again to go on")


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """Options of running a recipe."""

    executor: ExecutorLike = 1  # what makes them, as of `ampsim.forecast`
    is_fresh: bool = False  # make every run, also those that the store has
    on_progress: OnProgress | None = None  # told of each run that is made
    say: Callable[[str], None] = lambda line: None  # told of runs taken from the store, or refused
    run_limit_s: float | None = None  # how long a run may take; None for no limit


def run_recipe(recipe: Recipe, folder: Path, options: RecipeOptions | None = None) -> Results:
    """Run what is not in the store of the report's folder yet, and gather everything.

    Raises:
        FileFormatError: something in the recipe does not fit.
        MissingDataError: a data file is not there.
        InterruptedReport: Ctrl-C; what finished is kept.
        SimulationError: the process of a run died; what finished is kept.
        ExecutorError: what makes the runs is gone, likewise.
        OptionError: the executor cannot be reached, or does not fit.
    """
    options = options or RecipeOptions()
    with opened(options.executor, run_limit_s=options.run_limit_s) as executor:
        return _run_with(recipe, folder, options, executor)


def _run_with(
    recipe: Recipe, folder: Path, options: RecipeOptions, executor: RunExecutor
) -> Results:
    rows, seeds = make_rows(recipe), recipe.file.seeds
    keeping = RunCache(folder, options.is_fresh, say=options.say)
    maker = RunMaker(executor, options.on_progress, keeping)
    planned = len(rows.rows) * len(seeds)
    try:
        tuned = tuned_rows(recipe, rows, maker)
        tiny = rows.with_optimizers(tuned.optimizers).rows
        witnesses = witnesses_of(tiny, rows.goal, seeds[0], executor)
        short = [end_runs(row, seeds[0]) for row in tuned.rows]
        advice = _advice_on(recipe, tuned.rows)
    except KeyboardInterrupt:
        raise InterruptedReport(None, planned) from None
    tasks = [
        row.task(seed, repeat, len(seeds))
        for row in tuned.rows
        for repeat, seed in enumerate(seeds, 1)
    ]
    known = [one for row in tuned.rows for one in known_by(row, seeds, witnesses[row.label])]
    known += _known_at_ends(tuned.rows, short, seeds[0], witnesses)
    every = [*tasks, *tasks_of(short)]
    made = maker.make(every, known)
    found = {(run.label, run.seed): run for of_row in made.rows for run in of_row}
    if made.interrupted is not None:
        raise InterruptedReport(len(found), len(every))
    if made.lost:
        kept = f"{len(found)} of {len(every)} runs are kept"
        raise SimulationError(f"{made.lost[0]}; {kept}; run again to go on")
    runs = [replace(found[one.label, one.seed], schedule=one.label) for one in tasks]
    at_ends = (found[one.label, one.seed] for one in tasks_of(short))
    spreads = gathered(short, [rated(one, one.failure) for one in at_ends])
    return _gather(recipe, tuned, runs, spreads, witnesses, advice=advice)


def witnesses_of(
    rows: Sequence[Row], goal: Goal, seed: int, executor: RunExecutor
) -> dict[str, Witness]:
    """The witness of each row, by its label.

    Raises:
        MissingDataError: a data file that a model reads is not there.
        SimulationError: the process of a tiny run died.
    """
    made: dict[int, Witness] = {}
    lost: dict[int, str] = {}
    listeners = Listeners(made.__setitem__, lost.__setitem__)
    run_all([tiny_task(row, seed) for row in rows], executor, listeners, partial(_witness_of, goal))
    if lost:
        raise SimulationError(lost[min(lost)])
    return {rows[place].label: witness for place, witness in made.items()}


def _witness_of(goal: Goal, result: Result, failure: str | None) -> Witness:
    return condensed("", goal, result, failure).witness


def _known_at_ends(
    rows: Sequence[Row],
    short: Sequence[EndRuns],
    seed: int,
    witnesses: Mapping[str, Witness],
) -> list[RunKey]:
    """Return the keys of the short runs at the ends of intervals; `witnesses` are by label."""
    return [
        one
        for row, (_spread, mine) in zip(rows, short, strict=True)
        for task in mine
        for one in known_by(
            replace(row, plan=task.plan), [seed], witnesses[row.label], leading=leading_of(row)
        )
    ]


def _advice_on(recipe: Recipe, rows: Sequence[Row]) -> list[str]:
    """Advise a placement for rows that name none and for which another one is faster."""
    said: list[str] = []
    named = [entry.placement is not None for entry in recipe.file.schedules]
    for row, is_named in zip(rows, named, strict=True):
        plan = row.plan
        if is_named or blindness(plan.cluster) is None:
            continue
        trials = Trials(plan.model, plan.cluster, plan.options.instances, plan.options.epochs)
        epochs = plan.options.epochs * len(recipe.file.seeds)
        trained = epochs * trials.data.batch_count("train")
        advice = advice_on(trials, [row.schedule], seed=recipe.file.seeds[0], trained=trained)
        if advice is not None:
            said.append(f"{row.label}: '{advice.placement}' {advice.slowest:.2f} times as fast")
    told = f"in trials other placements than the default are faster ({'; '.join(said)})"
    return [told] * bool(said)


def costs_of(recipe: Recipe, rows: Rows) -> list[dict[str, str]]:
    """List what is charged on the rows' clusters, each sentence once; the recipe's comes first.

    Of a map over numbers alone it is what is charged where nothing varies.
    """
    over, base = recipe.file.explore and recipe.file.explore.over, rows.cluster.digest
    clusters = {row.plan.cluster.digest: row.plan.cluster for row in rows.rows}
    if over and not any(key in NAMES for key in over):
        clusters = {base: rows.cluster}
    schedules = [row.schedule for row in rows.rows]
    ordered = sorted(clusters, key=lambda digest: digest != base)
    every = [one for digest in ordered for one in costs(clusters[digest], schedules)]
    return [one for place, one in enumerate(every) if one not in every[:place]]


def _gather(
    recipe: Recipe,
    rows: Rows,
    runs: list[Run],
    spreads: list[Spreading],
    witnesses: Mapping[str, Witness],
    *,
    advice: list[str],
) -> Results:
    of_rows = _beside_origins(recipe.file, rows)
    of_runs, assumed = tables_of(recipe, rows.goal, runs, of_rows, spreads=spreads)
    return Results(
        **of_runs,
        model=rows.model.name,
        cluster=rows.cluster.name,
        workers=rows.cluster.workers,
        trials=rows.trials,
        manifest=manifest_of(recipe, rows, of_rows, [*assumed, *advice]),
        witnesses=witnesses_to_text({row.label: witnesses[row.label] for row in rows.rows}),
        spreads={row.label: of for row, of in zip(rows.rows, spreads, strict=True)},
    )


def _beside_origins(file: RecipeFile, rows: Rows) -> list[dict[str, Any]]:
    """Return a manifest's entries on each row, beside where it comes from.

    That is its learning rate, if rows may have others than their models, its optimizer, if that
    was tuned, and what it trains copies of.
    """
    copies = copies_of(rows.rows)
    return [
        {
            **(row.plan.rate.columns(row.plan.model) if has_rates(file) else {}),
            **({"optimizer": name} if file.tune_optimizer else {}),
            "copies": {key: one for key, one in of.items() if one is not None},
        }
        for row, name, of in zip(rows.rows, rows.optimizers, copies, strict=True)
    ]


def recipe_origin(recipe: Recipe) -> dict[str, str]:
    """Return a manifest's entry on the recipe."""
    return {"file": RECIPE, "sha256": recipe.sha256, "asked_sha256": recipe.asked_sha256}


def _tables_last(row: dict[str, Any]) -> dict[str, Any]:
    """A row in the order in which TOML gives it back, so that a page made of either is the same.

    >>> list(_tables_last({"inner": {"name": "amp"}, "ranks": 4}))
    ['ranks', 'inner']
    """
    return dict(sorted(row.items(), key=lambda item: isinstance(item[1], Mapping)))


def manifest_of(
    recipe: Recipe, rows: Rows, of_rows: list[dict[str, Any]], assumed: list[str]
) -> dict[str, Any]:
    """Build the manifest, without the hashes of what is written."""
    file, origin = recipe.file, rows.origin
    parts = zip(origin["schedules"], of_rows, strict=True)
    origin["schedules"] = [_tables_last(one | more) for one, more in parts]
    compared = {
        "validate_every": file.validate_every,
        "tune": file.tune,
        "scale_rate": file.scale_rate if has_rates(file) else None,
        "unreached": list(rows.unreached) or None,
    }
    return {
        "kind": KIND,
        "format": FORMAT,
        **software(),
        "command": ["ampsim", "report", recipe.name],
        "code": source_digest(),
        "recipe": recipe_origin(recipe),
        "seeds": file.seeds,
        "epochs": file.epochs,
        "max_epochs": file.max_epochs,
        "target": file.target,
        "metric": rows.goal.metric.kind,
        "instances": "all" if file.instances is None else file.instances,
        **{key: value for key, value in compared.items() if value is not None},
        **origin,
        **({"assumptions": assumed} if assumed else {}),
        "costs": costs_of(recipe, rows),
    }


def tables_of(
    recipe: Recipe,
    goal: Goal,
    runs: Sequence[Run],
    origins: Sequence[Mapping[str, Any]],
    *,
    spreads: Sequence[Spreading],
) -> tuple[dict[str, Any], list[str]]:
    """Build the tables of `Results` from a recipe's runs, and sentences on the intervals.

    There is a run of each row at least. Columns are also what `origins`, a manifest's entries on
    the rows, say of its learning rate and of what it trains copies of; the latter come last.
    """
    file, entries = recipe.file, recipe.file.schedules
    mine = [[run for run in runs if run.schedule == one.title] for one in entries]
    modes = file.modes
    rows = [
        {**row_of(one.title, goal, of), **{name: at[name] for name in COLUMNS if name in at}}
        for one, of, at in zip(entries, mine, origins, strict=True)
    ]
    for row, mode in zip(rows, modes, strict=True):
        if mode == "sleep" and len(set(modes)) > 1 and not row["note"]:
            row["note"] = "throughput only: one epoch without numbers"
    schedules = [schedule_of_row(one.name, one) for one in entries]
    rows = beside_each_other(goal, rows, schedules, mine)
    pairs = zip(with_devices(rows, mine, spreads), origins, strict=True)
    table = pd.DataFrame([{**row, **at.get("copies", {})} for row, at in pairs])
    of_runs = {
        "recipe": recipe,
        "table": table,
        "comparison": compare(table, recipe.file.published),
        "runs": tuple(runs),
        "target": recipe.file.target,
        "metric": goal.metric,
    }
    return of_runs, sentences_of(rows, mine, spreads, [cell.cluster for cell in recipe.cells])
