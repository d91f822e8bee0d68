"""Forecast: every schedule on the same model, cluster and seeds, in one table.

The CC ratio. Source: Wongpanich, You and Demmel, "Rethinking the value of asynchronous solvers for
distributed deep learning", 2020, Section 4.6: operations to process a sample, over parameters.
Operations are the FLOP of the forward pass, 2 for each multiplication with its addition. Beside
that column of the model's stand `ranks`, the copies of it under a solver, and `servers`, the
workers that hold no copy but the weights that ranks share; a schedule has 1 and 0.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Final, Literal

import pandas as pd
from annotated_types import Ge, Gt, Le

from ampsim.arguments import checked
from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError, OptionError, UnknownNameError, one_of
from ampsim.forecasting.budget import Allowance, Spending, Spent, flop_per_item, placed_alike
from ampsim.forecasting.change import (
    PARTS_STAY,
    SEEDS_DIFFER,
    contenders,
    what_each_buys,
    what_would_change,
)
from ampsim.forecasting.intervals import sentences_of, with_devices
from ampsim.forecasting.making import (
    ASSUMPTION,
    MAX_REPEATS,
    ForecastRuns,
    Looks,
    OnRow,
    RunMaker,
    beside_each_other,
    entries_of,
    looks_of,
    require_fit,
    run_rows,
    with_spreads,
)
from ampsim.forecasting.settings import BY_DECAY, IN_FLIGHT
from ampsim.forecasting.tuning import Tuned, Tuner, no_trials, require_budget
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule, Search, free_products
from ampsim.options import REPEATS_MAX, Count, Seed
from ampsim.output_folder import Saveable
from ampsim.report.frames import LABELS
from ampsim.report.table import answer_cells
from ampsim.runs.jobs import ExecutorLike, opened
from ampsim.runs.ranking import Sureness
from ampsim.runs.rows import plain_row, row_of, table_of
from ampsim.runs.run import Run, RunTable
from ampsim.runs.store import RunCache
from ampsim.runs.task import Row, RunPlan
from ampsim.study.learning_rates import Rate, Scaling
from ampsim.study.model import Model, options_of
from ampsim.study.placement_advice import Advice, advice_on, warn
from ampsim.study.placement_trials import Trials
from ampsim.study.process_settings import fixed_settings
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.provenance import (
    cluster_origin,
    costs,
    model_origin,
    own_version,
    schedule_origin,
    software,
)
from ampsim.study.schedule_names import labels_of
from ampsim.study.simulation import (
    ClusterLike,
    Mode,
    ModelLike,
    PlacementLike,
    RunOptions,
    SchedulesLike,
    cluster_of,
    model_of,
    schedules_of,
)
from ampsim.text import html_table


def cc_ratio(model: Model) -> float | None:
    """FLOP of a forward pass, an item of the first training batch in the mean, over parameters.

    Returns:
        None where that FLOP is unknown, as `flop_per_item` says, or there are no parameters.

    Raises:
        OptionError, SimulationError: as of `flop_per_item`.
    """
    flop, graph = flop_per_item(model), model.graph()
    others = {copy for copies in graph.replica_groups for copy in copies[1:]}  # an item meets one
    count = sum(one.parameter_count for one in graph.parameterized if one not in others)
    return None if flop is None or not count else flop / count


def copies_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The columns of each row; the CC ratio is None where it is unknown."""
    known: dict[str, float | None] = {}
    found: list[dict[str, Any]] = []
    for row in rows:
        model, workers = row.plan.model, row.plan.cluster.workers
        key = repr(model_origin(model)) if model.origin else str(id(model))
        if key not in known:
            known[key] = None
            with contextlib.suppress(AmpsimError):  # as its runs say themselves
                known[key] = cc_ratio(model)
        found.append({**counts_of(row.schedule, workers), "cc_ratio": known[key]})
    return found


