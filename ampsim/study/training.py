"""Training by a schedule or a solver: nodes placed, and validations between its parts.

Whatever in `study` trains, for a result, for a trial or to see whether it fits, does it through
`Training`: this is the one place that knows what a method of training needs to be put together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from ampsim.data_parallel import CENTRE, Solver, SolverEngine
from ampsim.dataflow import OfProgram, ProgramEngine
from ampsim.hardware import Cluster
from ampsim.ir import Graph
from ampsim.model_parallel import (
    Engine,
    Observer,
    PassReport,
    Probe,
    Repeater,
    RunSettings,
    Schedule,
    average_replicas,
    probe,
    repeater_of,
)
from ampsim.model_parallel.job import PassTotals
from ampsim.nodes.elementwise import Masks
from ampsim.study.apart import LearningApart, chained
from ampsim.study.model import Model, adopt_variables, job_of, variables_of
from ampsim.study.process_settings import fixed_settings
from ampsim.trace import Recorder

PROBE_SEED: Final = 0
"""Seed of the data on which placements are probed and tried, whatever the run's own: a placement
then belongs to model, cluster and schedule, and repeats differ in their learning alone (chosen)."""


def probe_of(model: Model, cluster: Cluster, batches: Iterable[Any]) -> Probe:
    """Measure instances on a cluster's device: costs, and what is sent, on a graph of their own."""
    job = job_of(model, model.graph(PROBE_SEED))
    with fixed_settings():
        return probe(job, cluster, batches)


def validations(train_count: int, every: int | None) -> int:
    """Count the validations of an epoch of so many training items.

    >>> validations(1000, None), validations(1000, 250), validations(1000, 300)
    (1, 4, 4)
    """
    return 1 if every is None else max(math.ceil(train_count / every), 1)


