"""A method at work: a model on a cluster under a schedule, trained pass by pass.

Whatever in `study` trains, for a result, for a trial or to see whether it fits, does it through
`Training`: this is the one place that knows what a method of training needs to be put together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ampsim.clock import Clock, SimClock
from ampsim.hardware import Cluster
from ampsim.ir import Graph
from ampsim.model_parallel import Engine, PassReport, Schedule, average_replicas
from ampsim.study.model import Model
from ampsim.study.placing import job_of
from ampsim.study.process_settings import fixed_settings
from ampsim.trace import Recorder


class Training:
    """Passes over data, epoch by epoch; each step is taken with the settings of `fixed_settings`.

    Args:
        model: what is trained.
        graph: of the model, with its initial weights; the training changes them.
        cluster: on what.
        workers: for each node of the graph, the worker that hosts it.
        schedule: how.
        clock: whose time passes; a new virtual clock unless given.
        spans_kept: how many records of each kind to keep, from the first; None for all.
        is_abstract: shapes instead of numbers (`sleep` mode); None for that wherever control flow
            does not read values.
        counts_memory: whether what lies in the workers' memories is counted.
        seed: of what varies on the cluster; None for a trial in which nothing does.

    Attributes:
        recorder: what has happened.
        is_abstract: as it was chosen.

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
        clock: Clock | None = None,
        spans_kept: int | None = None,
        is_abstract: bool | None = None,
        counts_memory: bool = False,
        seed: int | None = None,
    ) -> None:
        """Put everything together; no time passes yet."""
        if is_abstract is None:
            is_abstract = not any(node.reads_values for node in graph.nodes)
        self.is_abstract = is_abstract
        self._graph = graph
        names = [node.name for node in graph.nodes]
        self.recorder = Recorder(names, cluster.workers, spans_kept, has_lanes=cluster.has_lanes)
        with fixed_settings():  # a wall clock's workers keep NumPy's settings of their start
            self._engine = Engine(
                job_of(model, graph),
                cluster,
                list(workers),
                schedule,
                clock=SimClock() if clock is None else clock,
                recorder=self.recorder,
                is_abstract=is_abstract,
                counts_memory=counts_memory,
                seed=seed,
            )

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Let `on_items` be called with the number of items of each instance that finishes."""
        self._engine.controller.on_finish = on_items

    def start_epoch(self, epoch: int) -> None:
        """Take the learning rate of `epoch`, counted from 0."""
        self._engine.updater.start_epoch(epoch)

    def train(self, batches: Iterable[Any], count: int | None = None) -> PassReport:
        """Train on `batches`, or the first `count` of them; then let replicas have one mean.

        Raises:
            SimulationError: the run cannot go on.
        """
        report = self.train_part(itertools.islice(batches, count))
        self.average_replicas()
        return report

    def train_part(self, batches: Iterable[Any]) -> PassReport:
        """Train on `batches`, a part of a pass: replicas stay as they are.

        Raises:
            SimulationError: the run cannot go on.
        """
        with fixed_settings():
            return self._engine.run_pass(batches, is_training=True)

    def average_replicas(self) -> None:
        """Let replicas have one mean, as at the end of an epoch."""
        average_replicas(self._graph)

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Send `batches` through the graph, and learn nothing.

        Raises:
            SimulationError: the run cannot go on.
        """
        with fixed_settings():
            return self._engine.run_pass(batches, is_training=False)