def counts_of(schedule: Schedule, workers: int) -> dict[str, int]:
    """Count the ranks and servers of a schedule or solver on so many workers."""
    if not isinstance(schedule, Solver):
        return {"ranks": 1, "servers": 0}
    ranks = schedule.ranks_on(workers) * schedule.copies_per_rank
    return {"ranks": ranks, "servers": schedule.server_count}


def manifest_of(plan: RunPlan, entries: Sequence[Row], runs: Sequence[Run]) -> dict[str, Any]:
    """Command, versions, seeds, hashes, costs and placement, as nested plain values."""
    options = plan.options
    placements = {run.label: run.placement for run in runs}
    names = {one.get("name") for one in placements.values()}
    return {
        **software(),
        "seeds": sorted({run.seed for run in runs}),
        "mode": options.mode,
        "target": "none" if options.target is None else options.target,
        "metric": plan.model.measure.kind,
        "max_epochs": plan.epochs,
        **({} if options.validate_every is None else {"validate_every": options.validate_every}),
        "model": model_origin(plan.model),
        "cluster": cluster_origin(plan.cluster),
        "schedules": [
            schedule_origin(one.schedule)
            | ({} if one.plan.rate == Rate() else one.plan.rate.columns(one.plan.model))
            for one in entries
        ],
        "placement": runs[0].placement if runs else options.placed.origin,
        **({"placements": placements} if len(names) > 1 or Search.name in names else {}),
        "costs": costs(plan.cluster, [one.schedule for one in entries]),
    }


