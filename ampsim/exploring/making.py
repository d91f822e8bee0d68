"""Runs of a question: what it asks of a setup, timed exactly or learned, in the time there is.

A run in mode "sleep" takes the same virtual time as one that learns, to the last bit, and says by
its digest which points learn the same. What is kept of it are a few numbers in a line of a file.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, Final, ParamSpec, TypeAlias, TypedDict, TypeVar

from annotated_types import Ge, Gt, Le

from ampsim.arguments import checked
from ampsim.clock import interrupted_after
from ampsim.data_parallel import Solver
from ampsim.errors import FileFormatError, OptionError, SimulationError
from ampsim.exploring.axes import Point, Setup, digests_of, setup_at
from ampsim.exploring.condition import TIMED
from ampsim.exploring.crossings import SEEDS
from ampsim.files import appending, prepare_folder, read_regular
from ampsim.forecasting import making
from ampsim.forecasting.forecast import MAX_EPOCHS
from ampsim.model_parallel import Schedule, placement_of
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.rng import require_seed
from ampsim.runs.executor import RunExecutor
from ampsim.runs.jobs import ExecutorLike, opened
from ampsim.runs.run import Run
from ampsim.runs.store import TIMINGS, RunCache
from ampsim.runs.task import Row, RunPlan, Task
from ampsim.study.learning_rates import Scaling, rate_of
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.provenance import model_origin, schedule_origin, software
from ampsim.study.result import Result
from ampsim.study.simulation import Mode, PlacementLike, RunOptions
from ampsim.text import finite, mapping
from ampsim.units import format_seconds

APART_MIN: Final = 0.01  # share by which epochs differ that is told (chosen: below it seeds do)
Many: TypeAlias = Annotated[int, Ge(1), Le(REPEATS_MAX)]  # seeds, points or processes
_P = ParamSpec("_P")
_R = TypeVar("_R")


class How(TypedDict, total=False):
    """Options of how runs are made, by the names that `forecast` takes."""

    target: float | None
    max_epochs: Count
    instances: Count | None
    seed: Seed
    placement: PlacementLike | None
    jobs: Many
    on_progress: OnProgress | None
    keeping: RunCache | None
    executor: ExecutorLike
    run_limit_s: Annotated[float, Gt(0)] | None


def question(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function that takes `**how: Unpack[How]` check these as its own, and show them."""
    untyped: Any = function
    hints, own = inspect.get_annotations(Query, eval_str=True), inspect.signature(function)
    parameters = [*own.parameters.values()][:-1]
    for one in (one for one in fields(Query) if one.name in How.__annotations__):
        shown = inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default)
        parameters.append(shown.replace(annotation=one.type))
        hint = hints[one.name]  # a text where a name is imported late
        untyped.__annotations__[one.name] = Any if isinstance(hint, str) else hint
    untyped.__signature__ = own.replace(parameters=parameters)
    return checked(function)


@dataclass(frozen=True, kw_only=True)
class Query:
    """The subject of a question, and how its runs are made, as of `How`."""

    setup: Setup
    beside: tuple[Schedule, ...] = ()  # with which rows are compared, too, as of a forecast
    repeats: int = 1
    mode: Mode = "numeric"
    budget_s: float | None = None
    target: float | None = None
    max_epochs: Count = MAX_EPOCHS
    instances: Count | None = None
    seed: Seed = 0
    placement: PlacementLike | None = None
    jobs: Many = 1
    on_progress: OnProgress | None = None
    keeping: RunCache | None = None
    executor: ExecutorLike = None
    run_limit_s: Annotated[float, Gt(0)] | None = None
    known: dict[str, str] = field(default_factory=dict[str, str])  # files' digests, as of `rows_at`

    def __post_init__(self) -> None:
        require_seed(self.seed)
        self.setup.model.measure.require_target(self.target)

    @property
    def seeds(self) -> range:
        """Seeds of the runs."""
        return range(self.seed, self.seed + self.repeats)

    @property
    def compared(self) -> int:
        """How many seeds tell whether they are timed alike; two may draw the same groups."""
        draw = any(getattr(one, "draws_groups", False) for one in self.setup.schedules)
        return SEEDS if draw else 2

    @property
    def aimed_at(self) -> float | None:
        """The target; of the model itself unless it was given."""
        return self.setup.model.target if self.target is None else self.target

    @property
    def rows(self) -> list[Row]:
        """A row for each schedule where nothing varies, of which it is not known yet if it fits."""
        model, cluster, schedules = self.setup
        how: dict[str, Any] = {n: getattr(self, n) for n in ("instances", "mode", "placement")}
        options = RunOptions(epochs=self.max_epochs, target=self.aimed_at, **how)
        return making.entries_of(RunPlan(model, cluster, options), schedules, beside=self.beside)

    @property
    def origin(self) -> dict[str, Any]:
        """The question, as plain values."""
        model, cluster, schedules = self.setup
        placed = None if self.placement is None else placement_of(self.placement).origin
        return {
            "model": model_origin(model), "cluster": cluster.name, "cluster_sha256": cluster.digest,
            "schedules": [schedule_origin(one) for one in schedules],
            "seeds": [*self.seeds], "target": self.aimed_at,
            "max_epochs": self.max_epochs, "instances": self.instances, "placement": placed,
        }  # fmt: skip

    def manifest(self, **more: Any) -> dict[str, Any]:
        """Return the origin of the numbers: software, the question, and what its files say."""
        return {
            **software(),
            **self.origin,
            **({"read": self.known} if self.known else {}),
            **more,
        }

    @contextlib.contextmanager
    def runs(self) -> Generator[PointRuns]:
        """Open what makes its runs for the block, which a budget ends whatever is under way."""
        given, limit_s = self.jobs if self.executor is None else self.executor, self.budget_s
        advice = making.advised(self.rows[0].plan, self.beside or self.setup.schedules, self.seed)
        with opened(given, self.jobs, self.run_limit_s) as executor, interrupted_after(limit_s):
            runs = PointRuns(self, executor, advice)
            try:
                yield runs
            except KeyboardInterrupt:
                runs.stopped("")


