"""A forecast's runs: made, or taken from where they are kept, and grouped by schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ampsim.errors import OptionError, SimulationError
from ampsim.metric import Goal
from ampsim.study.device_spread import Spreading
from ampsim.study.finished_run import FinishedRun
from ampsim.study.job_pool import Listeners, OnFinish
from ampsim.study.jobs import Task, run_all
from ampsim.study.kept_runs import Callbacks, Keeping, Known, known_by, take_or_make, witnesses_of
from ampsim.study.model import Model
from ampsim.study.outline import Outline
from ampsim.study.progress import OnProgress
from ampsim.study.provenance import data_files
from ampsim.study.result import Result
from ampsim.study.row_plan import Row
from ampsim.study.witness import Witness


@dataclass(frozen=True)
class Run(FinishedRun):
    """One run of a forecast.

    Attributes:
        schedule: what ran.
        repeat: which repeat, from 1.
        seed: its seed.
        outline: its numbers and tables.
        failure: why it ended early; None where it did not.
        label: that of its row.
    """

    label: str = ""
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
        spreads: what the intervals of its devices do to each row, as soon as it is known.
    """

    rows: tuple[tuple[Run, ...], ...]
    interrupted: str | None
    lost: tuple[str, ...]
    spreads: tuple[Spreading, ...] = ()


class RunMaker:
    """Makes a forecast's runs, or takes them from where they are kept; Ctrl-C ends that early.

    Args:
        jobs: runs to make at a time.
        on_progress: told of runs that are made.
        keeping: where runs are kept; None keeps none.
    """

    def __init__(self, jobs: int, on_progress: OnProgress | None, keeping: Keeping | None) -> None:
        """Make nothing yet."""
        self._jobs, self._on_progress, self._keeping = jobs, on_progress, keeping
        self._witnesses: dict[str, Witness] = {}
        self._lost: set[str] = set()
        self._files: dict[int, tuple[Model, str, tuple[dict[str, str], ...]]] = {}

    def make(self, tasks: Sequence[Task]) -> Made:
        """Make every run of `tasks`, those of one row beside each other.

        Raises:
            SimulationError: every process that made runs died.
            KeyboardInterrupt: it came before anything was made or taken.
        """
        known = None if self._keeping is None else self._known(tasks)
        made: dict[int, Run] = {}
        lost: dict[int, str] = {}

        def keep(place: int, outline: Outline, failure: str | None) -> None:
            made[place] = _run_of(tasks[place], outline, failure)

        def keep_result(place: int, result: Result, failure: str | None) -> None:
            made[place] = _run_of(tasks[place], result.outline(), failure, result)

        interrupted = None
        try:
            if self._keeping is None or known is None:
                listeners = Listeners(keep_result, lost.__setitem__, self._on_progress)
                run_all(tasks, self._jobs, listeners)
            else:
                callbacks = Callbacks(keep, lost.__setitem__, self._on_progress)
                take_or_make(tasks, known, self._keeping, self._jobs, callbacks)
        except KeyboardInterrupt:
            interrupted = _interrupted(tasks, made)
        if lost and not made:
            raise SimulationError(lost[min(lost)])
        sentences = tuple(lost[one] for one in sorted(lost))
        return Made(_by_schedule(tasks, made), interrupted, sentences)

    def make_beside(self, tasks: Sequence[Task], on_finish: OnFinish) -> None:
        """Make runs that belong to no row, and keep none of them.

        Args:
            tasks: what is wanted.
            on_finish: takes what each gave, but of those whose process died.

        Raises:
            KeyboardInterrupt: what was handed over is whole.
        """
        run_all(tasks, self._jobs, Listeners(on_finish, _ignore, self._on_progress))

    def _known(self, tasks: Sequence[Task]) -> list[Known | None]:
        """What each run is kept under; None for those of a row that has no witness."""
        first, rows = tasks[0].plan, {one.label: self._row(one) for one in tasks}
        new = [row for label, row in rows.items() if label not in {*self._witnesses, *self._lost}]
        goal = Goal(first.model.measure, first.stop_at)
        made = witnesses_of(new, goal, tasks[0].seed, self._jobs, lambda place, sentence: None)
        self._witnesses |= made
        self._lost |= {row.label for row in new} - set(made)
        return [
            known_by(rows[one.label], [one.seed], self._witnesses[one.label])[0]
            if one.label in self._witnesses
            else None
            for one in tasks
        ]

    def _row(self, task: Task) -> Row:
        """The row that a task is of; what its model reads is hashed once."""
        model = task.plan.model
        if id(model) not in self._files:  # the model is held, so that its id stays its own
            self._files[id(model)] = (model, _code_of(model), data_files(model))
        _model, code, data = self._files[id(model)]
        return Row(task.label, task.schedule, task.plan, {}, data, code)


def _ignore(place: int, sentence: str) -> None:
    """Take no notice of a run whose process died."""


def _run_of(task: Task, outline: Outline, failure: str | None, result: Result | None = None) -> Run:
    name = task.schedule.name
    return Run(name, task.repeat, task.seed, outline, failure, task.label, result)


def _interrupted(tasks: Sequence[Task], made: Mapping[int, Run]) -> str:
    left = [task.label for place, task in enumerate(tasks) if place not in made]
    return (
        f"interrupted: {len(left)} of {len(tasks)} runs did not finish "
        f"({', '.join(dict.fromkeys(left))})"
    )


def _by_schedule(tasks: Sequence[Task], made: Mapping[int, Run]) -> tuple[tuple[Run, ...], ...]:
    rows: dict[str, list[Run]] = {}
    for place, task in enumerate(tasks):
        rows.setdefault(task.label, [])
        if place in made:
            rows[task.label].append(made[place])
    return tuple(tuple(row) for row in rows.values() if row)


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
