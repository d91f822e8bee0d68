"""A job: a graph to train, its pump and settings, and what a pass over data gives."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ampsim.clock import Clock, SimClock
from ampsim.constant import unmasked
from ampsim.errors import LOWER_RATE, DivergenceError, OptionError
from ampsim.ir import Graph, LossReport, Node, ParameterizedNode, Pumped, Standin
from ampsim.metric import Metric
from ampsim.model_parallel.faults import BatchesOf, not_finite
from ampsim.model_parallel.order import PassOrder
from ampsim.optim import Optimizer
from ampsim.trace import OnRows

Pump: TypeAlias = Callable[[int, Any], "Sequence[Pumped]"]
"""``pump(instance, batch)`` gives the messages that bring one instance into the graph; each names
the controller's port that it goes to."""


def by_number(pumped: Sequence[Pumped], places: Mapping[Any, Any]) -> Any:
    """Messages with ports by their places; as they are where they are not what they should be."""
    try:
        return [(places.get(port, port), *rest) for port, *rest in pumped]
    except (TypeError, ValueError):
        return pumped


def without_numbers(pump: Pump) -> Pump:
    """Return a pump whose float payloads are stand-ins; integers, which are control, stay."""

    def pump_standins(instance: int, batch: Any) -> list[Pumped]:
        pumped: Any = pump(instance, batch)
        try:
            return [(port, state, _standin(payload)) for port, state, payload in pumped]
        except (TypeError, ValueError):  # no messages: the controller says so
            return pumped

    return pump_standins


def _standin(payload: Any) -> Any:
    if not isinstance(payload, np.ndarray):
        return payload
    array: np.ndarray[Any, np.dtype[Any]] = unmasked("a payload of the model's pump", payload)
    return Standin(array.shape, array.itemsize) if array.dtype.kind == "f" else array


@contextlib.contextmanager
def data_told(
    pump: Pump | None, make_program: Callable[[], Any] | None, batches: BatchesOf
) -> Generator[None]:
    """Tell of a block in which a number stops being finite whether the data have one, and where.

    Args:
        pump: of the model.
        make_program: of the model; it says what is fed where there is no pump.
        batches: those of the block.

    Raises:
        DivergenceError: a loss or a weight stopped being finite.
    """
    try:
        yield
    except DivergenceError as error:
        fault = not_finite(pump, make_program, batches)
        if fault is None:
            raise
        said = str(error).removesuffix(f"; {LOWER_RATE}")
        raise DivergenceError(
            f"{said}; {fault}: mend the data, for no learning rate helps"
        ) from error


@dataclass(slots=True)
class PassTotals:
    """The sums of the losses' reports during one pass over a split, in whatever order they come.

    Attributes:
        losses, absolute_errors: a number of each report; their sums are rounded once, so that they
            do not depend on the order of reports.
    """

    instances: int = 0
    rows: int = 0
    correct: float = 0
    losses: list[float] = field(default_factory=list[float])
    absolute_errors: list[float] = field(default_factory=list[float])

    @property
    def loss(self) -> float:
        """Mean loss per row; NaN where nothing was reported."""
        return _sum(self.losses) / self.rows if self.rows else math.nan

    @property
    def accuracy(self) -> float:
        """Fraction of rows classified rightly; NaN where nothing was reported."""
        return self.correct / self.rows if self.rows else math.nan

    @property
    def absolute_error(self) -> float:
        """Mean absolute error per row of a regression; NaN where nothing was reported."""
        return _sum(self.absolute_errors) / self.rows if self.rows else math.nan

    def require_measured(self, measure: Metric, target: float | None) -> None:
        """Check that losses report what a model is measured by, where there is a target.

        Raises:
            OptionError: they do not, so that no target would be reached, however long it is run.
        """
        score = self.accuracy if measure.is_rising else self.absolute_error
        if target is None or not math.isnan(score) or math.isnan(self.loss):
            return
        such, other = "SquaredError", "accuracy"
        if measure.is_rising:
            such, other = "SoftmaxCrossEntropy", "error"
        raise OptionError(
            f"the model is measured by its {measure.kind}, which a loss of it does not report; "
            f"take a loss that does, such as {such}, or metric={other!r}"
        )

    def include(self, other: PassTotals) -> None:
        """Add another part of the same pass."""
        self.instances += other.instances
        self.rows += other.rows
        self.correct += other.correct
        self.losses += other.losses
        self.absolute_errors += other.absolute_errors

    def add(self, report: LossReport) -> None:
        """Add what a loss reported; what it does not know is NaN in the sum.

        Raises:
            ValueError: more rows are right than there are, or fewer than none.
        """
        correct = math.nan if report.correct is None else report.correct
        if correct < 0 or correct > report.rows:
            raise ValueError(f"expected 0 to {report.rows} rows that are right, got {correct}")
        error = report.absolute_error
        self.losses.append(report.loss_sum)
        self.absolute_errors.append(math.nan if error is None else error)
        self.correct += correct
        self.rows += report.rows