MAX_EPOCHS: Final = 40
_FORMAT: Final = 1
BUDGET_S_MAX: Final = 1e7  # four months (chosen: nobody waits longer)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Forecast(RunTable, Saveable):
    """The result of `forecast`.

    Attributes:
        table: one row a schedule; unknown is missing (None or NaN), never 0.
        buys: with a budget, one row a number of the hardware that a row's time hangs on: schedule,
            what, share (how many percent longer it takes where that costs one percent more), change
            (of its time where it is twice as fast, its epochs held). Empty otherwise.
        runs: every run, in order.
        target: value of `metric`, which has its unit, that is aimed at; None without one.
        model, cluster: their names; `workers` is how many there are.
        manifest: command, versions, seeds, hashes, costs, and the placement of the first run.
        interrupted: what was left out when Ctrl-C ended it; None otherwise.
        trials: one row a trial, those of one rate beside each other: schedule, learning_rate,
            factor (of the rate tried around), seed, epochs_to_target, time_to_target_s, is_chosen,
            best_accuracy, best_error, note; setting, optimizer where tried. Empty without tuning.
        lost: one sentence for each run that gave nothing, as its process died or it had no data.
        unreached: one sentence for each row that is not tuned, as no trial reached the target.
    """

    kind = "forecast"

    lost: tuple[str, ...] = ()
    trials: pd.DataFrame = field(default_factory=no_trials)
    unreached: tuple[str, ...] = ()

    @property
    def failures(self) -> list[str]:
        """One sentence for each run that failed, or gave nothing."""
        return [*super().failures, *self.lost]

    def contents(self) -> dict[str, str | bytes]:
        """Tables, figures and pages."""
        from ampsim.report.page.folders import contents_of

        return contents_of(self)

    def origin(self) -> dict[str, Any]:
        """Format, command, versions, seeds, hashes, costs, and the placement of the first run."""
        return {"format": _FORMAT, **self.manifest}

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.table.get("schedule", ()))) or "no row finished"
        return f"Forecast({self.model} on {self.cluster}: {names}; {len(self.runs)} runs)"

    def _repr_html_(self) -> str:
        """The columns of the terminal's answer; every other and every digit is in `table`."""
        headings, *rows = answer_cells(self.table, self.target)
        aim = "" if self.target is None else f", target {self.metric.target_text(self.target)}"
        caption = f"{self.model} on {self.cluster}{aim}"
        return html_table(caption, rows, headings=headings, note=self.interrupted or "")


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
    keeping: RunCache | None = None,
    scale_rate: Scaling | None = None,
    tune: int | None = None,
    sure: Annotated[float, Ge(0.5), Le(0.999)] | None = None,
    max_repeats: Annotated[int, Ge(1), Le(REPEATS_MAX)] = MAX_REPEATS,
    validate_every: Count | None = None,
    budget_s: Annotated[float, Gt(0), Le(BUDGET_S_MAX)] | None = None,
    fixed: Sequence[str] = (),
    executor: ExecutorLike = None,
    run_limit_s: Annotated[float, Gt(0)] | None = None,
    on_run: OnRow | None = None,
) -> Forecast:
    """Run each schedule until validation reaches `target`, and compare.

    With `budget_s` each row is tuned alike first, and run with as many seeds as the answer needs,
    as far as the budget goes (`ampsim.forecasting.budget`); without it rows run as they are.

    Ctrl-C ends a forecast early: what finished is returned, and `interrupted` says what did not.
    A run whose loss or weights stop being finite ends alone, its row says so; so does one that
    cannot begin, as without data for its seed, or whose process dies, which `failures` says.

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
        jobs: runs to make at a time, each in a process of its own; what they give is the same.
        on_progress: told whenever an instance finishes, after each epoch, and when a run ends.
        keeping: where finished runs are kept and those of an earlier call are taken from, as under
            `ampsim forecast --out`; they then have no `result`. None keeps none.
        scale_rate: how a row's learning rate grows with the gradients of which its schedule's
            updates take the mean: "linear", "sqrt" or "none"; None for the rule of the optimizer
            (`ampsim.study.learning_rates`).
        tune: how many learning rates each row tries, around its own, before rows are compared
            with the best of each (`ampsim.forecasting.tuning`); None tries none.
        sure: go on with more repeats until it is this sure which row is best, or `max_repeats`
            are made (`ampsim.forecasting.making`); None makes `repeats`.
        max_repeats: runs of each schedule at most, with `sure` and without `budget_s`.
        validate_every: as of `simulate`.
        budget_s: seconds of two processors to spend on tuning, then on seeds; counted in work, so
            that the answer is the same on every machine. `repeats` above 1 is then the number of
            seeds. None tunes nothing, and makes `repeats` runs.
        fixed: names of options of the model, "max_active_keys", also of one row as "amp:8", and
            "placement", that `budget_s` does not tune, beside those that are not as by default.
        executor: in place of `jobs`: a `concurrent.futures.Executor`, a `distributed.Client`,
            "dask:ADDRESS", "dask:FILE" or "dask"; runs have no `result` then (`many-runs`).
        run_limit_s: seconds that a run may take; one that takes longer is ended, and `failures`
            says so. None for no limit.
        on_run: told of each run of a row, made or kept, as soon as it is there (`stream`).

    Raises:
        OptionError: an option has a value that it cannot have, or a schedule does not fit the
            model's graph or the cluster, or the executor is none; nothing has run then.
        UnknownNameError: no placement has such a name.
        FileFormatError: a placement file does not fit graph or cluster.
        SimulationError, ExecutorError: every process that made runs died, or the executor did.
    """
    model, cluster, schedules = model_of(model), cluster_of(cluster), schedules_of(schedules)
    target = model.measure.require_target(target)
    target = model.target if target is None else target
    options = RunOptions(
        epochs=max_epochs, mode=mode, instances=instances, target=target,
        placement=placement, validate_every=validate_every,
    )  # fmt: skip
    plan = RunPlan(model, cluster, options)
    _require_compared(plan, sure, tune, budget_s, fixed)
    looks = looks_of(len(schedules), repeats, None if budget_s else sure, max_repeats)
    rates = None if tune is None else require_budget(tune)
    placements = require_fit(plan, schedules, seed, on_progress)
    rows = zip(entries_of(plan, schedules, scale_rate), placements, strict=True)
    entries = [replace(row, plan=row.plan.having(placement=placed)) for row, placed in rows]
    trials, advice, said = Trials(model, cluster, instances, max_epochs), None, list[str]()
    if placement is None and budget_s is not None and "placement" not in fixed:
        entries, said = placed_alike(entries, trials, seed)
    elif placement is None:
        advice = advice_on(trials, schedules, seed=seed)
        warn(advice)
    with opened(jobs if executor is None else executor, jobs, run_limit_s) as makes:
        maker = RunMaker(makes, on_progress, keeping)
        if budget_s is None:
            tuned = Tuned(tuple(entries), no_trials())
            if rates is not None:
                tuned = Tuner(entries, seed, plan.goal, maker).tune(rates)
            spent = _as_asked(tuned, looks, seed, maker, on_run)
        else:
            budget = Allowance(budget_s, tuple(fixed), scale_rate, repeats, sure)
            spent = Spending(entries, budget, seed, maker, on_run).spend()
        spent = replace(spent, made=with_spreads(spent.tuned.entries, spent.made, seed, maker))
    changes, buys = ([], pd.DataFrame()) if budget_s is None else _changes(spent.tuned, spent.made)
    told = {"budget": [*said, *spent.said], "changes": changes}
    return replace(_collect(plan, spent, told, seed=seed, advice=advice), buys=buys)


