"""The engine of model-parallel training, and watching one run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ampsim.clock import SimClock
from ampsim.hardware import HOST, Cluster, load_cluster
from ampsim.ir import ParameterizedNode
from ampsim.machine import UnawaitedProcessor
from ampsim.model_parallel.assembly import assemble
from ampsim.model_parallel.footprint import ACTIVATIONS, MESSAGES, take_parameters
from ampsim.model_parallel.job import Job, PassReport, RunSettings
from ampsim.model_parallel.memories import note_peaks, own_machine
from ampsim.model_parallel.order import OrderLog
from ampsim.model_parallel.schedules import Sequential
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.update import Updater
from ampsim.trace import MEMORY_CATEGORIES, Cause, Recorder


class Engine:
    """Runs passes.

    Raises:
        OptionError: `sleep` mode of a graph whose control flow reads values, a schedule with an
            interval for a node that does not learn or does not exist, or one that does not fit
            the graph or the cluster.
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        placement: list[int],
        schedule: Schedule,
        *,
        recorder: Recorder,
        settings: RunSettings,
    ) -> None:
        averages = schedule.updates.averages
        self.updater = Updater(job.optimizer, recorder, averages_instances=averages)
        machine = own_machine(cluster, settings, recorder, self.updater)
        self._order = OrderLog(job.graph.parameterized, is_kept=settings.keeps_order)
        assembly = assemble(
            job,
            cluster,
            placement,
            schedule,
            recorder=recorder,
            settings=settings,
            shared=machine,
            order=self._order,
        )
        self._assembly, self._graph = assembly, job.graph
        self._clock = clock = settings.clock
        self._recorder = recorder
        self._instant, self._fabric = machine.instant, machine.fabric
        self._barrier = assembly.barrier
        self.controller = assembly.controller
        self.workers, self.placed_nodes = assembly.workers, assembly.placed_nodes
        self.memories = machine.memories.all
        self._checkpointed = assembly.checkpointed
        self._has_parameters = False
        self._unawaited: list[UnawaitedProcessor] = []
        for processor, tasks in assembly.tasks:
            if isinstance(processor, UnawaitedProcessor):
                self._unawaited.append(processor)
            clock.start(processor.work(tasks), f"worker-{processor.index}")
        clock.run()

    def run_pass(self, batches: Iterable[Any], *, is_training: bool) -> PassReport:
        """Send `batches` through the graph until all are done.

        A training pass ends with an update of every node that still holds gradients.

        Raises:
            StuckError: nothing is left to do, but instances are unfinished or caches not empty.
            DivergenceError: a loss or a weight stopped being finite.
            OutOfMemoryError: a device's memory has no room for what has to lie there.
            SimulationError: a node's step failed; the message says where and when.
        """
        for node in self._graph.nodes:
            node.is_training = is_training
        start_s = self._clock.now
        if is_training:
            self._order.start(self.controller.next_instance)
        try:
            self._take_parameters()
            self.controller.start_pass(batches, is_training, self.latest_cause())
            self._run()
        finally:
            note_peaks(self._recorder, self.memories, self.placed_nodes)
            self._fabric.note_unfinished()
        self._assembly.require_drained(self._graph.name, self._clock.now)
        self._require_empty()
        if is_training:
            self.controller.send_updates(self.latest_cause())
            self._run()
        for one in self._checkpointed:
            one.settle()
        order = self._order.end() if is_training else None
        return PassReport(start_s, self._clock.now, self.controller.totals, order)

    def skip(self, clock: SimClock, ticks: int) -> None:
        """Let so much time pass, in which things happened whose records are there already."""
        clock.skip(ticks)
        self._fabric.transfers.skip()

    def _take_parameters(self) -> None:
        if self._has_parameters:
            return
        self._has_parameters = True
        for one in self._checkpointed:
            one.start()
        for placed in self.placed_nodes:
            if placed.footprint is not None and placed.learner is not None:
                is_predicted = placed.prediction is not None
                take_parameters(placed.learner, placed.footprint.memory, is_predicted=is_predicted)

    def _run(self) -> None:
        """Let everything happen; gradients go on when nothing else is left, if they are held."""
        is_going_on = True
        while is_going_on:
            self._instant.settle()
            self._clock.run()
            is_going_on = self._barrier is not None and self._barrier.let_go(self.latest_cause())
            is_going_on = is_going_on or self._cut_short()

    def _cut_short(self) -> bool:
        """Let work end for which nobody waits, as copies in vain; tell whether there was any."""
        busy = [processor for processor in self._unawaited if processor.is_busy]
        for processor in busy:
            processor.cut_short()
        return bool(busy)

    def latest_cause(self) -> Cause:
        """The event that ended last: a step, or a message's arrival at the controller."""
        number, end_s = self._recorder.latest_span()
        cause, received_s = self.controller.last_received
        return cause if received_s >= end_s else number

    def _require_empty(self) -> None:
        for worker, memory in enumerate(self.memories):
            for category in (ACTIVATIONS, MESSAGES):
                left = memory.held(category)
                assert not left, (
                    f"worker {worker}: {left} bytes are left of {MEMORY_CATEGORIES[category]}"
                )


class Observer:
    """Measures a graph's weights on a clock and a device of its own."""

    def __init__(self, job: Job, is_abstract: bool) -> None:
        self._learners = job.graph.parameterized
        nodes = [node.name for node in job.graph.nodes]
        self._engine = Engine(
            job,
            load_cluster("tflops-1", workers=1),
            [HOST, *[0] * (len(nodes) - 1)],
            Sequential(),
            recorder=Recorder(nodes, 1, 0),
            settings=RunSettings(is_abstract=is_abstract),
        )

    def tell_items(self, on_items: Callable[[int], None]) -> None:
        """Call `on_items` with the number of items of each instance that finishes."""
        self._engine.controller.on_finish = on_items

    def adopt(self, learners: Sequence[ParameterizedNode]) -> None:
        """Measure the weights that these nodes have now, in the graph's order."""
        for own, learner in zip(self._learners, learners, strict=True):
            own.adopt(learner.theta)

    def validate(self, batches: Iterable[Any], now_s: float) -> PassReport:
        """Measure; the report begins and ends at `now_s`."""
        report = self._engine.run_pass(batches, is_training=False)
        return PassReport(now_s, now_s, report.totals)
