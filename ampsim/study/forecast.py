"""Forecast: every schedule to the target, repeatedly, and one table of how they compare."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import pandas as pd
from annotated_types import Ge, Le

from ampsim.arguments import checked
from ampsim.data_parallel import Solver
from ampsim.errors import OptionError
from ampsim.html_table import html_table
from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.model_parallel import Schedule, placement_of
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.study.bound_words import bound_words
from ampsim.study.copies import with_copies
from ampsim.study.device_rows import sentences_of, with_devices
from ampsim.study.display import count_text, known, rate_text
from ampsim.study.end_runs import with_spreads
from ampsim.study.fit import require_fit
from ampsim.study.forecast_manifest import manifest_of, sureness_of
from ampsim.study.forecast_runs import Made, Run, RunMaker
from ampsim.study.halving import require_budget
from ampsim.study.kept_runs import Keeping
from ampsim.study.learning_rates import Scaling
from ampsim.study.named import (
    ClusterLike,
    ModelLike,
    SchedulesLike,
    cluster_of,
    model_of,
    schedules_of,
)
from ampsim.study.placement_advice import DEFAULT, Advice, advice_on, warn
from ampsim.study.progress import OnProgress
from ampsim.study.ranking import Ranking, Sureness, rank
from ampsim.study.repeats import MAX_REPEATS, entries_of, looks_of, run_rows
from ampsim.study.row import compared, row_of, table_of, times_of
from ampsim.study.simulation import Mode, PlacementLike
from ampsim.study.task import Plan
from ampsim.study.tuning import Tuned, Tuner, no_trials
from ampsim.study.validation_time import ASSUMPTION, note_validation
from ampsim.units import UNKNOWN, format_percent, format_seconds

MAX_EPOCHS: Final = 40


@dataclass(frozen=True)
class Forecast:
    """What `forecast` returns.

    Attributes:
        table: one row a schedule; unknown is missing (None or NaN), never 0.
        runs: every run, in order.
        target: the validation accuracy, or error, aimed at; None without one.
        model: the model's name.
        cluster: the cluster's name.
        workers: how many workers.
        manifest: command, versions, seeds, hashes, costs, and the placement of the first run.
        metric: what the model is measured by, with its unit.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
        lost: one sentence for each run whose process died; what the others gave is here.
        trials: one row a trial of a learning rate, those of one rate beside each other: schedule,
            learning_rate, factor (of the rate around which was tried), seed, epochs_to_target,
            time_to_target_s, best_accuracy, best_error, is_chosen, note. Empty without tuning.
        unreached: one sentence for each row of which no trial reached the target.
    """

    table: pd.DataFrame
    runs: tuple[Run, ...] = field(repr=False)
    target: float | None
    model: str
    cluster: str
    workers: int
    manifest: dict[str, Any] = field(repr=False)
    metric: Metric = ACCURACY
    interrupted: str | None = None
    lost: tuple[str, ...] = ()
    trials: pd.DataFrame = field(default_factory=no_trials, repr=False)
    unreached: tuple[str, ...] = ()

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed."""
        return [f"{run.schedule}: {run.failure}" for run in self.runs if run.failure] + [*self.lost]

    @checked
    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write page, table, figures and manifest, as `ampsim forecast --out` does.

        Args:
            folder: made if missing.

        Returns:
            The files, in the order written.

        Raises:
            OutputError: the folder or a file in it cannot be written.
        """
        from ampsim.report.page.forecast import write_forecast

        return write_forecast(self, Path(folder))

    def __repr__(self) -> str:
        names = ", ".join(str(name) for name in self.table["schedule"])
        return f"Forecast({self.model} on {self.cluster}: {names}; {len(self.runs)} runs)"

    def _repr_html_(self) -> str:
        """A row for each schedule; every column and digit is in `table`."""
        columns = _shown_columns(self.metric, self.manifest.get("model", {}).get("items", "items"))
        records: list[Any] = self.table.to_dict("records")
        rows = [[show(record) for show in columns.values()] for record in records]
        aim = "" if self.target is None else f", target {self.metric.target_text(self.target)}"
        caption = f"{self.model} on {self.cluster}{aim}"
        return html_table(caption, rows, headings=list(columns), note=self.interrupted or "")


def _shown_columns(metric: Metric, items: str) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """What a notebook shows of a row of `Forecast.table`: by its heading, what makes the cell."""
    return {
        "schedule": lambda row: str(row["schedule"]),
        "in flight": lambda row: count_text(row["max_active_keys"]),
        f"training ({items}/s)": lambda row: rate_text(known(row["train_per_s"])),
        "busy": lambda row: format_percent(known(row["utilisation"])),
        "staleness, mean": lambda row: count_text(row["staleness_mean"]),
        f"best {metric.kind}": lambda row: metric.text(known(row[metric.best_column])),
        "epochs to target": lambda row: count_text(row["epochs_to_target"]),
        "time to target": lambda row: format_seconds(known(row["time_to_target_s"])),
        "bound by": _bound,
        "note": lambda row: row["note"],
    }


def _bound(row: Mapping[str, Any]) -> str:
    shares = [known(row[f"{one}_share"]) for one in ("worker", "path", "link", "admission")]
    largest = max((share for share in shares if share is not None), default=math.nan)
    return bound_words(row["bound_largest"] or "", row["bound_at"], largest) or UNKNOWN


@checked
def forecast(
    model: ModelLike,
    cluster: ClusterLike,
    schedules: SchedulesLike,
    *,
    target: float | None = None,
    max_epochs: Count = MAX_EPOCHS,
    repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    instances: Count | None = None,
    seed: Seed = 0,
    mode: Mode = "numeric",
    placement: PlacementLike | None = None,
    jobs: Annotated[int, Ge(1), Le(REPEATS_MAX)] = 1,
    on_progress: OnProgress | None = None,
    keeping: Keeping | None = None,
    scale_rate: Scaling | None = None,
    tune: int | None = None,
    sure: Annotated[float, Ge(0.5), Le(0.999)] | None = None,
    max_repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = MAX_REPEATS,
    validate_every: Count | None = None,
) -> Forecast:
    """Run each schedule until validation reaches `target`, and compare.

    Ctrl-C ends a forecast early: what finished is returned, and `interrupted` says what did not.
    A run whose loss or weights stop being finite ends alone, its row says so; so does one whose
    process dies, which `failures` says.

    Args:
        model: what to train: from `load_model`, or its name or path.
        cluster: on what: from `load_cluster`, or its name or path.
        schedules: one row each: objects or names, or names as on the command line.
        target: accuracy in (0, 1], or, for a model with metric "error", an error above 0 in its
            unit; None for what the model file says.
        max_epochs: end a run that has not reached the target by then; in mode "sleep", which
            measures nothing, one epoch is run.
        repeats: runs of each schedule, with seeds `seed`, `seed` + 1, …; with `sure`, at least.
        instances: training items to use; None for all.
        seed: of the first repeat.
        mode: "numeric" or "sleep".
        placement: as in `simulate`; the same for all schedules, and tried under each of them.
        jobs: runs to make at a time, each on a core of its own; what they give is the same.
        on_progress: told whenever an instance finishes, after each epoch, and when a run ends.
        keeping: where finished runs are kept and those of an earlier call are taken from, as under
            `ampsim forecast --out`; they then have no `result`. None keeps none.
        scale_rate: how a row's learning rate grows with the gradients of which its schedule's
            updates take the mean: "linear", "sqrt" or "none"; None for the rule of the optimizer
            (`ampsim.study.learning_rates`).
        tune: how many learning rates each row tries, around its own, before rows are compared
            with the best of each (`ampsim.study.tuning`); None tries none.
        sure: go on with more repeats until it is this sure which row is best, or `max_repeats`
            are made (`ampsim.study.repeats`); None makes `repeats`.
        max_repeats: runs of each schedule at most, with `sure`.
        validate_every: as of `simulate`.

    Raises:
        OptionError: an option has a value that it cannot have, or a schedule does not fit the
            model's graph or the cluster; nothing has run then.
        UnknownNameError: no placement has such a name.
        FileFormatError: a placement file does not fit graph or cluster.
        SimulationError: every process that made runs died.
    """
    model, cluster, schedules = model_of(model), cluster_of(cluster), schedules_of(schedules)
    target = model.measure.require_target(target)
    target = model.target if target is None else target
    placed = placement_of(DEFAULT if placement is None else placement)
    plan = Plan(
        model, cluster, max_epochs, mode, instances, target, placed, validate_every=validate_every
    )
    looks = looks_of(len(schedules), repeats, sure, max_repeats)
    budget = None if tune is None else require_budget(tune)
    if sure is not None and (target is None or mode == "sleep"):
        raise OptionError(
            "sure compares times to a target, and there is none; give a target, or repeats instead"
        )
    require_fit(plan, schedules, seed)
    advice = None
    if placement is None:
        advice = advice_on(model, cluster, schedules, seed=seed, instances=instances)
    warn(advice)
    entries = entries_of(plan, schedules, scale_rate)
    goal, maker = Goal(model.measure, target), RunMaker(jobs, on_progress, keeping)
    tuned = Tuned(tuple(entries), no_trials())
    if budget is not None:
        tuned = Tuner(entries, seed, goal, maker).tune(budget)
    made = Made((), tuned.interrupted, ())
    if tuned.interrupted is None:
        made = run_rows(
            tuned.entries, looks, seed, maker, lambda rows: _ranking(goal, rows, looks.sureness)
        )
    made = with_spreads(tuned.entries, made, seed, maker)
    return _collect(plan, schedules, tuned, made, looks.sureness, seed=seed, advice=advice)


def _ranking(goal: Goal, rows: Sequence[Sequence[Run]], sureness: Sureness) -> Ranking | None:
    times = [times_of(goal, [one.seed for one in of], [one.outline for one in of]) for of in rows]
    return rank(times, sureness)


def _collect(
    plan: Plan,
    schedules: Sequence[Schedule],
    tuned: Tuned,
    made: Made,
    sureness: Sureness,
    *,
    seed: int,
    advice: Advice | None,
) -> Forecast:
    goal = Goal(plan.model.measure, plan.stop_at)
    outlines, entries = [[run.outline for run in of] for of in made.rows], tuned.entries
    rates = {one.label: one.plan.rate for one in entries}
    solvers = {one.label for one in entries if isinstance(one.schedule, Solver)}
    rows = [{**_row(goal, of), **rates[of[0].label].columns(plan.model)} for of in made.rows]
    rows = compared(goal, rows, outlines, _ranking(goal, made.rows, sureness))
    note_validation(rows, [of[0].label in solvers for of in made.rows])
    rows = with_devices(rows, made.rows, made.spreads)
    by_label = {one.label: one for one in entries}
    mine = [by_label[of[0].label] for of in made.rows]
    rows = with_copies(rows, [(one.plan.model, one.schedule, one.plan.cluster) for one in mine])
    unreached, runs = _unreached(tuned, goal), [run for row in made.rows for run in row]
    said = [*([str(advice)] if advice else []), *unreached]
    said += sentences_of(rows, made.rows, made.spreads)
    if any(not one.plan.times_validation for one in entries):
        said.append(ASSUMPTION)
    manifest = {
        **manifest_of(plan, schedules, [*rates.values()], runs),
        **sureness_of(sureness, len(rows)),
        **({"assumptions": said} if said else {}),
    }
    return Forecast(
        table=table_of(rows),
        runs=tuple(runs),
        target=goal.target,
        metric=goal.metric,
        model=plan.model.name,
        cluster=plan.cluster.name,
        workers=plan.cluster.workers,
        manifest=manifest if runs else {**manifest, "seeds": [seed]},
        interrupted=made.interrupted,
        lost=(*tuned.lost, *made.lost),
        trials=tuned.trials,
        unreached=unreached,
    )


def _unreached(tuned: Tuned, goal: Goal) -> tuple[str, ...]:
    closest = "it has the learning rate that came closest"
    return tuple(f"{one}: no trial reached {goal.text}; {closest}" for one in tuned.unreached)


def _row(goal: Goal, runs: Sequence[Run]) -> dict[str, Any]:
    outlines = [run.outline for run in runs]
    return row_of(runs[0].schedule, goal, outlines, [run.failure for run in runs if run.failure])
