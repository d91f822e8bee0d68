"""The engine of programs: passes over data, one run of the graph for each instance.

The graph has the program with gradients and the optimizer's steps: once, or unrolled for each shape
of an instance, where a loop becomes as many copies of its body as that needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ampsim.clock import SimClock
from ampsim.dataflow.construct import input_tensor
from ampsim.dataflow.graph import FlowGraph, Tensor
from ampsim.dataflow.memory import INPUTS
from ampsim.dataflow.plan import Plan
from ampsim.dataflow.program import KnownInstance, Objective, Program
from ampsim.dataflow.schedules import OfProgram
from ampsim.dataflow.session import FlowResult, Session, counting
from ampsim.dataflow.variable import DrawnRuns, minimize, set_variables, variables
from ampsim.errors import LOWER_RATE, DivergenceError, GraphError
from ampsim.hardware import Cluster
from ampsim.ir import LossReport
from ampsim.model_parallel import PassReport, RunSettings
from ampsim.model_parallel.job import PassTotals
from ampsim.optim import Optimizer
from ampsim.trace import MEMORY_CATEGORIES, Recorder
from ampsim.user_code import user_code

EPOCH: Final = "epoch"
"""The input that says of which epoch the learning rate is."""

Run: TypeAlias = "tuple[Plan, Objective]"
"""What is run of an instance, and what that gives."""


class Runs(NamedTuple):
    """The prepared runs of one instance: for training, and for validation."""

    train: Run
    valid: Run
    drawn: set[DrawnRuns]  # who draws in the latter


class ProgramEngine:
    """Trains a program on the devices of a cluster, on the first where it names no other.

    Parameters start from `values`, by name; the recorder knows no node yet.

    Attributes:
        graph: with all nodes of the program.
        on_items: called with the number of items of each instance that finishes.

    Raises:
        GraphError: the program breaks a rule, or its variables are not the parameters.
        OptionError: the cluster has a key of which programs make nothing, or has not a worker that
            the program names, or its first device cannot swap.
    """

    def __init__(
        self, program: Program, optimizer: Optimizer, values: Mapping[str, np.ndarray],
        cluster: Cluster, schedule: OfProgram, *, recorder: Recorder, settings: RunSettings,
    ) -> None:  # fmt: skip
        running = schedule.running
        self._program, self._optimizer = program, optimizer
        self._window = running.parallel_iterations
        self._cluster, self._recorder, self._settings = cluster, recorder, settings
        self._session = Session(
            cluster, settings.clock, recorder, running, is_abstract=settings.is_abstract,
            counts_memory=settings.counts_memory, seed=settings.seed or 0,
            light_is_free=settings.light_is_free, of=schedule.name,
        )  # fmt: skip
        self._session.require_fit([0])
        self._values, self._named = values, dict[str, int]()
        self._held: Mapping[str, np.ndarray] = {}  # of one that validates, what is to be measured
        self.graph = FlowGraph()
        self._runs: dict[Any, Runs] = {}
        self._learning: set[DrawnRuns] = set()  # who draws in training
        if self._window is not None:
            self.runs({})
        self.on_items: Callable[[int], None] | None = None
        self._instance = 0
        self._observer: ProgramEngine | None = None  # validates, where that takes no time
        if not settings.times_validation:
            unseen = Recorder([], cluster.workers, 0)
            beside = replace(settings, clock=SimClock(), on_rows=None, times_validation=True)
            self._observer = ProgramEngine(
                program, optimizer, values, cluster, schedule, recorder=unseen, settings=beside
            )

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """The current value of each variable, by name."""
        return variables(self.graph)

    def train(self, batches: Iterable[Any], epochs: Iterator[float]) -> PassReport:
        """Train on batches, one after the other, each with the learning rate of its epoch.

        Raises:
            DivergenceError: a loss or a weight stopped being finite.
            OutOfMemoryError: there is no room for what a step computes.
            SimulationError: a step failed.
        """
        return self._pass(batches, epochs)

    def validate(self, batches: Iterable[Any]) -> PassReport:
        """Measure, and learn nothing; on a clock of its own unless the settings time it."""
        observer, now_s = self._observer, self._settings.clock.now
        if observer is None:
            return self._pass(batches, None)
        held = {node.name: node.attributes["held"] for node in self.graph.variables}
        counts = {name for name, one in held.items() if isinstance(one, DrawnRuns)}
        observer._held = {key: of for key, of in self.parameters.items() if key not in counts}
        observer.on_items = self.on_items
        if observer._runs:
            set_variables(observer.graph, observer._held)
        return replace(observer._pass(batches, None), start_s=now_s, end_s=now_s)

    def _pass(self, batches: Iterable[Any], epochs: Iterator[float] | None) -> PassReport:
        clock, totals = self._settings.clock, PassTotals()
        start_s = clock.now
        try:
            for batch in batches:
                feeds = self._program.fed(batch)
                runs = self.runs(feeds)
                plan, objective = runs.valid if epochs is None else runs.train
                if epochs is not None:
                    feeds[EPOCH] = next(epochs)
                    done = self.run(plan, feeds)
                else:
                    done = self._measured(runs, feeds)
                totals.instances += batch.rows
                if not self._settings.is_abstract:
                    with user_code("the Objective of a program cannot be counted"):
                        totals.add(self._report(objective, done, batch.rows))
                self._recorder.flush_if_full()
                if self.on_items is not None:
                    self.on_items(batch.rows)
        finally:
            self._note_memory()
        return PassReport(start_s, clock.now, totals)

    def run(self, plan: Plan, feeds: Mapping[str, Any]) -> FlowResult:
        """Run one instance; an input may have decided how it is unrolled, or be for training."""
        idle = self.graph.inputs.difference(plan.inputs)
        feeds = {name: value for name, value in feeds.items() if name not in idle}
        done = self._session.run(plan, feeds, self._instance)
        sent = self._recorder.sent
        for what, count in done.sent.items():
            sent[what] = sent.get(what, 0) + count
        self._instance += 1
        return done

    def _measured(self, runs: Runs, feeds: Mapping[str, Any]) -> FlowResult:
        """Run an instance of validation: training draws what it draws without."""
        drawn = runs.drawn & self._learning
        for one in drawn:
            one.swap()
        try:
            return self.run(runs.valid[0], feeds)
        finally:
            for one in drawn:
                one.swap()

    def _report(self, objective: Objective, done: FlowResult, rows: int) -> LossReport:
        given: dict[Tensor | None, Any] = dict(zip(objective.asked, done.values, strict=True))
        loss, correct = float(given[objective.loss]), given.get(objective.correct)
        if not math.isfinite(loss):
            raise DivergenceError(
                f"the loss became {loss} for instance {self._instance - 1} at "
                f"{self._settings.clock.now:.9g} s; {LOWER_RATE}"
            )
        rows = int(given.get(objective.rows, rows))
        return LossReport(loss * rows, None if correct is None else int(correct), rows)

    # --- what is run of an instance

    def runs(self, feeds: Mapping[str, Any]) -> Runs:
        """Return the prepared runs of an instance with these feeds; equal shapes share them."""
        known = KnownInstance(feeds) if self._window is None else None
        key = None if known is None else known.key()
        if key not in self._runs:
            self._runs[key] = self._built(known)
        return self._runs[key]

    def _built(self, known: KnownInstance | None) -> Runs:
        """Build the graph of an instance, beside those of others."""
        graph, program = self.graph, self._program
        graph.begin(known)
        with graph:
            valid = program.built()
            epoch = input_tensor(EPOCH)

            def stepped(loss: Tensor) -> Tensor:
                return minimize(loss, self._optimizer, epoch=epoch)

            if program.train is None:
                train = replace(valid, done=stepped(valid.loss))
            else:
                train = program.trained(stepped)
        if not self._runs:
            self._start()
        plans = self._plan(train), self._plan(valid)
        for one in set(_drawn(plans[0])) - self._learning:
            one.learn()
            self._learning.add(one)
        runs = Runs((plans[0], train), (plans[1], valid), set(_drawn(plans[1])))
        if not any(step.node is epoch.node for step in runs.train[0].steps):
            raise GraphError(
                "train of a program must run what its minimize gives, got an Objective that does "
                "without; return that in done="
            )
        self._name_nodes(runs)
        return runs

    def _plan(self, objective: Objective) -> Plan:
        """A plan; its nodes beside the graph are numbered with those of the graph."""
        nodes = self.graph.nodes
        plan = Plan(objective.asked, self._window or 0, self._cluster, first=len(nodes))
        nodes += plan.beside
        return plan

    def _start(self) -> None:
        """Let variables start from the values.

        Raises:
            GraphError: a parameter has no variable, or a variable no parameter.
        """
        own = {one.name for one in self.graph.variables if one.attributes["held"].trainable}
        for name in sorted(own ^ set(self._values)):
            what = "variable" if name in self._values else "parameter of the model"
            raise GraphError(
                f"a program must have the parameters of its model as variables, got no {what} "
                f"for {name!r}; call a layer as its node is called, and where loops are unrolled "
                "make it before a branch or loop that an instance may not take"
            )
        set_variables(self.graph, {**self._values, **self._held})

    def _name_nodes(self, runs: Runs) -> None:
        """Let the recorder know new nodes, and where they run.

        Of the Sends of one tensor each plan has its own.
        """
        names: list[str] = []
        for node in self.graph.nodes[len(self._recorder.nodes) :]:
            count = self._named[node.name] = self._named.get(node.name, 0) + 1
            names.append(node.name if count == 1 else f"{node.name}, {count}")
        self._recorder.add_nodes(names)
        for plan, _objective in (runs.train, runs.valid):
            for step in plan.steps:
                name = self._recorder.nodes[step.node.index]
                self._recorder.placed.setdefault(name, step.frame.worker)

    def _note_memory(self) -> None:
        """Record the memory's history so far; what is no variable and not fed is an activation."""
        rows: list[tuple[int, list[tuple[float, list[float]]]]] = []
        hosts = counting(self._session.hosts)
        for worker, time_s, whole, *held in (row for one in hosts for row in one.memory_rows):
            parts = {"weights": held[INPUTS], "activations": whole - held[INPUTS]}
            rows.append(
                (int(worker), [(time_s, [parts.get(one, 0.0) for one in MEMORY_CATEGORIES])])
            )
        self._recorder.memory = rows


def _drawn(plan: Plan) -> Iterator[DrawnRuns]:
    """The generators from which a plan draws."""
    for step in plan.steps:
        held = step.node.attributes.get("held")
        if isinstance(held, DrawnRuns):
            yield held