def _require_compared(
    plan: RunPlan, sure: float | None, tune: int | None, budget_s: float | None,
    fixed: Sequence[str],
) -> None:  # fmt: skip
    """Check that there are times to compare where something is to be sure of them.

    Raises:
        OptionError: there are none, or two options say how much is tuned.
        UnknownNameError: one of `fixed` names no option.
    """
    known = {*BY_DECAY, IN_FLIGHT, "placement", *(of.name for of in options_of(plan.model.config))}
    for name in (one for one in fixed if one not in known and ":" not in one):
        raise UnknownNameError(one_of("option to be fixed", name, known))
    if fixed and budget_s is None:
        raise OptionError("fixed is what budget_s leaves alone; give budget_s=60, or leave it out")
    what = "sure" if budget_s is None else "budget_s"
    asks, is_asleep = sure is not None or budget_s is not None, plan.options.mode == "sleep"
    if asks and (plan.options.target is None or is_asleep):
        none = "none in mode sleep; take numeric" if is_asleep else "none; give a target"
        raise OptionError(
            f"{what} compares times to a target, and there is {none}, or repeats instead"
        )
    if budget_s is not None and tune is not None:
        raise OptionError("budget_s tunes all that a row needs; leave tune out, or budget_s")


def _as_asked(
    tuned: Tuned, looks: Looks, seed: int, maker: RunMaker, on_run: OnRow | None
) -> Spent:
    """Rows, perhaps tuned, run as often as was asked."""
    made = ForecastRuns((), tuned.interrupted, ())
    if tuned.interrupted is None:
        maker.on_run = on_run or maker.on_run
        ran, made = run_rows(tuned.entries, looks, seed, maker)
        tuned = replace(tuned, entries=ran)
    return Spent(tuned, made, looks.sureness, ())


def _changes(tuned: Tuned, made: ForecastRuns) -> tuple[list[str], pd.DataFrame]:
    """Say what would change the answer, and tabulate what each number buys, of rows that ran.

    Nothing of a forecast that ended early.
    """
    plans = [one.plan for one in tuned.entries]
    varies = any(one.cluster.varies or one.epochs_differ for one in plans)
    if varies or made.interrupted is not None:
        return ["what would change it is unknown, as times vary"] * varies, pd.DataFrame()
    try:
        rows = contenders(tuned.entries, {of[0].label: of for of in made.rows})
        said, buys = what_would_change(tuned.entries, rows, tuned.trials), what_each_buys(rows)
        said += [SEEDS_DIFFER] * any(row.differs for row in rows)
    except KeyboardInterrupt:  # the answer is there
        return ["what would change it was not asked: interrupted"], pd.DataFrame()
    except AmpsimError as error:
        why = str(error).partition("; ")[0]  # without the remedy, which is of another question
        return [f"what would change it is unknown: {why}"], pd.DataFrame()
    shares_fairly = any(one.cluster.shares_fairly for one in plans)
    return said + [PARTS_STAY] * (shares_fairly and len(buys) > 0), buys


