"""A run: what is trained on what, how, for how long; and its epochs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from ampsim.arguments import check_fields, checked
from ampsim.clock import Clock, SimClock
from ampsim.data_parallel import Solver, with_groups
from ampsim.dataflow import OfProgram
from ampsim.errors import OptionError, SimulationError
from ampsim.hardware import Cluster, load_cluster
from ampsim.metric import Goal
from ampsim.model_parallel import PassReport, Placement, RunSettings, Schedule, placement_of
from ampsim.model_parallel.job import data_told
from ampsim.optim import within_epochs
from ampsim.options import Count, Seed
from ampsim.study.apart import Learning, Subject, digest_of_graph, learning_digest, why_live
from ampsim.study.loading import load_model
from ampsim.study.model import Model, parameters_of
from ampsim.study.outages import outage_table
from ampsim.study.placement_advice import Advice, advice_on
from ampsim.study.placement_trials import DEFAULT, Trials
from ampsim.study.process_settings import fixed_settings
from ampsim.study.progress import Tracker
from ampsim.study.provenance import origin_of
from ampsim.study.read_off import crossings_of
from ampsim.study.result import Result
from ampsim.study.schedule_names import schedules_of as schedules_named
from ampsim.study.training import PROBE_SEED, EpochTotals, Training, resolved, validations
from ampsim.trace import Columns, LatestStep, OnRows

ModelLike: TypeAlias = Annotated[
    Model | str | os.PathLike[str], "a model, or the name or path of one"
]
ClusterLike: TypeAlias = Annotated[
    Cluster | str | os.PathLike[str], "a cluster, or the name or path of one or of a device"
]
ScheduleLike: TypeAlias = Annotated[
    Schedule | str, "a schedule such as ampsim.Amp(), or the name of one"
]
SchedulesLike: TypeAlias = Annotated[
    Sequence[ScheduleLike] | str, "a list such as [ampsim.Sequential(), ampsim.Amp()]"
]


def model_of(model: ModelLike) -> Model:
    """The model itself, or the one of that name or path."""
    return model if isinstance(model, Model) else load_model(model)


def cluster_of(cluster: ClusterLike) -> Cluster:
    """The cluster itself, or the one of that name or path."""
    return cluster if isinstance(cluster, Cluster) else load_cluster(cluster)


def schedule_of(schedule: ScheduleLike) -> Schedule:
    """The schedule itself, or the one of that name.

    Raises:
        OptionError: there are several names.
    """
    if not isinstance(schedule, str):
        return schedule
    made = schedules_named(schedule)
    if len(made) > 1:
        raise OptionError(f"schedule must be one, got {schedule!r}; forecast takes several")
    return made[0]


def schedules_of(schedules: SchedulesLike) -> list[Schedule]:
    """The schedules themselves, or those of the names.

    Raises:
        OptionError: there is none.
    """
    if isinstance(schedules, str):
        return schedules_named(schedules)
    if not schedules:
        raise OptionError("schedules must name at least one schedule, got none")
    return [schedule_of(one) for one in schedules]


def run_epochs(run: Simulation, epochs: int, goal: Goal, tracker: Tracker) -> None:
    """Run until `epochs` have ended, or one in which a value reaches the goal."""
    tracker.items_total = run.train_count + run.valid_count
    while run.epoch < epochs:
        tracker.on_epoch(run.run_epoch())
        if goal.reached_by(run.scores) is not None:
            return


Mode: TypeAlias = Literal["numeric", "sleep"]
PlacementLike: TypeAlias = Annotated[
    str | os.PathLike[str] | Placement,
    "a name such as 'balanced', the path of a .toml file of lines NODE = WORKER, or a Placement",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run, by the names that `simulate` takes, and who watches it.

    It learns "live", step by step as the clock goes, or "apart": by the order that the clock
    decided, afterwards; the numbers are the same to the bit. What cannot be, is live. Or "batched":
    apart, with messages that read the same weights as one product, where that is faster
    (`ampsim.learning.why_by_message`); the numbers are the same but for rounding.
    """

    epochs: Count = 1
    seed: Seed = 0
    mode: Mode = "numeric"
    instances: Count | None = None
    target: float | None = None
    placement: PlacementLike | None = None
    clock: Clock | None = None
    counts_memory: bool | None = None
    is_explained: bool = True  # whether `run_of` tells what bounds it, and its memory
    validate_every: Count | None = None
    spans_kept: int | None = None  # leading records of each kind that are kept; None for all
    times_validation: bool = True  # whether validation takes time; never under a solver
    light_is_free: bool = False  # as of `RunSettings`
    learning: Learning = "live"
    learnings: Path | None = None  # where what is learned apart is kept, and found by other runs
    repeats_passes: bool = False  # as of `RunSettings`, where learning is apart
    on_start: Callable[[Simulation], None] | None = None  # takes the run before its first epoch
    on_rows: OnRows | None = None  # takes the records chunk by chunk, as of `RunSettings`
    on_items: Callable[[int], None] | None = None  # takes the items of each instance that finishes

    @property
    def placed(self) -> Placement:
        """The placement; the default one where none is named."""
        return placement_of(DEFAULT if self.placement is None else self.placement)


