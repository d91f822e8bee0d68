"""Making of the runs of a forecast: rows, seeds, what is kept already, and what fits.

Under a schedule validation is a pass over the data on the same devices, while training waits. Under
a solver ranks never stop for it, so that it has no time of its own. Where both stand in one table,
no row is charged for it: rows are compared, ranked and taken apart by their time of training.

Stopping at the first significant difference inflates false positives: each look is another chance.
So seeds are looked at a few times only, each time twice as many as before,
and each of K looks may call wrongly with a K-th of the probability that all together may
(Bonferroni). Every row has the same seeds at every look.

Short runs of a row, in mode "sleep", are made at the ends of its devices' intervals.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError, Failure, OptionError, SimulationError
from ampsim.forecasting.intervals import Spread, Spreading, Throughputs, ends_of
from ampsim.metric import Goal
from ampsim.model_parallel import Placement, RunSettings, Schedule, Settled
from ampsim.runs.executor import RunExecutor
from ampsim.runs.jobs import Listeners, OnLoss, Read, run_all, take_or_make
from ampsim.runs.ranking import Ranking, Sureness, seeds_needed
from ampsim.runs.rows import compared, is_draining_pipeline, ranked
from ampsim.runs.run import Run, run_of, whole_run_of
from ampsim.runs.store import RunCache, RunKey, known_by, named
from ampsim.runs.task import Row, RunPlan, Task
from ampsim.runs.witness import leading
from ampsim.study.learning_rates import Scaling, diverged_by_rule, rate_of
from ampsim.study.model import Model, digest_of
from ampsim.study.placement_advice import advice_on
from ampsim.study.placement_trials import OnTrial, Trials
from ampsim.study.progress import OnProgress, Progress, Tracker
from ampsim.study.provenance import data_files
from ampsim.study.result import Result
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import Simulation
from ampsim.study.training import Training
from ampsim.text import note_with
from ampsim.user_code import digest_of_value


def require_fit(
    plan: RunPlan, schedules: Sequence[Schedule], seed: int, on_progress: OnProgress | None = None,
    trials: Trials | None = None,
) -> list[Placement]:  # fmt: skip
    """Check that each schedule fits the model's graph, the cluster and the placement.

    Trainings are put together and thrown away: no time passes, and no data is read unless the
    placement asks for it; the trials of a placement that is searched for are told. Plans of one
    model and cluster may share `trials`.

    Returns:
        The placement of each schedule, found once for all its runs where no chance decides it.

    Raises:
        OptionError: one does not fit; the message says why.
        GraphError: the model's graph breaks a rule.
        FileFormatError: a placement file does not fit graph or cluster.
    """
    model, options = plan.model, plan.options
    if trials is None:
        trials = Trials(model, plan.cluster, options.instances, options.epochs, model.graph(seed))
    found: list[Placement] = []
    for schedule, label in zip(schedules, labels_of(schedules), strict=True):
        settings = RunSettings(is_abstract=plan.options.mode == "sleep")
        told = _told(on_progress, f"placement of {label}", plan.options.placed)
        found.append(trials.settled(plan.options.placed, schedule, told))
        workers = trials.place(found[-1], schedule, seed)
        Training(model, trials.graph, plan.cluster, workers, schedule, settings=settings)
    return found


def advised(plan: RunPlan, schedules: Sequence[Schedule], seed: int) -> list[str]:
    """Say what placement is faster on a plan's cluster; nothing, if it names one, or none is."""
    if plan.options.placement is not None:
        return []
    trials = Trials(plan.model, plan.cluster, plan.options.instances, plan.options.epochs)
    found = advice_on(trials, schedules, seed=seed)
    return [] if found is None else [f"On {plan.cluster.name}, {found}."]


def _told(on_progress: OnProgress | None, label: str, placement: Placement) -> OnTrial | None:
    """Return a listener to the trials of a placement's search; None where there is no search."""
    total = placement.origin.get("trials")
    if on_progress is None or total is None:
        return None
    return lambda trial: on_progress(Progress(label, 1, 1, 1, trial, total, None))


# What a table says of a schedule beside solvers.
OFF_THE_CLOCK: Final = "validation takes no time in this table, as under its solvers"
ASSUMPTION: Final = (  # what a manifest says of such a table
    "validation takes no virtual time in any row: solvers do not stop for it, so that schedules "
    "beside them do not either"
)


