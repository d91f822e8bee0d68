"""Placements tried: how fast training is with each, in time alone, and on the same data always."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from ampsim.data_parallel import Solver, cluster_of_rank
from ampsim.dataflow import OfProgram
from ampsim.errors import AmpsimError
from ampsim.hardware import HOST, Cluster
from ampsim.ir import Graph
from ampsim.model_parallel import (
    Placement,
    Probe,
    RunSettings,
    Schedule,
    Search,
    Settled,
    Situation,
    workers_by,
)
from ampsim.rng import stream
from ampsim.study.model import Model
from ampsim.study.training import PROBE_SEED, Training, probe_of
from ampsim.study.user_data import UserData

DEFAULT: Final = "paper"
"""Name of the placement where a user names none."""

FIRST: Final = 32
"""Instances of the first pass of a trial at least (chosen)."""

FILLED: Final = 4
"""And times as many as are in flight (chosen: at least half finish while the pipeline is full)."""

SEARCHED: Final = 4
"""Times as many instances in a trial of a search; the first pass alone where that is clearly slower
(chosen: moves that gain half a percent show)."""

CLEARLY: Final = 1.05
"""Times as long an instance takes in the first pass for the trial to end there (chosen)."""

OnTrial = Callable[[int], None]


class Timed:
    """One training in time alone, which goes on pass by pass.

    Args:
        trials: of what.
        schedule: how.
        workers: for each node, the worker that hosts it.
    """

    def __init__(self, trials: Trials, schedule: Schedule, workers: Sequence[int]) -> None:
        """Put it together; no time passes yet."""
        graph = trials.model.graph(PROBE_SEED)
        limits = trials.cluster.limits_memory
        settings = RunSettings.of_trial(graph, spans_kept=0, counts_memory=limits)
        self.has_ended = False  # whether the epoch has
        self._instances, self._seconds = 0, 0.0
        self._clock, self._passes = settings.clock, 0
        self._filling = trials.in_flight(schedule)
        self._batches = trials.batches()
        self._ends_s: list[float] = []
        self._training = Training(
            trials.model, graph, trials.cluster, workers, schedule, settings=settings
        )
        self._training.tell_items(lambda _items: self._ends_s.append(self._clock.now))

    @property
    def instance_s(self) -> float:
        """Seconds of an instance; infinity where none finished.

        What finishes while a pass fills or drains the pipeline is left out, unless an epoch is but
        one pass.
        """
        return self._seconds / self._instances if self._instances else math.inf

    def go_on(self, count: int) -> None:
        """Train on so many instances more, as far as the epoch has them."""
        self._ends_s.clear()
        report = self._training.train(self._batches, count, epoch=self._passes)
        self._passes += 1
        done, skipped = len(self._ends_s), self._filling
        self.has_ended = done < count
        if self._passes == 1 and self.has_ended:
            self._instances, self._seconds = done, report.end_s - report.start_s
        elif done > 2 * skipped:
            self._instances += done - 2 * skipped
            self._seconds += self._ends_s[-1 - skipped] - self._ends_s[skipped - 1]


class Trials:
    """Trials of placements of one model on one cluster; the data are those of `PROBE_SEED`.

    Args:
        model: what is trained; not changed.
        cluster: on what.
        instances: training items at most; None for all.
        epochs: of a run; where batches grow, those of the last are trained on.
        graph: of the model, where one is at hand; it is looked at, and not trained.
        data: of `PROBE_SEED`, where they are at hand.
    """

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        instances: int | None,
        epochs: int = 1,
        graph: Graph | None = None,
        *,
        data: UserData | None = None,
    ) -> None:
        self.model, self.cluster, self.epochs = model, cluster, epochs
        self._instances, self._given, self._data = instances, graph, data

    @cached_property
    def data(self) -> UserData:
        """The data set, read or made when first asked for."""
        return self._data or self.model.data(PROBE_SEED, self._instances)

    @cached_property
    def graph(self) -> Graph:
        """The graph of the model, made when first asked for."""
        return self._given or self.model.graph(PROBE_SEED)

    def in_flight(self, schedule: Schedule) -> int:
        """Instances that may be in flight at a time, or as many as there are heavy nodes."""
        if isinstance(schedule, Solver):
            return self.cluster.workers
        return max(1, schedule.admission.in_flight_max or len(self.graph.parameterized))

    def first_pass(self, schedule: Schedule) -> int:
        """Instances of a first pass: a multiple of those in flight, for schedules that drain."""
        in_flight = self.in_flight(schedule)
        return max(FILLED, -(-FIRST // in_flight)) * in_flight

    def batches(self) -> Iterator[Any]:
        """The training batches of an epoch."""
        epoch = self.epochs - 1 if self.data.grows else 0  # of the largest batches
        return self.data.batches("train", epoch=epoch, seed=PROBE_SEED)

    @cached_property
    def probe(self) -> Probe:
        """Return the costs of instances on the first device, and what they send."""
        return probe_of(self.model, self.cluster, self.batches())

    def place(self, placement: Placement, schedule: Schedule, seed: int) -> list[int]:
        """Return a worker for each node, in their order; of a solver, in the first copy.

        A program is on the first worker, whatever the placement.

        Raises:
            OptionError: ranks and servers of a solver do not fit the cluster.
        """
        if isinstance(schedule, OfProgram):
            return [HOST, *[0] * (len(self.graph.nodes) - 1)]
        return workers_by(placement, self._situation(schedule, stream(seed, "placement")))

    def _situation(self, schedule: Schedule, generator: np.random.Generator) -> Situation:
        cluster = self.cluster
        if isinstance(schedule, Solver):
            cluster = cluster_of_rank(cluster, schedule)

        def trial(workers: Sequence[int], enough_s: float) -> float:
            return self.instance_s(schedule, workers, enough_s)

        return Situation(self.graph, cluster, generator, lambda: self.probe, trial)

    def instance_s(self, schedule: Schedule, workers: Sequence[int], enough_s: float) -> float:
        """Seconds of an instance, as of `Timed`; infinity where the placement does not fit."""
        try:
            timed = Timed(self, schedule, workers)
            count = self.first_pass(schedule)
            timed.go_on(count)
            if not timed.has_ended and timed.instance_s < enough_s * CLEARLY:
                timed.go_on((SEARCHED - 1) * count)
        except AmpsimError:  # such as a chain schedule that does not fit it
            return math.inf
        return timed.instance_s

    def settled(
        self, placement: Placement, schedule: Schedule, on_trial: OnTrial | None = None
    ) -> Placement:
        """The placement found once, if it is the same for all seeds; else the placement itself.

        `on_trial` is told after each trial of a search how many there were.

        Raises:
            OptionError: ranks and servers of a solver do not fit the cluster, or the model is a
                program only, and the schedule is of messages or the placement not the default.
        """
        if isinstance(placement, Settled):
            return placement
        if self.model.make_graph is None:
            return self._unplaced(placement, schedule)
        generator = stream(PROBE_SEED, "placement")
        situation = self._situation(schedule, generator)
        if isinstance(placement, Search):
            found = placement.find(situation, on_trial)
            is_told = found.seconds and math.isfinite(found.start_s)  # it took time, and trained
            origin = {
                **placement.origin,
                "trials": found.trials,
                "start": found.start,
                "times_as_fast": found.start_s / found.seconds if is_told else 1.0,
            }
            return self._settled(found.workers, origin)
        before = generator.bit_generator.state
        workers = workers_by(placement, situation)
        if generator.bit_generator.state != before:  # each seed draws its own
            return placement
        return self._settled(workers, placement.origin)

    def _unplaced(self, placement: Placement, schedule: Schedule) -> Placement:
        """The placement of a program only, whose devices the program says itself."""
        if not isinstance(schedule, OfProgram):
            self.model.require_graph(f"schedule {schedule.name}")
        name = placement.origin["name"]
        if name != DEFAULT:
            self.model.require_graph(
                f"placement {name}",
                "leave it out; a program says its devices with flow.device, and one of a PyTorch "
                "module is on the first worker, unless you write it with ampsim.flow",
            )
        return placement

    def _settled(self, workers: Iterable[int], origin: dict[str, Any]) -> Settled:
        pairs = zip(self.graph.nodes, workers, strict=True)
        return Settled({node.name: worker for node, worker in list(pairs)[1:]}, origin)
