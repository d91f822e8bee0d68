"""A method at work: a model on a cluster under a schedule, trained pass by pass.

Whatever in `study` trains, for a result, for a trial or to see whether it fits, does it through
`Training`: this is the one place that knows what a method of training needs to be put together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from ampsim.data_parallel import CENTRE, Solver, SolverEngine
from ampsim.hardware import Cluster
from ampsim.ir import Graph
from ampsim.model_parallel import (
    Engine,
    Observer,
    PassReport,
    RunSettings,
    Schedule,
    average_replicas,
)
from ampsim.study.model import Model
from ampsim.study.placing import job_of
from ampsim.study.process_settings import fixed_settings
from ampsim.study.validations import Parts
from ampsim.trace import Recorder

Later: TypeAlias = Callable[[int], Iterable[Any]]
"""``later(epoch)`` gives the batches of an epoch, counted from 0."""

Part: TypeAlias = tuple[PassReport, bool]
"""What a part of a pass over the training data did, and whether the pass ends with it."""


class Method(Protocol):
    """One family of methods at work."""

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Call `on_items` with the number of items of each instance that finishes."""
        ...

    def expect(self, batches_of: Callable[[int], float]) -> None:
        """Know how many batches each epoch has, for learning rates that change within it."""
        ...

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[Part]:
        """Train on an epoch's batches, as of `Training.parts`."""
        ...

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Measure, and learn nothing."""
        ...


class ModelParallel:
    """One copy of a model under a schedule.

    Args:
        engine: makes the passes.
        graph: what it trains.
        observer: what validates, on a graph of its own, so that no virtual time passes; None for
            the engine itself.
    """

    def __init__(self, engine: Engine, graph: Graph, observer: Observer | None) -> None:
        self._engine, self._graph, self._observer = engine, graph, observer
        self._end_s = 0.0
        self._batches_of: Callable[[int], float] = lambda _epoch: math.inf
        self._epoch, self._before = -1, 0

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """As of `Method`."""
        self._engine.controller.on_finish = on_items
        if self._observer is not None:
            self._observer.tell_items(on_items)

    def expect(self, batches_of: Callable[[int], float]) -> None:
        """As of `Method`."""
        self._batches_of = batches_of

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[Part]:
        """As of `Method`; what is in flight finishes where a part ends."""
        parts = Parts(batches, every)
        while not parts.is_over:
            report = self._train(epoch, parts.next_part())
            yield report, parts.is_over

    def _train(self, epoch: int, batches: Iterable[Any]) -> PassReport:
        controller = self._engine.controller
        if epoch != self._epoch:
            self._epoch, self._before = epoch, controller.admitted.count
        first = controller.next_instance - (controller.admitted.count - self._before)
        self._engine.updater.start_epoch(epoch, first, self._batches_of(epoch))
        report = self._engine.run_pass(batches, is_training=True)
        self._end_s = report.end_s
        return report

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """As of `Method`, on the same devices and clock unless there is an observer."""
        if self._observer is None:
            return self._engine.run_pass(batches, is_training=False)
        self._observer.adopt(self._graph.parameterized)
        return self._observer.validate(batches, self._end_s)


class DataParallel:
    """Copies of a model under a solver.

    Args:
        engine: trains them.
    """

    def __init__(self, engine: SolverEngine) -> None:
        self._engine = engine

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """As of `Method`."""
        self._engine.on_items = on_items

    def expect(self, batches_of: Callable[[int], float]) -> None:
        """As of `Method`."""
        self._engine.expect(batches_of)

    def parts(
        self, epoch: int, batches: Iterable[Any], every: int | None, later: Later | None
    ) -> Iterator[Part]:
        """As of `Method`; ranks stop at the end of an epoch alone, if there is no `later`."""
        is_over = False
        while not is_over:
            report = self._engine.train(epoch, batches, later, every)
            is_over = self._engine.has_ended_epoch
            yield report, is_over

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """As of `Method`, off the clock."""
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

    Attributes:
        recorder: what has happened.
        is_abstract: whether it is in `sleep` mode.

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
    ) -> None:
        """Put everything together; no time passes yet."""
        settings = RunSettings.of_trial(graph) if settings is None else settings
        self.is_abstract = settings.is_abstract
        self._graph = graph
        names = [node.name for node in graph.nodes]
        is_solver = isinstance(schedule, Solver)
        known = [*names, CENTRE] if is_solver else names
        self.recorder = Recorder(
            known, cluster.workers, settings.spans_kept, has_lanes=cluster.has_lanes
        )
        self._epoch = 0
        job, place = job_of(model, graph), (cluster, list(workers))
        how: dict[str, Any] = {"recorder": self.recorder, "settings": settings}
        with fixed_settings():  # a wall clock's workers keep NumPy's settings of their start
            if isinstance(schedule, Solver):
                made = SolverEngine(job, model.bare_graph, *place, schedule, **how)
                self._method: Method = DataParallel(made)
                self._engine: Any = made
            else:
                self._engine = Engine(job, *place, schedule, **how)
                observer = None
                if not settings.times_validation:
                    observer = Observer(job_of(model, model.bare_graph()), self.is_abstract)
                self._method = ModelParallel(self._engine, graph, observer)

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Let `on_items` be called with the number of items of each instance that finishes."""
        self._method.tell_items(on_items)

    def start_epoch(self, epoch: int) -> None:
        """Take the learning rate of `epoch`, counted from 0."""
        self._epoch = epoch

    def expect(self, batches_of: Callable[[int], float]) -> None:
        """Know how many batches each epoch has, for learning rates that change within it."""
        self._method.expect(batches_of)

    def train(
        self, batches: Iterable[Any], count: int | None = None, later: Later | None = None
    ) -> PassReport:
        """Train on `batches`, or the first `count` of them.

        Args:
            batches: of this epoch.
            count: how many of them; None for all.
            later: gives the batches of another epoch, for methods that go on from one epoch to the
                next; None where this epoch is the last so far.

        Raises:
            SimulationError: the run cannot go on.
        """
        ((report, _is_over),) = self.parts(itertools.islice(batches, count), None, later)
        self.average_replicas()
        return report

    def parts(
        self, batches: Iterable[Any], every: int | None, later: Later | None = None
    ) -> Iterator[Part]:
        """Train on `batches`, and say whenever it is time for a validation; the pass ends with one.

        Args:
            batches: of this epoch, each of ``batch.rows`` items.
            every: items after which a part ends, with the batch, deal or round that reaches them;
                None for one part.
            later: as of `train`.

        Raises:
            SimulationError: the run cannot go on.
        """
        made = self._method.parts(self._epoch, batches, every, later)
        while True:
            with fixed_settings():
                part = next(made, None)
            if part is None:
                return
            yield part

    def note_overtaken(self) -> None:
        """Let each transfer that has ended have its row, also where ranks are cut on their way."""
        if isinstance(self._engine, SolverEngine):
            self._engine.note_overtaken()

    def average_replicas(self) -> None:
        """Let replicas have one mean, as at the end of an epoch."""
        average_replicas(self._graph)

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Send `batches` through the graph, and learn nothing.

        Raises:
            SimulationError: the run cannot go on.
        """
        with fixed_settings():
            return self._method.validate(batches)


def resolved(schedule: Schedule, cluster: Cluster) -> Schedule:
    """The schedule itself; of a solver, with as many ranks as the cluster has room for.

    Args:
        schedule: any.
        cluster: on what it is to run.

    Raises:
        OptionError: ranks and servers do not fit the cluster.
    """
    if not isinstance(schedule, Solver):
        return schedule
    return replace(schedule, ranks=schedule.ranks_on(cluster.workers))
