"""A forecast's runs: made, or taken from where they are kept, and grouped by schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ampsim.errors import OptionError, SimulationError
from ampsim.metric import Goal
from ampsim.study.finished_run import FinishedRun
from ampsim.study.job_pool import Listeners
from ampsim.study.jobs import Task, run_all
from ampsim.study.kept_runs import Hearers, Keeping, Known, known_by, take_or_make, witnesses_of
from ampsim.study.model import Model
from ampsim.study.outline import Outline
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import data_files
from ampsim.study.result import Result
from ampsim.study.row_plan import Row


@dataclass(frozen=True)
class Run(FinishedRun):
    """One run of a forecast.

    Attributes:
        schedule: what ran.
        repeat: which repeat, from 1.
        seed: its seed.
        outline: its numbers and tables.
        failure: why it ended early; None where it did not.
    """

    made: Result | None = field(default=None, repr=False)

    @property
    def result(self) -> Result:
        """Trace (its leading spans) and numbers, and the model as it was trained.

        Raises:
            OptionError: the forecast keeps its finished runs in a folder; results are not kept.
        """
        if self.made is None:
            raise OptionError(
                f"{self.schedule}, seed {self.seed}: a run that is kept in a folder has no result; "
                "read its tables, or forecast without keeping"
            )
        return self.made


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a forecast's runs.

    Args:
        rows: those that ended, by schedule, repeats in order; none of them is empty.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
        lost: one sentence for each run whose process died.
    """

    rows: tuple[tuple[Run, ...], ...]
    interrupted: str | None
    lost: tuple[str, ...]


def make_runs(
    tasks: Sequence[Task], jobs: int, on_progress: OnProgress | None, keeping: Keeping | None
) -> Made:
    """Make every run, or take it from where it is kept; Ctrl-C ends that early.

    Args:
        tasks: the repeats of one schedule after those of the other.
        jobs: runs to make at a time.
        on_progress: told of runs that are made.
        keeping: where runs are kept; None keeps none.

    Raises:
        SimulationError: every process that made runs died.
        KeyboardInterrupt: it came before anything was made or taken.
    """
    known = None if keeping is None else _known(tasks, jobs)
    made: dict[int, Run] = {}
    lost: dict[int, str] = {}

    def keep(place: int, outline: Outline, failure: str | None) -> None:
        made[place] = _run_of(tasks[place], outline, failure)

    def keep_result(place: int, result: Result, failure: str | None) -> None:
        made[place] = _run_of(tasks[place], result.outline(), failure, result)

    interrupted = None
    try:
        if keeping is None or known is None:
            run_all(tasks, jobs, Listeners(keep_result, lost.__setitem__, on_progress))
        else:
            hearers = Hearers(keep, lost.__setitem__, on_progress)
            take_or_make(tasks, known, keeping, jobs, hearers)
    except KeyboardInterrupt:
        interrupted = _interrupted(tasks, made)
    if lost and not made:
        raise SimulationError(lost[min(lost)])
    return Made(_by_schedule(tasks, made), interrupted, tuple(lost[one] for one in sorted(lost)))


def _run_of(task: Task, outline: Outline, failure: str | None, result: Result | None = None) -> Run:
    return Run(task.schedule.name, task.repeat, task.seed, outline, failure, result)


def _interrupted(tasks: Sequence[Task], made: Mapping[int, Run]) -> str:
    left = [task.label for place, task in enumerate(tasks) if place not in made]
    return (
        f"interrupted: {len(left)} of {len(tasks)} runs did not finish "
        f"({', '.join(dict.fromkeys(left))})"
    )


def _by_schedule(tasks: Sequence[Task], made: Mapping[int, Run]) -> tuple[tuple[Run, ...], ...]:
    rows: list[list[Run]] = []
    for place, task in enumerate(tasks):
        if task.repeat == 1:
            rows.append([])
        if place in made:
            rows[-1].append(made[place])
    return tuple(tuple(row) for row in rows if row)


def _known(tasks: Sequence[Task], jobs: int) -> list[Known | None]:
    """What each run is kept under; None for those of a row that has no witness."""
    plan, seed = tasks[0].plan, tasks[0].seed
    code, data = _code_of(plan.model), data_files(plan.model)
    rows = {
        task.label: Row(task.label, task.schedule, plan, {}, data, code)
        for task in tasks
        if task.repeat == 1
    }
    goal = Goal(plan.model.measure, plan.stop_at)
    witnesses = witnesses_of(list(rows.values()), goal, seed, jobs, lambda place, sentence: None)
    seeds = [task.seed for task in tasks if task.label == tasks[0].label]
    known: list[Known | None] = []
    for label, row in rows.items():
        if label in witnesses:
            known += known_by(row, seeds, witnesses[label])
        else:
            known += [None] * len(seeds)
    return known


def _code_of(model: Model) -> str:
    """A hash of the file that the model was loaded from.

    Raises:
        OptionError: it was not, or was changed since.
    """
    code = model.origin.get("sha256")
    if code is None or model.given:
        raise OptionError(
            f"finished runs are kept of models that load_model gave, not of {model.name}, which "
            "was made or changed in Python; leave keeping out"
        )
    return code