class Simulation:
    """A run that can be taken epoch by epoch; `simulate` takes all at once.

    Args:
        model: what is trained; not changed.
        cluster: on what.
        schedule: how.
        options: all but `epochs`, `target` and `on_start`, which whoever takes the epochs minds.
        more: fields of `options`, instead of those that it has.

    Raises:
        OptionError: an option has a value that it cannot have.
        GraphError: the model's graph breaks a rule.
    """

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        schedule: Schedule,
        options: RunOptions | None = None,
        **more: Any,
    ) -> None:
        """Build graph, data and engine; no time passes yet."""
        options = replace(options or RunOptions(), **more)
        check_fields(options)
        seed, mode, placed, epochs = options.seed, options.mode, options.placed, options.epochs
        schedule = resolved(schedule, cluster)
        self._model, self.workers, self._schedule = model, cluster.workers, schedule
        self._seed, self._cluster, self._graph = seed, cluster, model.graph(seed)
        start = digest_of_graph(model, self._graph)
        self._data = model.data(seed, options.instances)
        self._error_scale = model.error_scale_of(self._data.given)
        data = self._data if seed == PROBE_SEED else None
        self._trials = Trials(model, cluster, options.instances, epochs, self._graph, data=data)
        placed = self._trials.settled(placed, schedule)
        workers = self._trials.place(placed, schedule, seed)
        self._subject = Subject(model, self._graph, self._data, seed, schedule, start)
        self._why_live = why_live(self._graph, cluster, schedule)
        is_apart = options.learning != "live" and mode == "numeric" and not self._why_live
        apart = self._subject.apart(options.learnings, options.learning) if is_apart else None
        settings = _settings_of(options, cluster, self._subject)
        self._training = Training(
            model, self._graph, cluster, workers, schedule, settings=settings, apart=apart
        )
        if options.on_items is not None:
            self._training.tell_items(options.on_items)
        self.train_count, valid_count = self._data.count("train"), self._data.count("valid")
        # items of an epoch, those of validation once for each
        self.valid_count = valid_count * validations(self.train_count, options.validate_every)
        pairs = zip(self._graph.nodes[1:], workers[1:], strict=True)  # the controller has no worker
        self._origin = {
            **origin_of(model, cluster, schedule, seed=seed, mode=mode),
            "items": {"train": self.train_count, "valid": valid_count},
            "placement": {**placed.origin, "workers": {node.name: at for node, at in pairs}},
        }
        if mode == "numeric":
            self._origin["arithmetic"] = "by message" if apart is None else apart.arithmetic
        self._apart, self._is_within_epoch, self.epoch = apart, False, 0  # how many have ended
        self.batches_grow = self._data.grows  # whether a later epoch may have larger ones
        self.scores: list[float] = []  # what each validation of the latest epoch measured
        self._options = replace(options, placement=placed)

    def advise(self, epochs: int) -> Advice | None:
        """Say, also in the origin, if another placement than the default would be faster.

        Args:
            epochs: how many there are to be, so that trials take half of their instances at most.
        """
        trained = epochs * self._data.batch_count("train")
        advice = advice_on(self._trials, [self._schedule], seed=self._seed, trained=trained)
        if advice is not None:
            self._origin["assumptions"] = [str(advice)]
        return advice

    def run_epoch(self) -> float:
        """Train on every item once, average the replicas, validate; return the model's metric.

        Returns:
            Validation accuracy in [0, 1], or error in the model's unit; NaN in mode "sleep".

        Raises:
            SimulationError: the run cannot go on; `result` still gives what was finished.
        """
        self._is_within_epoch = True
        self.scores = []
        epoch = EpochTotals()
        with fixed_settings(), data_told(self._model.pump, self._model.make_program, self._batches):
            batches, later = self._batches("train"), partial(self._batches, "train")
            parts = self._training.parts(self.epoch, batches, self._options.validate_every, later)
            for train, is_over in parts:
                if is_over:
                    self._training.average_replicas()
                valid = self._training.validate(self._batches("valid"))
                epoch.add(train, valid)
                self._note_validation(epoch, valid)
        self.epoch += 1
        self._is_within_epoch = False
        self._training.recorder.epochs.append((self.epoch, *epoch.row(self._error_scale)))
        return self.scores[-1]

    def _batches(self, split: Literal["train", "valid"], epoch: int | None = None) -> Iterator[Any]:
        """Batches of this epoch, or of another, for methods that do not wait for validation."""
        epoch = self.epoch if epoch is None else epoch
        return self._data.batches(split, epoch=epoch, seed=self._seed)

    def _note_validation(self, epoch: EpochTotals, valid: PassReport) -> None:
        """Record what was measured, when, and after how much of the epoch."""
        error = valid.totals.absolute_error * self._error_scale
        accuracy, trained = valid.totals.accuracy, epoch.trained.instances
        valid.totals.require_measured(self._model.measure, self._options.target)
        self.scores.append(accuracy if self._model.measure.is_rising else error)
        row = (
            self.epoch + trained / max(self.train_count, 1), valid.end_s,
            self.epoch * self.train_count + trained, valid.totals.loss, accuracy, error,
            valid.end_s - valid.start_s,
        )  # fmt: skip
        self._training.recorder.validations.append(row)

    def latest_steps(self, count: int) -> list[LatestStep]:
        """The last steps, at most so many, in the order of their ends; for a live view."""
        return self._training.recorder.latest_steps(count)

    @property
    def learnings_found(self) -> int:
        """Passes of training of which another run had learned what they gave."""
        return 0 if self._apart is None else self._apart.found

    @property
    def _learning_digest(self) -> str | None:
        chain = None if self._why_live else self._training.chain
        with contextlib.suppress(SimulationError):  # of data whose code fails, told by the run
            return None if chain is None else learning_digest(self._subject, chain)
        return None

    def result(self) -> Result:
        """Return what has happened so far."""
        recorder, origin = self._training.recorder, self._origin
        if isinstance(self._schedule, OfProgram) and self.workers > 1:
            used = max(len(set(recorder.placed.values())), 1)
            on = "the first" if used == 1 else f"{used}"
            told = f"{self._schedule.name} runs the program on {on} of {self.workers} devices"
            origin = origin if used == self.workers else {**origin, "assumptions": [told]}
        self._training.settle()
        return Result(
            model=self._model.told_by_config(given=parameters_of(self._graph)),
            schedule=self._schedule,
            workers=self.workers,
            origin=origin,
            recorder=recorder,
            outages=outage_table(self._cluster, self._seed, recorder),
            crossings=crossings_of(self._cluster),
            learning_digest=self._learning_digest,
            recount=self._recount,
            is_explained=self._options.is_explained,
        )

    @property
    def _recount(self) -> Callable[[], Columns] | None:
        """Return what counts memory afterwards; None where the run did, or is within an epoch."""
        options, is_counted = self._options, self._training.counts_memory
        if is_counted or options.counts_memory is False or self._is_within_epoch or not self.epoch:
            return None
        options = replace(
            options, mode="sleep", learning="live", counts_memory=True, spans_kept=0,
            on_rows=None, on_items=None, on_start=None,
        )  # fmt: skip
        return partial(counted, self._model, self._cluster, self._schedule, options, self.epoch)


