"""Forecast: every schedule to the target, repeatedly, and one table of how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.options import require_count
from ampsim.runtime import Schedule, placement_of
from ampsim.study.attempt import Plan
from ampsim.study.display import forecast_html
from ampsim.study.fit import require_fit
from ampsim.study.jobs import Task, require_jobs, run_all
from ampsim.study.model import Model
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import cluster_origin, costs, model_origin, schedule_origin, software
from ampsim.study.result import Result
from ampsim.study.row import row_of
from ampsim.study.simulation import Mode, PlacementLike

MAX_EPOCHS: Final = 40


@dataclass(frozen=True)
class Run:
    """One run of a forecast.

    Attributes:
        schedule: what ran.
        repeat: which repeat, from 1.
        seed: its seed.
        result: trace (its leading spans) and numbers.
        failure: why it ended early; None where it did not.
    """

    schedule: str
    repeat: int
    seed: int
    result: Result = field(repr=False)
    failure: str | None = None

    @property
    def epochs(self) -> pd.DataFrame:
        """One row an epoch."""
        return self.result.epochs

    @property
    def spans(self) -> pd.DataFrame:
        """The leading spans."""
        return self.result.spans

    @property
    def messages(self) -> int:
        """Spans in all, kept or not."""
        return self.result.messages

    @property
    def staleness(self) -> pd.DataFrame:
        """The histogram of all gradients."""
        return self.result.staleness

    @property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """The share of the time that each worker spends on steps of each direction."""
        return self.result.utilisation_by_worker


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
        manifest: origin: command, versions, seeds, hashes, costs, and the placement, of the first
            run where chance decides it.
        metric: what the model is measured by, with its unit.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
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

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed."""
        return [f"{run.schedule}: {run.failure}" for run in self.runs if run.failure]

    def _repr_html_(self) -> str:
        return forecast_html(self)


def forecast(
    model: Model,
    cluster: Cluster,
    schedules: Sequence[Schedule],
    *,
    target: float | None = None,
    max_epochs: int = MAX_EPOCHS,
    repeats: int = 1,
    instances: int | None = None,
    seed: int = 0,
    mode: Mode = "numeric",
    placement: PlacementLike = "paper",
    jobs: int = 1,
    on_progress: OnProgress | None = None,
) -> Forecast:
    """Run each schedule until validation reaches `target`, and compare.

    Ctrl-C ends a forecast early: what finished is returned, and `interrupted` says what did not.
    A run whose loss or weights stop being finite ends alone; its row says so.

    Args:
        model: what to train.
        cluster: on what.
        schedules: one row each.
        target: accuracy in (0, 1], or, for a model with metric "error", an error above 0 in its
            unit; None for what the model file says.
        max_epochs: end a run that has not reached the target by then; in mode "sleep", which
            measures nothing, one epoch is run.
        repeats: runs of each schedule, with seeds `seed`, `seed` + 1, …
        instances: training items to use; None for all.
        seed: of the first repeat.
        mode: "numeric" or "sleep".
        placement: as in `simulate`; the same for all schedules.
        jobs: runs to make at a time, each on a core of its own; what they give is the same.
        on_progress: told whenever an instance finishes, and after each epoch.

    Raises:
        OptionError: an option has a value that it cannot have, or a schedule does not fit the
            model's graph or the cluster; nothing has run then.
        UnknownNameError: no placement has such a name.
        FileFormatError: a placement file does not fit graph or cluster.
    """
    target = model.measure.require_target(target)
    max_epochs = require_count("max_epochs", max_epochs)
    repeats, jobs = require_count("repeats", repeats), require_jobs(jobs)
    _require_schedules(schedules)
    target = model.target if target is None else target
    plan = Plan(model, cluster, max_epochs, mode, instances, target, placement_of(placement))
    require_fit(plan, schedules, seed)
    tasks = [
        Task(plan, schedule, seed + repeat - 1, schedule.name, repeat, repeats)
        for schedule in schedules
        for repeat in range(1, repeats + 1)
    ]
    made: dict[int, Run] = {}

    def keep(place: int, result: Result, failure: str | None) -> None:
        task = tasks[place]
        made[place] = Run(task.label, task.repeat, task.seed, result, failure)

    interrupted = None
    try:
        run_all(tasks, jobs, on_progress, keep)
    except KeyboardInterrupt:
        left = [task.label for place, task in enumerate(tasks) if place not in made]
        interrupted = (
            f"interrupted: {len(left)} of {len(tasks)} runs did not finish "
            f"({', '.join(dict.fromkeys(left))})"
        )
    runs = [made[place] for place in sorted(made)]
    return _collect(plan, schedules, runs, seed, interrupted)


def _require_schedules(schedules: object) -> None:
    if not isinstance(schedules, list | tuple):
        raise OptionError(
            "schedules must be a list such as [ampsim.Sequential(), ampsim.Amp()], "
            f"got {schedules!r}"
        )
    if not schedules:
        raise OptionError("schedules must name at least one schedule, got none")


def _collect(
    plan: Plan,
    schedules: Sequence[Schedule],
    runs: list[Run],
    seed: int,
    interrupted: str | None,
) -> Forecast:
    target, metric = plan.stop_at, plan.model.measure
    rows = [
        _row(schedule, Goal(metric, target), finished)
        for schedule in schedules
        if (finished := [run for run in runs if run.result.schedule is schedule])
    ]
    manifest = {
        **software(),
        "seeds": sorted({run.seed for run in runs}) or [seed],
        "mode": plan.mode,
        "target": "none" if target is None else target,
        "metric": metric.kind,
        "max_epochs": plan.max_epochs if plan.mode == "numeric" else 1,
        "model": model_origin(plan.model),
        "cluster": cluster_origin(plan.cluster),
        "schedules": [schedule_origin(schedule) for schedule in schedules],
        "placement": runs[0].result.origin["placement"] if runs else plan.placement.origin,
        "costs": costs(plan.cluster),
    }
    return Forecast(
        table=pd.DataFrame(rows),
        runs=tuple(runs),
        target=target,
        metric=metric,
        model=plan.model.name,
        cluster=plan.cluster.name,
        workers=plan.cluster.workers,
        manifest=manifest,
        interrupted=interrupted,
    )


def _row(schedule: Schedule, goal: Goal, runs: Sequence[Run]) -> dict[str, Any]:
    outlines = [run.result.outline() for run in runs]
    return row_of(schedule.name, goal, outlines, [run.failure for run in runs if run.failure])
