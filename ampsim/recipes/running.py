"""The runs of a recipe, made or kept, with the learning rates that its rows have.

Learning rates are by rule or by trial; page and manifest say which. Short runs are made at the ends
of the intervals of devices' numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError, SimulationError
from ampsim.forecasting.forecast import copies_of
from ampsim.forecasting.intervals import Spreading
from ampsim.forecasting.making import EndRuns, RunMaker, end_runs, gathered, rated, tasks_of
from ampsim.forecasting.settings import SettingSpace
from ampsim.forecasting.tuning import Tuner, no_trials
from ampsim.metric import Goal
from ampsim.recipes.beside import outlines_to_text, witnesses_to_text
from ampsim.recipes.recipe import RECIPE, Recipe, RecipeFile
from ampsim.recipes.results import Results, tables_of
from ampsim.recipes.rows import Rows, make_rows
from ampsim.runs.executor import RunExecutor
from ampsim.runs.jobs import ExecutorLike, Listeners, OnLoss, opened, run_all, take_or_make
from ampsim.runs.run import Run
from ampsim.runs.store import Keeping, Known, known_by
from ampsim.runs.task import Row, Task
from ampsim.runs.witness import Witness, condensed, tiny_task
from ampsim.study.learning_rates import COLUMNS, methods_of
from ampsim.study.placement_advice import advice_on, blindness
from ampsim.study.placement_trials import Trials
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import costs, software, source_digest
from ampsim.study.result import Result

TRIALS: Final = "trials.csv"


@dataclass(frozen=True, slots=True)
class TunedRows:
    """Rows with the learning rates that they run with.

    `trials` are as `Forecast.trials`; `unreached` has labels of rows of which no trial reached the
    target.
    """

    rows: Rows
    trials: pd.DataFrame
    unreached: tuple[str, ...] = ()


def tuned_rows(
    recipe: Recipe,
    rows: Rows,
    executor: RunExecutor,
    on_progress: OnProgress | None,
    keeping: Keeping,
) -> TunedRows:
    """Try learning rates for each row, if the recipe says so; `keeping` has them.

    Raises:
        KeyboardInterrupt: Ctrl-C; what finished is kept.
        SimulationError: the process of a trial died; what finished is kept.
    """
    if recipe.file.tune is None:
        return TunedRows(rows, no_trials())
    maker = RunMaker(executor, on_progress, keeping)
    spaces = [
        SettingSpace(methods_of(row.plan.model), scaling=recipe.file.scale_rate)
        for row in rows.rows
        if recipe.file.tune_optimizer
    ]
    tuner = Tuner(rows.rows, recipe.file.seeds[0], rows.goal, maker)
    tuned = tuner.tune(recipe.file.tune, spaces)
    if tuned.interrupted is not None:
        raise KeyboardInterrupt(tuned.interrupted)
    if tuned.lost:
        raise SimulationError(f"{tuned.lost[0]}; run again to go on")
    return TunedRows(replace(rows, rows=tuned.entries), tuned.trials, tuple(tuned.untuned))


def optimizers_of(rows: Rows) -> list[str]:
    """The optimizer of each row, by its name."""
    return [row.plan.model.optimizer.name for row in rows.rows]


def has_rates(file: RecipeFile) -> bool:
    """Whether rows may have other learning rates than their models."""
    return file.tune is not None or file.scale_rate != "none"


def rates_of(file: RecipeFile, rows: Rows) -> list[dict[str, Any]]:
    """Columns of each row's learning rate; empty ones where all have their model's."""
    if not has_rates(file):
        return [{} for _row in rows.rows]
    return [row.plan.rate.columns(row.plan.model) for row in rows.rows]


def rates_in(origins: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same, from what a manifest says of the rows."""
    return [{name: one[name] for name in COLUMNS if name in one} for one in origins]


def origin_of(file: RecipeFile, tuned: TunedRows) -> dict[str, Any]:
    """What a manifest says of how rows are compared, none of it where nothing was asked for."""
    asked: dict[str, Any] = {"validate_every": file.validate_every, "tune": file.tune}
    if has_rates(file):
        asked["scale_rate"] = file.scale_rate
    found = {key: value for key, value in asked.items() if value is not None}
    return {**found, **({"unreached": list(tuned.unreached)} if tuned.unreached else {})}


def read_trials(folder: Path, file: RecipeFile) -> pd.DataFrame:
    """The trials beside a report.

    Raises:
        FileFormatError: there should be some, and are none.
    """
    if file.tune is None:
        return no_trials()
    try:
        return pd.read_csv(folder / TRIALS)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{TRIALS} cannot be read; run it again") from error