def counted(
    model: Model, cluster: Cluster, schedule: Schedule, options: RunOptions, epochs: int
) -> Columns:
    """Run so many epochs; give what lay in the workers' memories, as columns of the recorder's."""
    run = Simulation(model, cluster, schedule, options)
    for _epoch in range(epochs):
        run.run_epoch()
    return run.result().recorder.columns("memory")


def _settings_of(options: RunOptions, cluster: Cluster, subject: Subject) -> RunSettings:
    """Build the settings that all parts of a run share.

    Memory is counted as chosen, or where it tells; else when somebody asks, if a run in mode
    "sleep" can tell (`counted`).
    """
    chosen, schedule, graph = options.counts_memory, subject.schedule, subject.graph
    if chosen is None:
        solvers = with_groups(schedule) if isinstance(schedule, Solver) else []
        reads_values = any(one.reads_values for one in (*graph.nodes, *solvers))
        needs_numbers = isinstance(schedule, OfProgram) or reads_values
        chosen = options.clock is not None or cluster.limits_memory
        chosen |= options.mode == "numeric" and needs_numbers
    settings = RunSettings(
        clock=SimClock() if options.clock is None else options.clock,
        is_abstract=options.mode == "sleep",
        counts_memory=chosen,
        seed=options.seed,
        times_validation=options.times_validation,
        light_is_free=options.light_is_free,
        repeats_passes=options.repeats_passes,
        spans_kept=options.spans_kept,
        on_rows=options.on_rows,
    )
    if not within_epochs(subject.model.optimizer.rate):
        return settings
    return replace(settings, batches_of=subject.data.epoch_batches)