def _sum(parts: list[float]) -> float:
    """Add up, rounded once; infinity where that is too much for a number."""
    try:
        return math.fsum(parts)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass over a split: virtual times, what the losses said, and the order of training."""

    start_s: float
    end_s: float
    totals: PassTotals
    order: PassOrder | None = None

    @property
    def per_s(self) -> float:
        """Items per virtual second; NaN where the pass took no time."""
        seconds = self.end_s - self.start_s
        return self.totals.instances / seconds if seconds else float("nan")


@dataclass(frozen=True, slots=True)
class Job:
    """The work of an engine: a graph, its instances, and its optimizer.

    Args:
        graph: verified, its parameters initialised.
        pump: brings an instance into the graph.
        optimizer: for all parameterized nodes.
        min_update_interval: per parameterized node, what the model prefers.
    """

    graph: Graph
    pump: Pump
    optimizer: Optimizer
    min_update_interval: Callable[[str], int]


def require_sound_node(node: Node, optimizer: Optimizer, *, is_abstract: bool) -> None:
    """Check that a node can run with numbers, or without, and that the optimizer can step it.

    Raises:
        OptionError: it cannot.
    """
    if is_abstract and node.reads_values:
        raise OptionError(
            f"mode 'sleep' has no numbers, but {node.describe()} decides by them; "
            "use mode 'numeric'"
        )
    if node.is_shape_only and not is_abstract:
        raise OptionError(
            f"mode 'numeric' computes with weights, but {node.describe()} has shapes alone; "
            "use mode 'sleep'"
        )
    if optimizer.touches_all and isinstance(node, ParameterizedNode) and node.is_sparse:
        raise OptionError(
            f"{node.describe()} updates the rows of its table that were looked up, and "
            f"{optimizer.name} as given, with all of it at once, cannot; take no weight decay and "
            "another optimizer than lars, or is_sparse=False"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of one run, beside the model, the cluster and the method.

    Args:
        clock: whose time passes; a new virtual clock unless given.
        is_abstract: `sleep` mode: shapes instead of numbers.
        counts_memory: whether what lies in the workers' memories is counted.
        seed: of what varies on the cluster; None for a run in which nothing does.
        times_validation: whether validation takes its time on the cluster; under a solver it never
            does.
        spans_kept: how many records of each kind to keep, from the first; None for all.
        on_rows: takes the records chunk by chunk, as of `Recorder`.
        keeps_order: whether each pass of training gives its whole order, not the digest alone.
        light_is_free: whether light steps take no time, whatever devices say: nodes without
            parameters.
        repeats_passes: whether a pass that is as an earlier one is not run again, in `sleep` mode
            (`ampsim.model_parallel.repeat`).
        batches_of: how many batches an epoch has, for learning rates that change within it;
            infinite where none does.
    """

    clock: Clock = field(default_factory=SimClock)
    is_abstract: bool = False
    counts_memory: bool = False
    seed: int | None = None
    times_validation: bool = True
    spans_kept: int | None = None
    on_rows: OnRows | None = None
    keeps_order: bool = False
    light_is_free: bool = False
    repeats_passes: bool = False
    batches_of: Callable[[int], float] = lambda _epoch: math.inf

    @classmethod
    def of_trial(cls, graph: Graph, **others: Any) -> RunSettings:
        """Settings of a trial: in `sleep` mode, unless control flow reads values; and `others`."""
        is_abstract = not any(node.reads_values for node in graph.nodes)
        return cls(is_abstract=is_abstract, **others)