KIND: Final = "report"
FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class Findings(Results):
    """Results of runs that were made or kept here, with what a report holds for later.

    Attributes:
        witnesses: those of the rows, as the file beside the report holds them.
        spreads: what the intervals of its devices do to each row, by its label.
    """

    witnesses: str = field(repr=False)
    spreads: Mapping[str, Spreading] = field(repr=False)

    @property
    def outlines(self) -> str:
        """Those of the runs, as the file beside the report holds them."""
        return outlines_to_text(self.metric, self.runs, self.spreads)


class InterruptedReport(KeyboardInterrupt):
    """Ctrl-C in the midst of a report's runs; those that finished are kept.

    Attributes:
        finished: how many runs are kept; None where it came before they were looked for.
        planned: how many there are.
    """

    def __init__(self, finished: int | None, planned: int) -> None:
        kept = f"{finished} of {planned} runs are kept"
        if finished is None:
            kept = f"what was kept of {planned} runs is as it was"
        super().__init__(f"interrupted: {kept}; run again to go on")
        self.finished = finished
        self.planned = planned


@dataclass(frozen=True, slots=True)
class RecipeOptions:
    """How the runs of a recipe are made.

    Args:
        executor: what makes them, as of `ampsim.forecast`.
        is_fresh: make every run, also those that the store has.
        on_progress: told of each run that is made.
        say: told in a line of each run that is taken from the store, or refused.
        run_limit_s: how long a run may take; None for no limit.
    """

    executor: ExecutorLike = 1
    is_fresh: bool = False
    on_progress: OnProgress | None = None
    say: Callable[[str], None] = lambda line: None
    run_limit_s: float | None = None