def rows_at(
    rows: Sequence[Row], point: Point, labelled: Callable[[str], str], seed: int,
    known: dict[str, str],
) -> list[Row | str]:  # fmt: skip
    """Rows at a point around where they are, ready to run; of one that does not fit there, why.

    `labelled` makes a label of that of a row; the seed is that of the placement. Learning rates are
    scaled by the rule of each model, but for a row that sets its own. Digests of files that are
    read for a point go to those `known` of the points before.

    Raises:
        UnknownNameError: a value names nothing that there is.
        GraphError: a model's graph breaks a rule.
        FileFormatError: a placement file does not fit graph or cluster, or a file has changed.
    """
    schedules, found = tuple(row.schedule for row in rows), list[Row | str]()
    for place, row in enumerate(rows):
        try:
            at = setup_at(Setup(row.plan.model, row.plan.cluster, schedules), point)
            schedule = at.schedules[place]
            rule: Scaling | None = "none" if "learning_rate" in row.settings else None
            rate = rate_of(at.model, schedule, at.cluster, row.plan.options, rule)
            plan = replace(row.plan, model=at.model, cluster=at.cluster, rate=rate)
            (placed,) = making.require_fit(plan, [schedule], seed)
        except OptionError as error:
            found.append(str(error))
            continue
        plan, label = plan.having(placement=placed), labelled(row.label)
        found.append(replace(row, label=label, schedule=schedule, plan=plan))
    placed = [row.plan.options.placed.origin for row in found if isinstance(row, Row)]
    read = [(one["file"], one["sha256"]) for one in placed if one["name"] == "file"]
    for name, digest in (*digests_of(point.items()), *read):
        if known.setdefault(name, digest) != digest:
            raise FileFormatError(f"{name} has changed since a point before was made; begin again")
    return found


@dataclass(frozen=True, slots=True)
class FirstEpoch:
    """Measurements of a run's first epoch; None is unknown, or of nothing."""

    epoch_s: float = math.nan  # training and validation, in virtual time; NaN where it did not end
    train_per_s: float | None = None  # training items a second of training
    digest: str = ""  # equal where the epoch learns the same; empty where no order is taken down
    staleness: Mapping[str, float] = field(default_factory=dict[str, float])  # mean of each node
    power_w: float | None = None  # of all devices, in the mean over the epoch
    usd_per_s: float | None = None  # likewise
    peak_bytes: int | None = None  # what lies in the fullest memory at most
    valid_per_s: float | None = None  # validation items a second of validation
    utilisation: float | None = None  # share of the workers' time in which they are busy
    staleness_mean: float | None = None  # over all gradients
    staleness_max: int | None = None
    failure: str | None = None  # why it did not end; None where it did
    never_met: str | None = None  # which ranks exchanged with nobody; None where all did

    @property
    def columns(self) -> dict[str, float | None]:
        """Values of the columns that follow from timing."""
        return {name: getattr(self, name) for name in TIMED}

    def upkeep(self, seconds: float | None) -> dict[str, float | None]:
        """Return the dollars and joules of all devices in so many seconds; None where unknown."""
        rates = {"cost_to_target_usd": self.usd_per_s, "energy_to_target_j": self.power_w}
        return {name: seconds and rate and rate * seconds for name, rate in rates.items()}