def times_validation(plan: RunPlan, schedule: Schedule, beside: Iterable[Schedule]) -> RunPlan:
    """The plan of one row of a table whose schedules are `beside`; a solver's stays as it is."""
    if isinstance(schedule, Solver) or not any(isinstance(one, Solver) for one in beside):
        return plan
    return plan.having(times_validation=False)


def beside_each_other(
    goal: Goal,
    rows: Sequence[dict[str, Any]],
    schedules: Sequence[Schedule],
    runs: Sequence[Sequence[Run]],
    sureness: Sureness | None = None,
) -> list[dict[str, Any]]:
    """Rows of one table, with what comparing them says, and notes on what their methods differ in.

    `rows` are as of `row_of`, with columns of their learning rates; `runs` has some of each.
    """
    found = compared(goal, rows, runs, sureness)
    has_solvers = any(isinstance(one, Solver) for one in schedules)
    for row, schedule in zip(found, schedules, strict=True):
        row["is_draining_pipeline"] = is_draining_pipeline(schedule)
        if has_solvers and not isinstance(schedule, Solver):
            row["note"] = note_with(row["note"], OFF_THE_CLOCK)
    return found


@dataclass(frozen=True, slots=True)
class ForecastRuns:
    """Runs of a forecast, and which are missing."""

    rows: tuple[tuple[Run, ...], ...]  # by schedule, repeats in order; none of them is empty
    interrupted: str | None  # what was left out when Ctrl-C ended it; None otherwise
    lost: tuple[str, ...]  # one sentence for each run that gave nothing
    spreads: tuple[Spreading, ...] = ()  # what intervals of devices do to each row, once known


Rated: TypeAlias = tuple[Throughputs, str | None]  # of a run, and why it ended early if it did


def rated(run: Result | Run, failure: str | None) -> Rated:
    """Read the throughputs off a short run."""
    return Throughputs(float(run.train_per_s), float(run.valid_per_s)), failure


OnRow: TypeAlias = Callable[[Run], None]  # takes a run that has ended, in the order of their ends


class RunMaker:
    """Makes a forecast's runs, or takes them from where they are kept; Ctrl-C ends that early."""

    def __init__(
        self, executor: RunExecutor, on_progress: OnProgress | None, keeping: RunCache | None
    ) -> None:
        self._executor, self._on_progress, self._keeping = executor, on_progress, keeping
        self.on_run: OnRow = lambda _run: None  # told of each run as soon as it has ended
        self._files: dict[int, tuple[Model, str, tuple[dict[str, str], ...]]] = {}

    def make(
        self, tasks: Sequence[Task], known: Sequence[RunKey] | None = None, *, is_more: bool = False
    ) -> ForecastRuns:
        """Make every run of `tasks`, a row's beside each other, kept under `known`.

        Raises:
            SimulationError: no run gave anything, nor did one before, as `is_more` says.
        """
        made: dict[int, Run] = {}
        lost: dict[int, str] = {}

        def keep(place: int, run: Run) -> None:
            made[place] = named(run, tasks[place])
            self.on_run(made[place])

        interrupted, listeners = None, Listeners(keep, lost.__setitem__, self._on_progress)
        try:
            if self._keeping is None:
                read = whole_run_of if self._executor.is_local else run_of
                run_all([*map(self._learning, tasks)], self._executor, listeners, read)
            else:
                known = known or [*map(self.known, tasks)]
                take_or_make(tasks, known, self._keeping, self._executor, listeners)
        except KeyboardInterrupt:
            left = [one.label for place, one in enumerate(tasks) if place not in made]
            interrupted = (
                f"interrupted: {len(left)} of {len(tasks)} runs did not finish "
                f"({', '.join(dict.fromkeys(left))})"
            )
        sentences = tuple(lost[one] for one in sorted(lost))
        if lost and not made and not is_more:
            error = SimulationError(sentences[0])
            if isinstance(sentences[0], Failure) and sentences[0].traceback:
                error.add_note(sentences[0].traceback)
            raise error
        rows: dict[str, list[Run]] = {}
        for place in sorted(made):
            rows.setdefault(tasks[place].label, []).append(made[place])
        return ForecastRuns(tuple(map(tuple, rows.values())), interrupted, sentences)

    def _learning(self, task: Task) -> Task:
        """A task of which nothing is kept; elsewhere, it is known to others all the same."""
        key = ""
        if not self._executor.is_local:
            with contextlib.suppress(OptionError):  # its model is of no file
                key = self.known(task).key
        return task.learning_in(self._learnings, key)

    @cached_property
    def _learnings(self) -> Path:
        """A folder for what runs learn, which goes with this maker, where no runs are kept."""
        made = Path(tempfile.mkdtemp(prefix="ampsim-"))
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return made

    def make_beside(
        self, tasks: Sequence[Task], on_read: Callable[[int, Any], None], read: Read = rated,
        on_loss: OnLoss = lambda _place, _sentence: None,
    ) -> None:  # fmt: skip
        """Make runs that belong to no row, and keep none of them, as of `run_all`."""
        run_all(tasks, self._executor, Listeners(on_read, on_loss, self._on_progress), read)

    def known(self, task: Task) -> RunKey:
        """Return the key under which a run is kept; what its model reads is hashed once.

        Raises:
            OptionError: its model is of no file, or was changed since.
        """
        model = task.plan.model
        if id(model) not in self._files:  # the model is held, so that its id stays its own
            self._files[id(model)] = (model, _code_of(model), data_files(model))
        _model, code, data = self._files[id(model)]
        placed = task.plan.options.placed
        where = [*placed.workers.items()] if isinstance(placed, Settled) else []
        code += digest_of_value(where, task.schedule, placed)  # a user's own, perhaps
        row = Row(task.label, task.schedule, task.plan, data=data, code=code)
        return known_by(row, [task.seed])[0]