@checked
def simulate(
    model: ModelLike,
    cluster: ClusterLike,
    schedule: ScheduleLike,
    *,
    epochs: Count = 1,
    seed: Seed = 0,
    mode: Mode = "numeric",
    instances: Count | None = None,
    target: float | None = None,
    placement: PlacementLike | None = None,
    clock: Clock | None = None,
    counts_memory: bool | None = None,
    validate_every: Count | None = None,
) -> Result:
    """Train `model` on `cluster` under `schedule` and return the trace and what was learned.

    Args:
        model: from `load_model`, or its name or path; not changed, see `Result.model`.
        cluster: from `load_cluster`, or its name or path.
        schedule: such as ``ampsim.Amp(max_active_keys=8)``, or its name.
        epochs: passes over the training data, each followed by one over the validation data.
        seed: of data, initial weights, order, placement, and what varies on the cluster; the same
            seed gives the same bits.
        mode: "numeric" computes everything; "sleep" keeps every control decision and every time
            but no numbers, so that losses and accuracies are NaN.
        instances: training items to use; None for all that the data set has.
        target: stop after the epoch in which validation accuracy, or error, reaches this.
        placement: which worker hosts which node: "paper", "balanced", "k-hop" ("3-hop" and so on),
            "communication-aware", "search", or the path of a TOML file with a line
            ``NODE = WORKER`` each. None is "paper", and where another one is faster
            ``result.origin["assumptions"]`` says so (`ampsim.study.placement_advice`).
        clock: a new virtual clock unless given; `ampsim.clock.WallClock` really waits.
        counts_memory: whether to count what lies in the workers' memories, for
            `Result.peak_bytes`. None is when somebody asks for it, by another run in mode "sleep",
            or at once on devices with `memory_bytes`, on a wall clock, and where control flow reads
            values.
        validate_every: also validate within an epoch, whenever so many training items have
            finished: what is in flight finishes first, gradients that wait are applied, and the
            pass over the validation data takes its time. Under a solver nothing stops and no time
            passes: its centre is validated as it was when all deals up to that one had been merged,
            or the round that had it. Each validation is a row of `Result.validations`; None
            validates at the end of each epoch only.

    Raises:
        OptionError: an option has a value that it cannot have.
        UnknownNameError: no placement has such a name.
        FileFormatError: a placement file does not fit graph or cluster.
        SimulationError: the run cannot go on: a loss or weight stopped being finite, a node
            failed, a memory overflowed, or nothing was left to do. Its `partial` is the `Result`
            so far.
    """
    model, cluster, schedule = model_of(model), cluster_of(cluster), schedule_of(schedule)
    target = model.measure.require_target(target)
    options = RunOptions(
        epochs=epochs, seed=seed, mode=mode, instances=instances, target=target,
        placement=placement, clock=clock, counts_memory=counts_memory,
        validate_every=validate_every,
    )  # fmt: skip
    simulation = Simulation(model, cluster, schedule, options)
    if placement is None:
        simulation.advise(epochs)
    try:
        run_epochs(simulation, epochs, Goal(model.measure, target), Tracker(None, schedule.name))
    except SimulationError as error:
        error.partial = simulation.result()
        raise
    return simulation.result()
