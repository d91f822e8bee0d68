"""The engine of programs: passes over data, one run of the graph for each instance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ampsim.dataflow.accounted import CountingHost
from ampsim.dataflow.memory import INPUTS
from ampsim.dataflow.program import EPOCH, Plans, Program, TrainedProgram
from ampsim.dataflow.schedules import OfProgram
from ampsim.dataflow.session import Session, fed_to, require_copies, require_meaning
from ampsim.errors import DivergenceError
from ampsim.hardware import Cluster
from ampsim.ir import LossReport
from ampsim.model_parallel import PassReport, RunSettings
from ampsim.model_parallel.job import PassTotals
from ampsim.optim import Optimizer
from ampsim.trace import MEMORY_CATEGORIES, Recorder

WEIGHTS, ACTIVATIONS = (MEMORY_CATEGORIES.index(one) for one in ("weights", "activations"))


class ProgramEngine:
    """Trains a program on the devices of a cluster, on the first where it names no other.

    Parameters start from `values`, by name; the recorder knows no node yet.

    Attributes:
        on_items: called with the number of items of each instance that finishes.

    Raises:
        GraphError: the program breaks a rule.
        OptionError: the cluster has a key of which programs make nothing, or its first device
            cannot swap.
    """

    def __init__(
        self, program: Program, optimizer: Optimizer, values: Mapping[str, np.ndarray],
        cluster: Cluster, schedule: OfProgram, *, recorder: Recorder, settings: RunSettings,
    ) -> None:  # fmt: skip
        require_meaning(cluster)
        running = schedule.running
        if running.swap_threshold is not None:
            require_copies(cluster.devices[:1])
        self._program, self._recorder, self._settings = program, recorder, settings
        self._cluster = cluster
        self._training = TrainedProgram(program, optimizer, values, running.window, cluster=cluster)
        self._session = Session(
            cluster, settings.clock, recorder, running, is_abstract=settings.is_abstract,
            seed=settings.seed or 0,
        )  # fmt: skip
        self.on_items: Callable[[int], None] | None = None
        self._instance = 0
        self._named: dict[str, int] = {}

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """What they are now, by name."""
        return self._training.parameters

    def train(self, batches: Iterable[Any], epochs: Iterator[float]) -> PassReport:
        """Train on batches, one after the other, each with the learning rate of its epoch.

        Raises:
            DivergenceError: a loss or a weight stopped being finite.
            OutOfMemoryError: there is no room for what a step computes.
            SimulationError: a step failed.
        """
        return self._pass(batches, epochs)

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Measure, and learn nothing."""
        return self._pass(batches, None)

    def _pass(self, batches: Iterable[Any], epochs: Iterator[float] | None) -> PassReport:
        clock, totals = self._settings.clock, PassTotals()
        start_s = clock.now
        for batch in batches:
            report = self._run(batch, None if epochs is None else next(epochs))
            totals.instances += batch.rows
            if report is not None:
                totals.add(report)
            self._recorder.flush_if_full()
            if self.on_items is not None:
                self.on_items(batch.rows)
        self._note_memory()
        return PassReport(start_s, clock.now, totals)

    def _run(self, batch: Any, epoch: float | None) -> LossReport | None:
        """Run one instance; what its loss is, where there are numbers."""
        feeds = {**self._program.feed(batch)}
        plans = self._training.plans(feeds)
        self._name_nodes(plans)
        plan, has_count, has_rows = plans.valid if epoch is None else plans.train
        if epoch is not None:
            feeds[EPOCH] = epoch
        require_meaning(self._cluster, plan.roots)
        fed = fed_to(plan, feeds, is_abstract=self._settings.is_abstract)
        done = self._session.run(plan, fed, self._instance)
        values, sent = done.result, self._recorder.sent
        for what, count in done.sent.items():
            sent[what] = sent.get(what, 0) + count
        self._instance += 1
        if self._settings.is_abstract:
            return None
        rows = int(values[has_count + 1]) if has_rows else batch.rows
        return self._report(values, rows, has_count=has_count)

    def _name_nodes(self, plans: Plans) -> None:
        """Let the recorder know new nodes, and where they run.

        Of the Sends of one tensor each plan has its own.
        """
        names: list[str] = []
        for node in self._training.graph.nodes[len(self._recorder.nodes) :]:
            count = self._named[node.name] = self._named.get(node.name, 0) + 1
            names.append(node.name if count == 1 else f"{node.name}, {count}")
        if not names:
            return
        self._recorder.add_nodes(names)
        for step in (*plans.train.plan.steps, *plans.valid.plan.steps):
            name = self._recorder.nodes[step.node.index]
            self._recorder.placed.setdefault(name, step.frame.worker)

    def _report(self, values: list[Any], rows: int, *, has_count: bool) -> LossReport:
        loss = float(values[0])
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss became {loss} for instance {self._instance - 1} at "
                f"{self._settings.clock.now:.9g} s; try a lower learning rate"
            )
        return LossReport(loss * rows, int(values[1]) if has_count else None, rows)

    def _note_memory(self) -> None:
        """Record the memory's history so far; what is no variable and not fed is an activation."""
        counting = [one for one in self._session.hosts.values() if isinstance(one, CountingHost)]
        if not counting:
            return
        rows: list[tuple[float, ...]] = []
        for worker, time_s, whole, *held in (row for one in counting for row in one.memory_rows):
            parts = [0.0] * len(MEMORY_CATEGORIES)
            parts[WEIGHTS], parts[ACTIVATIONS] = held[INPUTS], whole - held[INPUTS]
            rows.append((worker, *parts, time_s))
        self._recorder.memory = rows