def _code_of(model: Model) -> str:
    """Hashes of the file that the model was loaded from, and of the weights that it came with.

    Raises:
        OptionError: it was not, or was changed since.
    """
    first = model.origin.get("parameters", "")
    if not model.is_as_loaded or (digest_of(model.given) if model.given else "") != first:
        raise OptionError(
            f"finished runs are kept of models that load_model gave, not of {model.name}, which "
            "was made or changed in Python; leave keeping out"
        )
    options: Any = () if model.config is None else fields(model.config)
    held = [getattr(model.config, one.name) for one in options if one.name != "folder"]
    return model.origin["sha256"] + first + digest_of_value(held)


MAX_REPEATS: Final = 40
"""Runs of each row at most where they go on until the order is clear (chosen: three looks at the
default schedules)."""

_LOOKS_MAX: Final = 20


def entries_of(
    plan: RunPlan,
    schedules: Sequence[Schedule],
    scaling: Scaling | None = None,
    beside: Sequence[Schedule] = (),
) -> list[Row]:
    """The rows of a table, each with a label and a learning rate of its own.

    With schedules `beside`, rows are compared, too.
    """
    plans = [times_validation(plan, one, (*schedules, *beside)) for one in schedules]
    rates = [rate_of(plan.model, one, plan.cluster, plan.options, scaling) for one in schedules]
    parts = zip(labels_of(schedules), schedules, plans, rates, strict=True)
    return [Row(label, one, replace(own, rate=rate)) for label, one, own, rate in parts]


@dataclass(frozen=True, slots=True)
class Looks:
    """After how many runs of each row it is asked whether the order is clear."""

    counts: tuple[int, ...]  # growing; a single one where nothing is asked
    sureness: Sureness  # how sure a call must be at each of them


def looks_of(rows: int, repeats: int, sure: float | None, max_repeats: int) -> Looks:
    """When to look at so many rows.

    Raises:
        OptionError: so few runs could never be that sure, there is nothing to compare, or to end.

    >>> looks_of(3, 1, 0.9, 40).counts
    (7, 14, 40)
    """
    if sure is None:
        if max_repeats != MAX_REPEATS:
            given = f"and not what budget_s does, got {max_repeats}; give sure=0.9 alone"
            raise OptionError(f"max_repeats ends what sure goes on with, {given}, or leave it out")
        return Looks((repeats,), Sureness())
    if rows < 2:
        raise OptionError("sure compares schedules, got one; name several, or give repeats instead")
    found: Looks | None = None
    for count in range(1, _LOOKS_MAX):
        sureness = Sureness(sure, count)
        first = max(repeats, seeds_needed(rows, sureness))
        if first * 2 ** (count - 1) > max_repeats:
            break
        doubled = [first * 2**look for look in range(count)]
        found = Looks((*doubled[:-1], max_repeats), sureness)
    if found is None:
        needed, what = seeds_needed(rows, Sureness(sure)), "sure"
        why = f"fewer runs of {rows} schedules cannot be {sure:g} sure"
        if repeats > needed:
            needed, what, why = repeats, "repeats", "so many are asked for"
        raise OptionError(
            f"max_repeats must be >= {needed}, for {why}, got {max_repeats}; "
            f"raise it, or lower {what}"
        )
    return found