class Parts:
    """Batches of a pass in parts, each of which ends where another `every` items are reached."""

    def __init__(self, batches: Iterable[Any], every: int | None) -> None:
        self._batches = iter(batches)
        self._every = math.inf if every is None else every
        self._ahead: Any = None
        self._items = 0
        self.is_over = False  # whether nothing is left; a pass without any batch is one empty part

    def next_part(self) -> Iterator[Any]:
        """The batches of the next part; one batch more is taken, as it is the last without one."""
        until = (self._items // self._every + 1) * self._every
        batch = next(self._batches, None) if self._ahead is None else self._ahead
        while batch is not None and self._items < until:
            self._items += batch.rows
            yield batch
            batch = next(self._batches, None)
        self._ahead, self.is_over = batch, batch is None


@dataclass(slots=True)
class EpochTotals:
    """Sums over the parts of an epoch."""

    trained: PassTotals = field(default_factory=PassTotals)
    valid: PassTotals = field(default_factory=PassTotals)
    validated: int = 0
    train_s: float = 0.0
    valid_s: float = 0.0
    end_s: float = 0.0

    def add(self, train: PassReport, valid: PassReport) -> None:
        """Add a part of the training, and the validation after it."""
        self.trained.include(train.totals)
        self.valid = valid.totals
        self.validated += valid.totals.instances
        self.train_s += train.end_s - train.start_s
        self.valid_s += valid.end_s - valid.start_s
        self.end_s = valid.end_s

    def row(self, error_scale: float) -> tuple[float, ...]:
        """A row of the table of epochs, without the epoch."""
        trained, valid = self.trained, self.valid
        return (
            self.end_s, trained.loss, valid.accuracy, trained.instances, trained.accuracy,
            valid.loss, self.validated, self.train_s, self.valid_s,
            valid.absolute_error * error_scale, trained.absolute_error * error_scale,
        )  # fmt: skip


MASKED: Final = "masks by place in training"
"""Where digests of passes begin of a graph that has masks: the rule that these follow."""

Later: TypeAlias = Callable[[int], Iterable[Any]]
"""``later(epoch)`` gives the batches of an epoch, counted from 0."""

Part: TypeAlias = tuple[PassReport, bool]
"""What a part of a pass over the training data did, and whether the pass ends with it."""


class ModelParallel:
    """One copy of a model under a schedule.

    Args:
        engine: makes the passes.
        graph: what it trains.
        observer: what validates, on a graph of its own, so that no virtual time passes; None for
            the engine itself.
        apart: learns what the engine, which sleeps, decides; None where the engine itself learns.
        repeater: takes passes from tape that are as earlier ones; None where each is run.
        batches_of: as of `RunSettings`.
    """

    def __init__(
        self,
        engine: Engine,
        graph: Graph,
        observer: Observer | None,
        apart: LearningApart | None = None,
        repeater: Repeater | None = None,
        *,
        batches_of: Callable[[int], float],
    ) -> None:
        self._engine, self._graph, self._observer = engine, graph, observer
        self._apart, self._passes = apart, repeater or engine
        attributes = (one for node in graph.nodes for one in vars(node).values())
        self._masks = [one for one in attributes if isinstance(one, Masks)]
        self.chain = MASKED if self._masks else ""  # digest of the passes of training so far
        self._end_s, self._observed, self._batches_of = 0.0, 0, batches_of
        self._epoch, self._before, self._trained = -1, 0, 0

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """See `Training`."""
        if self._apart is not None:
            self._apart.replay.on_items = on_items
            return
        self._engine.controller.on_finish = on_items
        if self._observer is not None:
            self._observer.tell_items(on_items)

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[Part]:
        """See `Training`; what is in flight finishes where a part ends."""
        parts = Parts(batches, every)
        while not parts.is_over:
            yield self._train(epoch, parts.next_part()), parts.is_over

    def _train(self, epoch: int, batches: Iterable[Any]) -> PassReport:
        controller, updater = self._engine.controller, self._engine.updater
        first, validated = controller.next_instance, controller.next_instance - self._trained
        if epoch != self._epoch:
            self._epoch, self._before = epoch, self._trained
        start = epoch, self._before + validated, self._batches_of(epoch)
        updater.start_epoch(*start)
        for masks in self._masks:
            masks.validated = validated
        batches = batches if self._apart is None else list(batches)
        report = self._passes.run_pass(batches, is_training=True)
        self._end_s, self._trained = report.end_s, controller.next_instance - validated
        assert report.order is not None, "a pass of training has an order"
        rates = updater.rates(first, controller.next_instance)
        self.chain = chained(self.chain, report.order, epoch, rates, start[2])
        if self._apart is None:
            return report
        self._apart.replay.updater.start_epoch(*start)
        return replace(report, totals=self._apart.train(batches, report.order, self.chain))

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """See `Training`, on the same devices and clock unless there is an observer."""
        if self._apart is not None:
            return self._validate_apart(self._apart, batches)
        if self._observer is None:
            return self._passes.run_pass(batches, is_training=False)
        self._observer.adopt(self._graph.parameterized)
        return self._observer.validate(batches, self._end_s)

    def _validate_apart(self, apart: LearningApart, batches: Iterable[Any]) -> PassReport:
        """Measure apart; the engine, which sleeps, says how long it takes, if it takes any time."""
        taken, first = list(batches), self._observed
        report = PassReport(self._end_s, self._end_s, PassTotals())
        if self._observer is None:
            first = self._engine.controller.next_instance
            report = self._passes.run_pass(taken, is_training=False)
        self._observed += len(taken)
        return replace(report, totals=apart.validate(taken, first))


class OfPrograms:
    """A program; its variables are the parameters of a graph.

    Args:
        engine: makes the passes.
        graph: whose parameters they are; it has those of the program after each pass.
        batches_of: as of `RunSettings`.
    """

    def __init__(
        self, engine: ProgramEngine, graph: Graph, batches_of: Callable[[int], float]
    ) -> None:
        self._engine, self._graph, self._batches_of = engine, graph, batches_of

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """See `Training`."""
        self._engine.on_items = on_items

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[Part]:
        """See `Training`."""
        parts, count = Parts(batches, every), self._batches_of(epoch)
        epochs = (epoch + number / count for number in itertools.count())
        while not parts.is_over:
            report = self._engine.train(parts.next_part(), epochs)
            adopt_variables(self._graph, self._engine.parameters)
            yield report, parts.is_over

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """See `Training`, on the same devices and clock."""
        return self._engine.validate(batches)


class Training:
    """Passes over data, epoch by epoch; each step is taken with the settings of `fixed_settings`.

    Args:
        model: what is trained.
        graph: of the model, with its initial weights; the training changes them.
        cluster: on what.
        workers: for each node of the graph, the worker that hosts it.
        schedule: how; a solver trains copies of the model, and `workers` are those of the first.
        settings: of the run; those of a trial unless given.
        apart: learns, on `graph`, what the run decides in `sleep` mode; None where steps learn.

    Raises:
        OptionError: the schedule does not fit the graph or the cluster, or control flow reads
            values that there are not.
    """

    def __init__(
        self,
        model: Model,
        graph: Graph,
        cluster: Cluster,
        workers: Sequence[int],
        schedule: Schedule,
        *,
        settings: RunSettings | None = None,
        apart: LearningApart | None = None,
    ) -> None:
        """Put everything together; no time passes yet."""
        settings = RunSettings.of_trial(graph) if settings is None else settings
        if apart is not None:
            settings = replace(settings, is_abstract=True, keeps_order=True)
        self._apart = apart
        self.is_abstract, self.counts_memory = settings.is_abstract, settings.counts_memory
        self._graph = graph
        is_program = isinstance(schedule, OfProgram)  # which says its nodes itself
        names = [] if is_program else [node.name for node in graph.nodes]
        names += [CENTRE] * isinstance(schedule, Solver)
        self._method: ModelParallel | SolverEngine | OfPrograms
        self.recorder = Recorder(
            names, cluster.workers, settings.spans_kept, on_rows=settings.on_rows
        )
        place = (cluster, list(workers))
        how: dict[str, Any] = {"recorder": self.recorder, "settings": settings}
        with fixed_settings():  # a wall clock's workers keep NumPy's settings of their start
            if isinstance(schedule, OfProgram):
                program = ProgramEngine(
                    model.program, model.optimizer, variables_of(graph), cluster, schedule, **how
                )
                self._method = OfPrograms(program, graph, settings.batches_of)
            elif isinstance(schedule, Solver):
                job = job_of(model, graph)
                self._method = SolverEngine(job, model.bare_graph, *place, schedule, **how)
            else:
                self._graph = graph if apart is None else _asleep(model, graph)
                job = job_of(model, self._graph)
                engine, observer = Engine(job, *place, schedule, **how), None
                if not settings.times_validation:
                    observer = Observer(job_of(model, model.bare_graph()), self.is_abstract)
                repeater = repeater_of(engine, job, cluster, schedule, **how)
                self._method = ModelParallel(
                    engine, graph, observer, apart, repeater, batches_of=settings.batches_of
                )

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Let `on_items` be called with the number of items of each instance that finishes."""
        self._method.tell_items(on_items)

    def train(
        self, batches: Iterable[Any], count: int | None = None, *, epoch: int = 0
    ) -> PassReport:
        """Train on `batches` of an epoch, or the first `count` of them.

        Raises:
            SimulationError: the run cannot go on.
        """
        ((report, _is_over),) = self.parts(epoch, itertools.islice(batches, count), None)
        self.average_replicas()
        return report

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None = None
    ) -> Iterator[Part]:
        """Train on `batches`, and say whenever it is time for a validation; the pass ends with one.

        The learning rate is that of `epoch`, from 0. A part ends after `every` items, with the
        batch, deal or round that reaches them; None for one part. Methods that go on from one epoch
        to the next take another's batches from `later`; None where this epoch is the last so far.

        Raises:
            SimulationError: the run cannot go on.
        """
        made = self._method.parts(epoch, batches, every, later)
        while True:
            with fixed_settings():
                part = next(made, None)
            if part is None:
                return
            yield part

    def settle(self) -> None:
        """Let each transfer that has ended have its row, also where ranks are cut on their way.

        The graph has the weights of the moment then, also where they were learned elsewhere.
        """
        if isinstance(self._method, SolverEngine):
            self._method.note_overtaken()
        if self._apart is not None:
            self._apart.settle()
        self.recorder.flush()

    def average_replicas(self) -> None:
        """Let replicas have one mean, as at the end of an epoch."""
        average_replicas(self._graph)
        if self._apart is not None:
            self._apart.average()

    @property
    def chain(self) -> str | None:
        """Digest of the passes of training so far; None where no order is taken down."""
        return self._method.chain if isinstance(self._method, ModelParallel) else None

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Send `batches` through the graph, and learn nothing.

        Raises:
            SimulationError: the run cannot go on.
        """
        with fixed_settings():
            return self._method.validate(batches)


def _asleep(model: Model, graph: Graph) -> Graph:
    """A graph of the model for `sleep` mode, of which the weights are only looked at in size."""
    asleep = model.bare_graph()
    for node, learner in zip(asleep.parameterized, graph.parameterized, strict=True):
        node.adopt(learner.theta)
    return asleep


def resolved(schedule: Schedule, cluster: Cluster) -> Schedule:
    """The schedule itself; of a solver, with as many ranks as the cluster has room for.

    Raises:
        OptionError: ranks and servers do not fit the cluster.
    """
    if not isinstance(schedule, Solver):
        return schedule
    return replace(schedule, ranks=schedule.ranks_on(cluster.workers))
