"""What measures weights off the clock: a pass over validation data that takes no virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ampsim.hardware import HOST, load_cluster
from ampsim.ir import ParameterizedNode
from ampsim.model_parallel.assembly import Job
from ampsim.model_parallel.engine import Engine
from ampsim.model_parallel.passes import PassReport
from ampsim.model_parallel.run_settings import RunSettings
from ampsim.model_parallel.schedules import Sequential
from ampsim.trace import Recorder


class Observer:
    """Measures a graph's weights on a clock and a device of its own.

    Args:
        job: the network; nothing of it is trained.
        is_abstract: `sleep` mode.
    """

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