def ranking_of(
    entries: Sequence[Row], rows: Sequence[Sequence[Run]], sureness: Sureness
) -> Ranking | None:
    """Rank the rows that ran; None where nothing can be said."""
    rules = {one.label: one.plan.rate.rule for one in entries}
    goal = entries[0].plan.goal
    return ranked(goal, rows, [rules[of[0].label] for of in rows], sureness)


def run_rows(
    entries: Sequence[Row], looks: Looks, seed: int, maker: RunMaker,
    known: Mapping[str, tuple[Run, ...]] | None = None,
) -> tuple[tuple[Row, ...], ForecastRuns]:  # fmt: skip
    """Run each row until its order is clear, or as often as it may be.

    A row of which a run diverges at a learning rate that the scaling rule raised is run again at
    the rate as given, with all its seeds. `known` has runs that there are already, by row.

    Returns:
        The rows with the learning rates that they ran with, and their runs.
    """
    done, lost, made = 0, tuple[str, ...](), ForecastRuns((), None, ())
    rows: dict[str, tuple[Run, ...]] = {**{one.label: () for one in entries}, **(known or {})}
    there = {(run.label, run.seed) for of in rows.values() for run in of}
    for count in looks.counts:
        tasks = _tasks(entries, seed, range(done, count))
        left = [one for one in tasks if (one.label, one.seed) not in there]
        made = maker.make(left, is_more=any(rows.values()))
        done, lost = count, lost + made.lost
        for of_row in made.rows:
            rows[of_row[0].label] = (*rows[of_row[0].label], *of_row)
        given = where_diverged(entries, rows)
        if given and not made.interrupted:
            made = maker.make(_tasks([*given.values()], seed, range(count)), is_more=True)
            lost += made.lost
            rows |= (again := {of_row[0].label: of_row for of_row in made.rows})
            entries = [given[one.label] if one.label in again else one for one in entries]
        ranking = ranking_of(entries, [one for one in rows.values() if one], looks.sureness)
        if made.interrupted or (ranking is not None and ranking.is_clear):
            break
    ordered = (tuple(sorted(one, key=lambda run: run.seed)) for one in rows.values() if one)
    made = replace(made, rows=tuple(ordered), lost=lost)
    return tuple(entries), made


def where_diverged(entries: Sequence[Row], runs: Mapping[str, Sequence[Run]]) -> dict[str, Row]:
    """The rows, at the rate as given, of which a run diverged at the rate of the scaling rule."""
    return {
        one.label: one.at(one.plan.rate.as_given(one.plan.model)) for one in entries
        if any(diverged_by_rule(run.failure) for run in runs[one.label])
    }  # fmt: skip


class RunEnd(NamedTuple):
    """The end of a run, kept to say whether any arrived: a run itself has its trace."""

    goal: Goal
    is_reached: bool
    best: float | None  # value of the metric
    epochs: int
    failure: str | None  # why it ended early


def end_of(goal: Goal, run: Run) -> RunEnd:
    """Take down how a run ended."""
    looks = run.looks[goal.metric.kind]
    is_reached = goal.target is None or goal.reached_by(looks) is not None
    return RunEnd(goal, is_reached, goal.metric.best(looks), len(run.epochs), run.failure)


def none_arrived(ends: Sequence[RunEnd]) -> list[str]:
    """Sentences if no run reached its target, and why runs failed; none if one did, or has none."""
    if any(one.is_reached for one in ends):
        return []
    failed = [one.failure for one in ends if one.failure]
    told = [f"{len(failed)} of {len(ends)} runs failed, the first: {failed[0]}."] if failed else []
    ends = [one for one in ends if not one.failure]
    most = max((one.epochs for one in ends), default=0)
    bests = [one.best for one in ends if one.best is not None]
    return told + [
        f"No run reached {goal.text} within {most} epoch{'s' * (most != 1)}; the best "
        f"{goal.metric.kind} was {goal.score_text(goal.metric.best(bests))}. Give another "
        "target, more epochs, or other options of the model."
        for goal, *_rest in ends[-1:]
    ]


def _tasks(entries: Sequence[Row], seed: int, repeats: range) -> list[Task]:
    return [
        one.task(seed + repeat, repeat + 1, repeats.stop) for one in entries for repeat in repeats
    ]