def run_recipe(recipe: Recipe, folder: Path, options: RecipeOptions | None = None) -> Findings:
    """Run what is not in the store of `folder` yet, and gather everything.

    Args:
        recipe: what to run.
        folder: the report's; finished runs are kept in a folder within.
        options: how.

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
) -> Findings:
    rows, seeds = make_rows(recipe), recipe.file.seeds
    keeping = Keeping(folder, options.is_fresh, say=options.say)
    planned = len(rows.rows) * len(seeds)
    lost: dict[int, str] = {}
    try:
        tuned = tuned_rows(recipe, rows, executor, options.on_progress, keeping)
        tiny = rows.with_optimizers(optimizers_of(tuned.rows)).rows
        witnesses = witnesses_of(tiny, rows.goal, seeds[0], executor, lost.__setitem__)
    except KeyboardInterrupt:
        raise InterruptedReport(None, planned) from None
    if lost:
        raise SimulationError(lost[min(lost)])
    try:
        short = [end_runs(row, seeds[0]) for row in tuned.rows.rows]
        advice = _advice_on(recipe, tuned.rows.rows)
    except KeyboardInterrupt:
        raise InterruptedReport(None, planned) from None
    tasks = [
        row.task(seed, repeat, len(seeds))
        for row in tuned.rows.rows
        for repeat, seed in enumerate(seeds, 1)
    ]
    known = [one for row in tuned.rows.rows for one in known_by(row, seeds, witnesses[row.label])]
    known += _known_at_ends(tuned.rows.rows, short, seeds[0], witnesses)
    made = _make_all([*tasks, *tasks_of(short)], known, keeping, executor, options.on_progress)
    runs = [replace(made[place], schedule=task.label) for place, task in enumerate(tasks)]
    at_ends = (made[place] for place in range(len(tasks), len(made)))
    spreads = gathered(short, [rated(one, one.failure) for one in at_ends])
    findings = _gather(recipe, tuned, runs, spreads, witnesses)
    if advice is not None:
        findings.manifest["assumptions"] = [*findings.manifest.get("assumptions", []), advice]
    return findings


def witnesses_of(
    rows: Sequence[Row], goal: Goal, seed: int, executor: RunExecutor, on_loss: OnLoss
) -> dict[str, Witness]:
    """The witness of each row, by its label; none of a row whose tiny run died.

    Raises:
        MissingDataError: a data file that a model reads is not there.
    """
    made: dict[int, Witness] = {}
    tasks, listeners = [tiny_task(row, seed) for row in rows], Listeners(made.__setitem__, on_loss)
    run_all(tasks, executor, listeners, partial(_witness_of, goal))
    return {rows[place].label: witness for place, witness in made.items()}


def _witness_of(goal: Goal, result: Result, failure: str | None) -> Witness:
    return condensed("", goal, result, failure).witness


def _known_at_ends(
    rows: Sequence[Row],
    short: Sequence[EndRuns | None],
    seed: int,
    witnesses: Mapping[str, Witness],
) -> list[Known]:
    """What each short run at the ends of intervals is kept under; `witnesses` are by label."""
    return [
        one
        for row, of in zip(rows, short, strict=True)
        if of is not None
        for task in of.tasks
        for one in known_by(
            replace(row, plan=task.plan), [seed], witnesses[row.label], leading=of.leading
        )
    ]


def _advice_on(recipe: Recipe, rows: Sequence[Row]) -> str | None:
    """Of which rows that name no placement another one is faster, in a sentence."""
    said: list[str] = []
    named = [entry.placement is not None for entry in recipe.file.schedules]
    for row, is_named in zip(rows, named, strict=True):
        plan = row.plan
        if is_named or blindness(plan.cluster) is None:
            continue
        trials = Trials(plan.model, plan.cluster, plan.options.instances)
        epochs = plan.options.epochs * len(recipe.file.seeds)
        trained = epochs * trials.data.batch_count("train")
        advice = advice_on(trials, [row.schedule], seed=recipe.file.seeds[0], trained=trained)
        if advice is not None:
            said.append(f"{row.label}: '{advice.placement}' {advice.slowest:.2f} times as fast")
    if not said:
        return None
    return f"in trials other placements than the default are faster ({'; '.join(said)})"


def _make_all(
    tasks: list[Task],
    known: list[Known],
    keeping: Keeping,
    executor: RunExecutor,
    on_progress: OnProgress | None,
) -> dict[int, Run]:
    made: dict[int, Run] = {}
    lost: dict[int, str] = {}
    listeners = Listeners(made.__setitem__, lost.__setitem__, on_progress)
    try:
        take_or_make(tasks, known, keeping, executor, listeners)
    except KeyboardInterrupt:
        raise InterruptedReport(len(made), len(tasks)) from None
    if lost:
        raise SimulationError(
            f"{lost[min(lost)]}; {len(made)} of {len(tasks)} runs are kept; run again to go on"
        )
    return made


def _costs(rows: Rows) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for cluster in rows.clusters:
        found += [one for one in costs(cluster) if one not in found]
    return found


def _copies(rows: Rows) -> list[dict[str, Any]]:
    found = copies_of([(row.plan.model, row.schedule, row.plan.cluster) for row in rows.rows])
    return [{key: one for key, one in of.items() if one is not None} for of in found]


def _gather(
    recipe: Recipe,
    tuned: TunedRows,
    runs: list[Run],
    spreads: list[Spreading],
    witnesses: Mapping[str, Witness],
) -> Findings:
    rows, file, copies = tuned.rows, recipe.file, _copies(tuned.rows)
    rates = rates_of(file, rows)
    of_runs, assumed = tables_of(recipe, rows.goal, runs, rates, copies, spreads=spreads)
    names = [{"optimizer": one} if file.tune_optimizer else {} for one in optimizers_of(rows)]
    of_rows = [
        rate | name | {"copies": of} for rate, name, of in zip(rates, names, copies, strict=True)
    ]
    return Findings(
        **of_runs,
        model=rows.model.name,
        cluster=rows.cluster.name,
        workers=rows.cluster.workers,
        trials=tuned.trials,
        manifest=_manifest(recipe, tuned, of_rows, assumed),
        witnesses=witnesses_to_text({row.label: witnesses[row.label] for row in rows.rows}),
        spreads={row.label: of for row, of in zip(rows.rows, spreads, strict=True)},
    )


def recipe_origin(recipe: Recipe) -> dict[str, str]:
    """What a manifest says of the recipe."""
    return {"file": RECIPE, "sha256": recipe.sha256, "asked_sha256": recipe.asked_sha256}


def _manifest(
    recipe: Recipe, tuned: TunedRows, of_rows: list[dict[str, Any]], assumed: list[str]
) -> dict[str, Any]:
    """Where the numbers come from, all but the hashes of what is written."""
    rows, file = tuned.rows, recipe.file
    origin = rows.origin
    parts = zip(origin["schedules"], of_rows, strict=True)
    origin["schedules"] = [one | more for one, more in parts]
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
        **origin_of(file, tuned),
        **origin,
        **({"assumptions": assumed} if assumed else {}),
        "costs": _costs(rows),
    }
