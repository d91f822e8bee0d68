"""Runs of a question: what it asks of a setup, timed exactly or learned, in the time there is.

A run in mode "sleep" takes the same virtual time as one that learns, to the last bit, and says by
its digest which points learn the same. What is kept of it are a few numbers in a line of a file.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from annotated_types import Gt

from ampsim.errors import FileFormatError, OptionError, SimulationError
from ampsim.exploring.axes import Setup
from ampsim.exploring.condition import TIMED
from ampsim.files import prepare_folder, read_regular
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.forecasting.making import RunMaker, entries_of, require_fit
from ampsim.metric import Goal
from ampsim.model_parallel import placement_of
from ampsim.runs.executor import RunExecutor
from ampsim.runs.jobs import ExecutorLike, opened
from ampsim.runs.ranking import finite
from ampsim.runs.run import Run
from ampsim.runs.store import TIMINGS, Keeping
from ampsim.runs.task import Row, RunPlan, Task
from ampsim.study.placement_trials import DEFAULT
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.provenance import model_origin, schedule_origin, software
from ampsim.study.result import Result
from ampsim.study.simulation import PlacementLike, RunOptions
from ampsim.text import mapping
from ampsim.units import format_seconds

RunLimit: TypeAlias = Annotated[float, Gt(0)] | None
"""Seconds that a run may take, as of `forecast`; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the runs of a question are made: what `forecast` takes by the same names."""

    target: float | None = None
    max_epochs: int = MAX_EPOCHS
    repeats: int = 1
    instances: int | None = None
    seed: int = 0
    is_numeric: bool = True
    placement: PlacementLike | None = None

    @property
    def seeds(self) -> range:
        """Those of the runs."""
        return range(self.seed, self.seed + self.repeats)

    def rows(self, setup: Setup, *, are_many: bool = False) -> list[Row]:
        """A row for each schedule of a setup, ready to run.

        Args:
            setup: of the rows.
            are_many: whether there are so many that it is left to their runs, which come at once,
                to find that one does not fit; a placement that is given is found all the same.

        Raises:
            OptionError: a schedule does not fit the model, the cluster or the placement.
            GraphError: the model's graph breaks a rule.
            FileFormatError: a placement file does not fit graph or cluster.
        """
        target = setup.model.target if self.target is None else self.target
        options = RunOptions(
            epochs=self.max_epochs, instances=self.instances, target=target,
            mode="numeric" if self.is_numeric else "sleep",
            placement=placement_of(DEFAULT if self.placement is None else self.placement),
        )  # fmt: skip
        plan = RunPlan(setup.model, setup.cluster, options)
        rows = entries_of(plan, setup.schedules, None)
        if are_many and self.placement is None:
            return rows
        placements = require_fit(plan, setup.schedules, self.seed)
        pairs = zip(rows, placements, strict=True)
        return [replace(row, plan=row.plan.having(placement=placed)) for row, placed in pairs]

    def manifest(self, setup: Setup, **more: Any) -> dict[str, Any]:
        """Where numbers come from: software, and what was asked."""
        return {**software(), **self.origin(setup), **more}

    def origin(self, setup: Setup) -> dict[str, Any]:
        """What was asked, and of what, as plain values."""
        return {
            "model": model_origin(setup.model),
            "cluster": setup.cluster.name,
            "cluster_sha256": setup.cluster.digest,
            "schedules": [schedule_origin(one) for one in setup.schedules],
            "seeds": [self.seeds.start, self.seeds.stop - 1],
            "target": setup.model.target if self.target is None else self.target,
            "max_epochs": self.max_epochs,
            "instances": self.instances,
            "placement": None if self.placement is None else placement_of(self.placement).origin,
        }


def sleeping(row: Row) -> Row:
    """The same row for an epoch of which only the time is wanted."""
    plan = row.plan.having(mode="sleep", epochs=1, target=None, validate_every=None)
    return replace(row, plan=plan)


class BudgetSpentError(KeyboardInterrupt):
    """The time that a question was given is over; it ends as Ctrl-C ends it."""


class TimeBudget:
    """The wall clock of a question: says when its time is over, to runs under way as well."""

    def __init__(self, budget_s: float | None, on_progress: OnProgress | None) -> None:
        self._end_s = math.inf if budget_s is None else time.monotonic() + budget_s
        self._budget_s, self._on_progress = budget_s, on_progress

    def tell(self, progress: Progress) -> None:
        """Hand news on.

        Raises:
            BudgetSpentError: time is over.
        """
        self.require_left()
        if self._on_progress is not None:
            self._on_progress(progress)

    def require_left(self) -> None:
        """Go on only if there is time.

        Raises:
            BudgetSpentError: time is over.
        """
        if self.is_over:
            raise BudgetSpentError

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return time.monotonic() >= self._end_s

    def sentence(self, done: str) -> str:
        """Why it ended, and how far it is."""
        spent = f"the budget of {format_seconds(self._budget_s)} was spent"
        return f"{spent if self.is_over else 'interrupted'}: {done}; the same call goes on"

    def refuse(self) -> None:
        """Tell that the budget is too small, if it is over.

        Raises:
            OptionError: it is.
        """
        if self.is_over:
            raise OptionError(
                f"budget_s must be enough to time a point, got {self._budget_s:g}; give more"
            ) from None


@dataclass(frozen=True, slots=True)
class FirstEpoch:
    """What the first epoch of a run takes.

    Args:
        epoch_s: training and validation, in virtual seconds; NaN where it did not end.
        train_per_s: training items per second of training; None where that takes no time.
        digest: equal where the epoch learns the same; empty where no order is taken down.
        staleness: mean of each node that learns.
        power_w: of all devices, in the mean over the epoch; None where unknown.
        usd_per_s: likewise, dollars.
        peak_bytes: what lies in the fullest memory at most; None where nobody counted.
        valid_per_s: validation items per second of validation; None where there are none.
        utilisation: share of the workers' time in which they are busy.
        staleness_mean: over all gradients; None where there are none.
        staleness_max: likewise.
        failure: why it did not end; None where it did.
    """

    epoch_s: float = math.nan
    train_per_s: float | None = None
    digest: str = ""
    staleness: Mapping[str, float] = field(default_factory=dict[str, float])
    power_w: float | None = None
    usd_per_s: float | None = None
    peak_bytes: int | None = None
    valid_per_s: float | None = None
    utilisation: float | None = None
    staleness_mean: float | None = None
    staleness_max: int | None = None
    failure: str | None = None

    @property
    def columns(self) -> dict[str, float | None]:
        """What it says, by the columns that follow from timing."""
        return {name: getattr(self, name) for name in TIMED}


def timed(result: Result | Run, failure: str | None) -> FirstEpoch:
    """What a run of one epoch took; why it failed, if it did."""
    if failure is not None:
        return FirstEpoch(failure=failure)
    rows = result.staleness
    sums = (rows["staleness"] * rows["count"]).groupby(rows["node"]).sum()
    counts = rows["count"].groupby(rows["node"]).sum()
    end_s, memory = result.makespan_s, result.peak_memory
    return FirstEpoch(
        epoch_s=float(result.epochs["time_s"].iloc[0]),
        train_per_s=finite(result.train_per_s),
        digest=result.learning_digest or "",
        staleness={str(name): float(mean) for name, mean in (sums / counts).items()},
        power_w=_share(result.energy_j, end_s),
        usd_per_s=_share(result.cost_usd, end_s),
        peak_bytes=int(memory["bytes"].max()) if len(memory) else None,
        valid_per_s=finite(result.valid_per_s),
        utilisation=finite(result.utilisation),
        staleness_mean=finite(result.staleness_mean),
        staleness_max=result.staleness_max,
    )


def _share(whole: float, seconds: float) -> float | None:
    return whole / seconds if seconds and whole == whole else None  # not NaN


class PointRuns:
    """Makes the runs of a question, or finds those that are kept.

    Args:
        asked: how.
        executor: on what.
        clock: says when their time is over.
        keeping: where they are kept; None for nowhere.
    """

    def __init__(
        self, asked: Asked, executor: RunExecutor, clock: TimeBudget, keeping: Keeping | None
    ) -> None:
        """Read what was timed before."""
        self._asked, self.clock = asked, clock
        self._maker = RunMaker(executor, clock.tell, keeping)
        self._lost: dict[str, None] = {}
        self._best: float | None = None
        self._goal: Goal | None = None
        self._epochs, self._arrived = 0, False
        self._file = None if keeping is None else keeping.runs / TIMINGS
        self._known = {} if keeping is None or keeping.is_fresh else _read(self._file)

    def time(
        self,
        wanted: Sequence[tuple[Row, int]],
        take: Callable[[int, FirstEpoch], None] = lambda _place, _found: None,
    ) -> list[FirstEpoch]:
        """What the first epoch takes of each row with a seed; one that did not end says why.

        Args:
            wanted: rows and seeds.
            take: is told of each, by its place, as soon as it is known.

        Raises:
            OptionError: mode "sleep" cannot run a row.
            KeyboardInterrupt: what `take` was told is kept.
        """
        tasks = [
            sleeping(row).task(seed, number, len(wanted))
            for number, (row, seed) in enumerate(wanted, 1)
        ]
        keys = [None if self._file is None else self._maker.key(one) for one in tasks]
        found = {place: self._known[key] for place, key in enumerate(keys) if key in self._known}
        for place, one in found.items():
            take(place, one)
        left = [place for place in range(len(tasks)) if place not in found]

        def keep(index: int, made: FirstEpoch) -> None:
            place = left[index]
            self._keep(keys[place], made)
            found[place] = made
            take(place, made)

        def lose(index: int, sentence: str) -> None:
            keep(index, FirstEpoch(failure=sentence))

        self._maker.make_beside([tasks[place] for place in left], keep, timed, lose)
        return [found[place] for place in range(len(tasks))]

    def _keep(self, key: str | None, made: FirstEpoch) -> None:
        if self._file is None or key is None or made.failure is not None:
            return
        self._known[key] = made
        prepare_folder(self._file.parent)
        with self._file.open("a", encoding="utf-8") as lines:
            text = json.dumps({"key": key, **asdict(made)}, allow_nan=False)
            lines.write(f"\n{text}\n")  # the line before may have been cut

    def learn(self, wanted: Sequence[tuple[Row, int]]) -> list[Run | str]:
        """The run of each row with a seed; a sentence where it gave nothing, as its process died.

        Args:
            wanted: rows and seeds; rows of one label are the same row.

        Raises:
            KeyboardInterrupt: Ctrl-C came, or time is over; what finished is kept, if runs are.
        """
        if not wanted:
            return []
        first, repeats = self._asked.seed, self._asked.repeats
        tasks: list[Task] = [row.task(seed, seed - first + 1, repeats) for row, seed in wanted]
        try:
            made = self._maker.make(tasks)
        except SimulationError as error:  # none gave anything
            self._lost[str(error)] = None
            return [str(error)] * len(tasks)
        if made.interrupted is not None:
            raise KeyboardInterrupt
        found = {(run.label, run.seed): run for of_row in made.rows for run in of_row}
        goals = {row.label: row.plan.goal for row, _seed in wanted}
        for run in found.values():
            self._note(goals[run.label], run)
        self._lost |= dict.fromkeys(made.lost)
        lost = iter(made.lost)
        return [found.get((row.label, seed)) or next(lost) for row, seed in wanted]

    def said(self) -> list[str]:
        """What runs that learned say themselves: which gave nothing, and that none arrived."""
        return [f"{one}: nothing is known of it." for one in self._lost] + self._unreached()

    def _unreached(self) -> list[str]:
        """That no run has reached the target, in a sentence, and how near one came; else none.

        Nothing is known of times to the target then, whatever the hardware.
        """
        goal = self._goal
        if goal is None or self._arrived:
            return []
        return [
            f"No run reached {goal.text} within {self._epochs} "
            f"epoch{'s' * (self._epochs != 1)}; the best "
            f"{goal.metric.kind} was {goal.metric.text(self._best)}. Give another target, more "
            "epochs, or other options of the model."
        ]

    def _note(self, goal: Goal, run: Run) -> None:
        """Take down how near a run came."""
        scores = run.looks[goal.metric.kind]
        known = [one for one in (self._best, goal.metric.best(scores)) if one is not None]
        self._goal, self._best = goal, goal.metric.best(known)
        self._epochs = max(self._epochs, len(run.epochs))
        self._arrived |= goal.target is None or goal.reached_by(scores) is not None


@contextlib.contextmanager
def point_runs(
    asked: Asked,
    *,
    jobs: int,
    executor: ExecutorLike,
    on_progress: OnProgress | None,
    keeping: Keeping | None,
    run_limit_s: float | None,
    budget_s: float | None = None,
) -> Generator[PointRuns]:
    """What makes the runs of a question while the block lasts; arguments are those of `forecast`.

    Raises:
        OptionError: the executor is none, or cannot be reached.
    """
    clock = TimeBudget(budget_s, on_progress)
    with opened(jobs if executor is None else executor, jobs, run_limit_s) as makes:
        yield PointRuns(asked, makes, clock, keeping)


def _read(file: Any) -> dict[str | None, FirstEpoch]:
    """Timings by their keys; a line that is not whole is left out."""
    found: dict[str | None, FirstEpoch] = {}
    with contextlib.suppress(OSError, FileFormatError):
        for line in read_regular(file).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                content: dict[str, Any] = mapping(json.loads(line))
                key = content.pop("key")
                found[key] = FirstEpoch(**content)
    return found