# Training instances of a short run at least (chosen: as `ampsim calibrate table` takes by default).
TRAINED_MIN: Final = 40

VALIDATED: Final = 20  # its validation instances

EndRuns: TypeAlias = tuple[Spreading, Sequence[Task]]
"""What is known of a row before its short runs, and these: at the numbers themselves, then at each
end; none where it cannot run shortly, or where none of its devices says an interval."""


def end_runs(entry: Row, seed: int) -> EndRuns:
    """The short runs of a row."""
    ends = tuple(ends_of(entry.plan.cluster))
    if not ends:
        return None, ()
    if entry.plan.cluster.varies or entry.plan.epochs_differ:
        return Spread(ends, why="times vary, so that short runs tell nothing of whole ones"), ()
    try:
        base = short_task(entry, seed)
    except AmpsimError as error:
        return Spread(ends, why=str(error)), ()
    plans = ((end, replace(base.plan, cluster=end.on(base.plan.cluster))) for end in ends)
    at_ends = (replace(base, plan=plan, label=f"{entry.label} at {end}") for end, plan in plans)
    return Spread(ends), (base, *at_ends)


def short_task(entry: Row, seed: int) -> Task:
    """A run of a row's leading instances in time alone, at its devices' numbers.

    Raises:
        AmpsimError: mode "sleep" cannot run the row.
    """
    whole = replace(entry, label=f"{entry.label} at its devices' numbers").task(seed)
    whole = whole.having(mode="sleep", epochs=1, target=None, validate_every=None)
    whole.simulation(Tracker(None, entry.label))
    model = leading(entry.plan.model, *leading_of(entry))
    return replace(whole, plan=replace(whole.plan, model=model))


def traced(row: Row, seed: int) -> Result:
    """An epoch of a row in mode "sleep", with all of its records."""
    plan = row.plan
    options = replace(
        plan.options, seed=seed, mode="sleep", target=None, spans_kept=None, counts_memory=True
    )
    simulation = Simulation(plan.model, plan.cluster, row.schedule, options)
    simulation.run_epoch()
    return simulation.result()


def leading_of(entry: Row) -> tuple[int, int]:
    """Training and validation instances of a row's short runs.

    The former are twice as many as may be in flight; under a solver, as many as all ranks take up
    to their second exchange, so that these take the share of time that they take in a long run.
    """
    schedule = entry.schedule
    count = max(TRAINED_MIN, 2 * (schedule.admission.in_flight_max or 1))
    if isinstance(schedule, Solver):
        each = schedule.batches_per_assignment * schedule.assignments_per_exchange
        count = max(count, 2 * schedule.ranks_on(entry.plan.cluster.workers) * each)
    return count, VALIDATED


def with_spreads(
    entries: Sequence[Row], made: ForecastRuns, seed: int, maker: RunMaker
) -> ForecastRuns:
    """A forecast's runs with what the intervals of its devices do to each row."""
    by_label = {one.label: one for one in entries}
    runs = [end_runs(by_label[of[0].label], seed) for of in made.rows]
    found: dict[int, Rated] = {}
    try:
        maker.make_beside(tasks_of(runs), found.__setitem__)
    except KeyboardInterrupt:
        unknown = [of and Spread(of.ends, why="Ctrl-C came first") for of, _tasks in runs]
        told = made.interrupted or "interrupted: short runs at the ends of intervals did not finish"
        return replace(made, spreads=tuple(unknown), interrupted=told)
    every = [found.get(place) for place in range(len(tasks_of(runs)))]
    return replace(made, spreads=tuple(gathered(runs, every)))


def tasks_of(runs: Sequence[EndRuns]) -> list[Task]:
    """The short runs of all rows."""
    return [task for _of, tasks in runs for task in tasks]


def gathered(runs: Sequence[EndRuns], made: Sequence[Rated | None]) -> list[Spreading]:
    """Gather what the runs of each row say, of all that came of the tasks of `tasks_of`."""
    left = iter(made)
    return [of and _gathered(of, list(itertools.islice(left, len(tasks)))) for of, tasks in runs]


def _gathered(spread: Spread, made: Sequence[Rated | None]) -> Spread:
    for one in made:
        rate, failure = one or (Throughputs(1.0, 1.0), "the process of a short run died")
        if not failure and not 0 < rate.train_per_s < math.inf:
            failure = "nothing takes time in its short runs"
        if failure:
            return replace(spread, why=failure)
    return replace(spread, rates=tuple(one[0] for one in made if one is not None))