def _collect(
    plan: RunPlan, spent: Spent, told: Mapping[str, list[str]], *, seed: int, advice: Advice | None
) -> Forecast:
    tuned, made, sureness = spent.tuned, spent.made, spent.sureness
    goal, entries, lost = plan.goal, tuned.entries, [*tuned.lost, *made.lost]
    rows = _rows(goal, entries, made, sureness)
    unreached = tuple(f"{label}: not tuned: {why}" for label, why in tuned.untuned.items())
    runs = [run for row in made.rows for run in row]
    is_off = any(not one.plan.options.times_validation for one in entries)
    named = [*zip(rows, made.rows, strict=True)]
    gone = [one.label for one in entries if all(of[0].label != one.label for of in made.rows)]
    each = [{run.seed for run in of} for row, of in named if row["standing"] != "not compared"]
    shared = {"shared_seeds": len(set[int].intersection(*each))} if each else {}
    labelled = [{**row, "schedule": of[0].label} for row, of in named]
    spread = sentences_of(labelled, made.rows, made.spreads)
    assumed = [*([str(advice)] if advice else []), *unreached, *spread, *([ASSUMPTION] * is_off)]
    with fixed_settings():
        free = free_products(plan.model.bare_graph(), plan.cluster)
    more = {**told, "without_runs": gone, "lost_runs": lost, "free": free}
    manifest = {
        **manifest_of(plan, entries, runs),
        **(asdict(sureness) | shared if len(rows) > 1 else {}),
        **{key: of for key, of in more.items() if of},
        **({"assumptions": assumed} if assumed else {}),
    }
    return Forecast(
        table=table_of(rows), runs=tuple(runs), target=goal.target, metric=goal.metric,
        model=plan.model.name, cluster=plan.cluster.name, workers=plan.cluster.workers,
        manifest=manifest if runs else {**manifest, "seeds": [seed]}, trials=tuned.trials,
        interrupted=made.interrupted, lost=tuple(lost), unreached=unreached,
    )  # fmt: skip


def _rows(
    goal: Goal, entries: Sequence[Row], made: ForecastRuns, sureness: Sureness
) -> list[dict[str, Any]]:
    """The rows of the table."""
    by_label = {one.label: one for one in entries}
    mine = [by_label[of[0].label] for of in made.rows]
    schedules = [one.schedule for one in mine]
    names = labels_of(schedules, (*LABELS, "ranks"))
    rows = [
        {**row_of(name, goal, of), **one.plan.rate.columns(one.plan.model)}
        for name, of, one in zip(names, made.rows, mine, strict=True)
    ]
    rows = beside_each_other(goal, rows, schedules, made.rows, sureness)
    rows = with_devices(rows, made.rows, made.spreads)
    return [{**row, **of} for row, of in zip(rows, copies_of(mine), strict=True)]