def timed(result: Result | Run, failure: str | None) -> FirstEpoch:
    """Read off a run of one epoch what it took, or why it failed."""
    if failure is not None:
        return FirstEpoch(failure=failure)
    rows, memory = result.staleness, result.peak_memory
    sums = (rows["staleness"] * rows["count"]).groupby(rows["node"]).sum()
    means = sums / rows["count"].groupby(rows["node"]).sum()
    span_s = result.makespan_s or math.nan
    return FirstEpoch(
        epoch_s=float(result.epochs["time_s"].iloc[0]), digest=result.learning_digest or "",
        staleness={str(name): float(mean) for name, mean in means.items()},
        power_w=finite(result.energy_j / span_s), usd_per_s=finite(result.cost_usd / span_s),
        peak_bytes=int(memory["bytes"].max()) if len(memory) else None,
        train_per_s=finite(result.train_per_s), valid_per_s=finite(result.valid_per_s),
        utilisation=finite(result.utilisation), staleness_mean=finite(result.staleness_mean),
        staleness_max=result.staleness_max, never_met=result.never_met or None,
    )  # fmt: skip


class PointRuns:
    """Makes the runs of a question, or finds those that are kept, as long as there is time."""

    def __init__(self, asked: Query, executor: RunExecutor, advice: Sequence[str] = ()) -> None:
        """Start the clock, and read what was timed before; the advice is said with notes."""
        self._asked, self._advice, keeping = asked, advice, asked.keeping
        self._end_s = math.inf if asked.budget_s is None else time.monotonic() + asked.budget_s
        self._maker = making.RunMaker(executor, self._tell, keeping)
        self.apart = 0.0  # the share by which epochs of runs that learned differ from the first
        self._diverged: dict[str, str] = {}  # the rate of rows that are run again, by label
        self.lost: dict[str, None] = {}  # sentences on runs that gave nothing
        self._ends: list[making.RunEnd] = []
        self._file = None if keeping is None else keeping.runs / TIMINGS
        self._known = {} if keeping is None or keeping.is_fresh else _read(self._file)

    def _tell(self, progress: Progress) -> None:
        self.require_time()
        if self._asked.on_progress is not None:
            self._asked.on_progress(progress)

    def require_time(self) -> None:
        """Go on only if there is time; a KeyboardInterrupt ends a question as Ctrl-C does."""
        if time.monotonic() >= self._end_s:
            raise KeyboardInterrupt

    def stopped(self, done: str) -> dict[str, Any]:
        """Return a finding's words on why it ended early, and how far it is; that may be nothing.

        Raises:
            OptionError: nothing is done, for the budget is too small.
            KeyboardInterrupt: nothing is done, for Ctrl-C came.
        """
        is_spent, budget_s = time.monotonic() >= self._end_s, self._asked.budget_s
        if not done and is_spent:
            said = f"budget_s must be enough for a first point, got {budget_s:g}; give more"
            raise OptionError(said) from None
        if not done:
            raise KeyboardInterrupt
        why = f"the budget of {format_seconds(budget_s)} was spent" if is_spent else "interrupted"
        return {"interrupted": f"{why}: {done}; the same call goes on", "is_stopped": not is_spent}

    def time(
        self,
        wanted: Sequence[tuple[Row, int]],
        take: Callable[[int, FirstEpoch], None] = lambda _place, _found: None,
    ) -> list[FirstEpoch]:
        """Time the first epoch of each row with a seed; one that did not end says why.

        `take` is told of each, by its place, as soon as it is known; Ctrl-C loses nothing of that.
        """
        how: dict[str, Any] = {"mode": "sleep", "epochs": 1, "target": None, "validate_every": None}
        tasks = [
            Task(row.plan.having(**how), row.schedule, seed, row.label, number, len(wanted))
            for number, (row, seed) in enumerate(wanted, 1)
        ]
        keys = [None if self._file is None else self._maker.known(one).key for one in tasks]
        found = {place: self._known[key] for place, key in enumerate(keys) if key in self._known}
        for place, one in found.items():
            take(place, one)
        left = [place for place in range(len(tasks)) if place not in found]

        def keep(index: int, made: FirstEpoch) -> None:
            place = left[index]
            if made.failure is not None and made.failure not in self.lost:  # others may end
                made = replace(made, failure=f"with seed {wanted[place][1]}: {made.failure}")
            found[place] = made
            self._keep(keys[place], made)
            take(place, made)

        def lose(index: int, sentence: str) -> None:
            self.lost[sentence] = None
            keep(index, FirstEpoch(failure=sentence))

        self._maker.make_beside([tasks[place] for place in left], keep, timed, lose)
        return [found[place] for place in range(len(tasks))]

    def _keep(self, key: str | None, made: FirstEpoch) -> None:
        if self._file is None or made.failure is not None:
            return
        self._known[key] = made
        prepare_folder(self._file.parent)
        with appending(self._file), self._file.open("a", encoding="utf-8") as lines:
            text = json.dumps({"key": key, **asdict(made)}, allow_nan=False)
            lines.write(f"\n{text}\n")  # the line before may have been cut

    def learn(self, wanted: Sequence[tuple[Row, int]]) -> list[Run | str]:
        """Learn as `learn_once` does; run a row that diverges at a rate by rule again as given.

        So it is in a forecast: with all seeds wanted here, if a run with one of them diverged.
        """
        found = self.learn_once(wanted)
        rows, runs = {row.label: row for row, _seed in wanted}, dict[str, list[Run]]()
        for (row, _seed), one in zip(wanted, found, strict=True):
            runs.setdefault(row.label, []).extend([one] if isinstance(one, Run) else [])
        given = {label: self.as_given(row, runs[label]) for label, row in rows.items()}
        again = [(new, seed) for row, seed in wanted if (new := given[row.label])]
        made = iter(self.learn_once(again))
        pairs = zip(wanted, found, strict=True)
        return [next(made) if given[row.label] else one for (row, _seed), one in pairs]

    def learn_once(self, wanted: Sequence[tuple[Row, int]]) -> list[Run | str]:
        """The run of each row with a seed; a sentence where it gave nothing, as its process died.

        Rows of one label are the same row.

        Raises:
            KeyboardInterrupt: Ctrl-C came, or time is over; what finished is kept, if runs are.
        """
        if not wanted:
            return []
        first, repeats = self._asked.seed, self._asked.repeats
        tasks = [row.task(seed, seed - first + 1, repeats) for row, seed in wanted]
        try:
            made = self._maker.make(tasks)
        except SimulationError as error:  # none gave anything
            self.lost[str(error)] = None
            return [str(error)] * len(tasks)
        if made.interrupted is not None:
            raise KeyboardInterrupt
        runs = [replace(run, made=None) for of_row in made.rows for run in of_row]  # but numbers
        found = {(run.label, run.seed): run for run in runs}
        goals = {row.label: row.plan.goal for row, _seed in wanted}
        self.apart = max([self.apart, *map(_apart, runs)])
        self._ends += [making.end_of(goals[run.label], run) for run in runs]
        self.lost |= dict.fromkeys(made.lost)
        lost = iter(made.lost)
        return [found.get((row.label, seed)) or next(lost) for row, seed in wanted]

    def as_given(self, row: Row, runs: Sequence[Run]) -> Row | None:
        """The row to run in its place, as in a forecast, where it diverged at a rate by rule."""
        given = making.where_diverged([row], {row.label: runs}).get(row.label)
        self._diverged |= {} if given is None else {row.label: given.plan.rate.rule}
        return given

    @property
    def failed(self) -> str | None:
        """The line on runs of which each failed; None where one did not, or none was made."""
        whys = [one.failure for one in self._ends]
        told = f"each of {len(whys)} runs failed"
        return f"{told}; the first: {whys[0]}" if whys and all(whys) else None

    def said(self, *, has_arrived: bool = False) -> list[str]:
        """Notes on all runs: how they are compared, which gave nothing, that none arrived.

        Where none did, also before, nothing is known of times to the target, whatever the hardware.
        """
        said = [f"{one}: nothing is known of it." for one in self.lost]
        for label, rule in [*self._diverged.items()][:1]:
            more = f", one of {len(self._diverged)}" if len(self._diverged) > 1 else ""
            said.append(f"{label}{more}: its learning rate is {rule}.")
        asked = (*self._asked.setup.schedules, *self._asked.beside)
        if len({isinstance(one, Solver) for one in asked}) > 1:
            said.append(f"{making.ASSUMPTION[0].upper()}{making.ASSUMPTION[1:]}.")
        return [*said, *([] if has_arrived else making.none_arrived(self._ends)), *self._advice]


def _apart(run: Run) -> float:
    """By what share later epochs of a run differ from its first at most; 0 of less than is told."""
    ends_s = run.epochs["time_s"]
    most = (ends_s.diff() / ends_s.iloc[:1].sum() - 1).abs().max()
    return float(most) if most > APART_MIN else 0.0  # it may be NaN


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