def stream(
    model: ModelLike, cluster: ClusterLike, schedules: SchedulesLike, **options: Any
) -> Generator[Run, None, Forecast]:
    """Yield the runs of a forecast one by one, each as soon as it has ended.

    Who leaves the loop gives up the runs that are under way, when the next of them tells of its
    progress; those that ended before are kept if they were to be. A run at a learning rate that
    the scaling rule raised, which diverged, is followed by one of the same row and seed at the rate
    as given, which counts.

    Arguments are those of `forecast`, but for `on_run`, and so is what it raises.

    Returns:
        The forecast, as the value of the generator's StopIteration.

    Example:
        >>> import ampsim
        >>> arguments = ("rnn", "tflops-1", ["sequential", "amp"])
        >>> few = {"instances": 20, "max_epochs": 1, "executor": 2}
        >>> sorted(run.label for run in ampsim.stream(*arguments, **few))
        ['amp', 'sequential']
    """
    if "on_run" in options:
        raise OptionError("stream yields the runs that on_run would be told of; leave on_run out")
    ended: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
    is_left = threading.Event()
    on_progress: OnProgress | None = options.pop("on_progress", None)

    def tell(progress: Progress) -> None:
        if is_left.is_set():
            raise KeyboardInterrupt  # what ends a forecast early, and keeps what it has
        if on_progress is not None:
            on_progress(progress)

    def make() -> Forecast:
        try:
            told: dict[str, Any] = {**options, "on_progress": tell, "on_run": ended.put}
            return forecast(model, cluster, schedules, **told)
        finally:
            ended.put(None)

    with ThreadPoolExecutor(1, "ampsim-stream") as thread:
        made = thread.submit(make)
        try:
            while (run := ended.get()) is not None:
                yield run
            return made.result()
        finally:
            is_left.set()


def table_so_far(runs: Iterable[Run], goal: Goal) -> pd.DataFrame:
    """The rows of a forecast of which runs have ended, without what comparing them says.

    Of runs of one row and seed the last counts.
    """
    rows: dict[str, dict[int, Run]] = {}
    for run in runs:
        rows.setdefault(run.label, {})[run.seed] = run
    return table_of([row_of(label, goal, [*of.values()]) for label, of in rows.items()])


KEYS: Final = (
    "schedule", "max_active_keys", "min_update_interval", "replicas", "workers", "train_per_s",
    "valid_per_s", "epochs_to_target", "time_to_target_s", "time_to_target_low_s",
    "time_to_target_high_s", "utilisation", "staleness_mean", "staleness_max", "messages",
    "makespan_s",
)  # fmt: skip
"""The keys of a row that stay stable, in their order; others may follow."""

_COUNTS: Final = {
    "max_active_keys", "min_update_interval", "replicas", "workers", "epochs_to_target",
    "staleness_max", "messages", "repeats", "repeats_reached", "ranks", "servers", "seeds_needed",
}  # fmt: skip


def to_json(forecast: Forecast, *, seed: int, verdict: str = "") -> str:
    """Return the forecast as JSON text that ends with a newline.

    Under `epochs` stands each epoch of each run, under `validations` each validation if some are
    within epochs, and under `trials` what was tried by tuning, if anything.
    """
    within, trials = _of_runs(forecast, "validations"), forecast.trials.to_dict("records")
    content: dict[str, Any] = {
        "ampsim": own_version(), "model": forecast.model, "cluster": forecast.cluster, "seed": seed,
        **({"verdict": verdict} if verdict else {}),
        **({"lost_runs": forecast.lost} if forecast.lost else {}),
        **({"interrupted": forecast.interrupted} if forecast.interrupted else {}),
        "rows": [row_values(record) for record in forecast.table.to_dict("records")],
        "epochs": _of_runs(forecast, "epochs"),
        **({"validations": within} if within else {}),
        **({"trials": [plain_row(one, _COUNTS) for one in trials]} if trials else {}),
    }  # fmt: skip
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _of_runs(forecast: Forecast, name: Literal["epochs", "validations"]) -> list[dict[str, Any]]:
    """The rows of a table of all runs, each with whose it is."""
    return [
        {"schedule": run.label or run.schedule, "repeat": run.repeat, "seed": run.seed}
        | plain_row(record, _COUNTS)
        for run in forecast.runs
        for record in getattr(run, name).to_dict("records")
    ]


def row_values(record: dict[Any, Any]) -> dict[str, Any]:
    """The values of one row of a forecast's table, the keys that stay stable first."""
    keys = [*KEYS, *(key for key in record if key not in KEYS)]
    return plain_row({key: record.get(key) for key in keys}, _COUNTS)
