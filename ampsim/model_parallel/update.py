"""Updates: what a node does with the gradients that it has accumulated."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from ampsim.errors import LOWER_RATE, SimulationError
from ampsim.ir import Graph, Node, ParameterizedNode
from ampsim.model_parallel.placed_node import PlacedNode
from ampsim.model_parallel.price import Charged
from ampsim.model_parallel.stash import Prediction, Stash
from ampsim.optim import Optimizer, copied, within_epochs
from ampsim.text import short
from ampsim.trace import Recorder
from ampsim.user_code import user_code


class Applies(Protocol):
    """Updates a node when it is its turn."""

    def update(self, placed: PlacedNode, now_s: float) -> Charged:
        """Change the parameters of `placed`; return what that is charged for."""
        ...


class Updatable(Protocol):
    """A node that learns, and what an update of it reads and changes, as of `PlacedNode`."""

    optimizer_state: Any

    @property
    def node(self) -> Node:
        """The node."""
        ...

    @property
    def index(self) -> int:
        """Its place in the graph."""
        ...

    @property
    def stash(self) -> Stash | None:
        """Keeps versions of its weights; None where all steps read the latest."""
        ...

    @property
    def prediction(self) -> Prediction | None:
        """Predicts weights; None where steps read them as they are."""
        ...


class Updater:
    """Applies accumulated gradients with an optimizer, and records each update.

    Attributes:
        rate: the learning rate of the present epoch, or of the last update.
        averages_instances: divide a gradient by the number of instances in it (a mini-batch's
            mean, for schedules that drain) instead of applying the sum of its messages.
    """

    def __init__(self, optimizer: Optimizer, recorder: Recorder, averages_instances: bool) -> None:
        self._optimizer = optimizer
        self._recorder = recorder
        self.averages_instances = averages_instances
        self.rate = optimizer.rate(0)
        self._is_within_epochs = within_epochs(optimizer.rate)
        self._by_node: dict[str, Optimizer] = {}
        self._epoch, self._first, self._batches = 0, 0, math.inf

    def start_epoch(self, epoch: int, first: int = 0, batches: float = math.inf) -> None:
        """Take the learning rate of `epoch`, counted from 0.

        Args:
            epoch: which.
            first: number of its first instance.
            batches: how many instances it has; for rates that change within an epoch.
        """
        self.rate = self._optimizer.rate(epoch)
        self._epoch, self._first, self._batches = epoch, first, batches

    def rates(self, first: int, until: int) -> list[float]:
        """The rates of updates from each of these instances on; one where the epoch has but one."""
        if not self._is_within_epochs:
            return [self.rate]
        rate, start = copied(self._optimizer).rate, self._first
        return [rate(self._epoch + (i - start) / self._batches) for i in range(first, until)]

    def charge(self, node: ParameterizedNode) -> None:
        """Take the rate of a node's next update, and let that cost what its stage does."""
        if self._is_within_epochs:
            self._take_rate(node)
        if self._optimizer.first is not None:
            self._optimizer.charge(node, self.rate)

    def _take_rate(self, node: ParameterizedNode) -> None:
        if node.instances:
            passed = (min(node.instances) - self._first) / self._batches
            self.rate = self._optimizer.rate(self._epoch + passed)

    def _method(self, node: ParameterizedNode) -> Optimizer:
        if self._optimizer.by_tensor is None:
            return self._optimizer
        if node.name not in self._by_node:
            shapes = list(node.parameter_shapes.values())
            self._by_node[node.name] = self._optimizer.of_tensors(shapes)
        return self._by_node[node.name]

    def update(self, placed: Updatable, now_s: float) -> tuple[int, ...] | None:
        """Apply and forget what `placed` has accumulated.

        Returns:
            The shape that the update's cost depends on: (rows touched,) of a sparse table, None
            of a node that changed all of its parameters.

        Raises:
            DivergenceError: a weight would stop being finite; it is not adopted.
            SimulationError: the node's gradient does not fit its parameters.
        """
        node = placed.node
        assert isinstance(node, ParameterizedNode)
        before = node.theta
        touched = node.take_rows()
        self.charge(node)
        if not node.is_abstract:
            if placed.optimizer_state is None:
                placed.optimizer_state = self._method(node).init(node.theta)
            if touched is None:
                self._update_all(placed, node, now_s)
            else:
                self._update_rows(placed, node, touched, now_s)
        count = node.gradient_count
        self._recorder.updates.append(
            (placed.index, now_s, count, node.staleness_sum / max(count, 1), node.staleness_max)
        )
        node.updated()
        if placed.stash is not None:
            placed.stash.replaced(before)
        return None if touched is None else (len(touched[0]),)

    def _update_all(self, placed: Updatable, node: ParameterizedNode, now_s: float) -> None:
        """Step all parameters."""
        gradient = self._averaged(node, gradient_of(node))
        told = partial(_told, node, now_s)
        step, before = self._method(node).step, placed.optimizer_state
        theta, after = step(gradient, before, node.theta, self.rate, told)
        placed.optimizer_state = after
        replaced = node.theta
        node.adopt(theta)
        prediction = placed.prediction
        if prediction is not None:
            prediction.updated(replaced, node.staleness_sum / max(node.gradient_count, 1))

    def _update_rows(
        self,
        placed: Updatable,
        node: ParameterizedNode,
        touched: tuple[np.ndarray, np.ndarray],
        now_s: float,
    ) -> None:
        """Update some rows of a table, in place: its size must not decide what that costs."""
        rows, values = touched
        table = node.theta.reshape(-1, values.shape[1])
        of_rows = tuple(_gather(part, table.shape, rows) for part in placed.optimizer_state)
        gradient = self._averaged(node, values.reshape(-1))
        told, before = partial(_told, node, now_s), table[rows].reshape(-1)
        theta, after = self._method(node).step(gradient, of_rows, before, self.rate, told)
        table[rows] = theta.reshape(values.shape)
        placed.optimizer_state = tuple(
            _scatter(whole, table.shape, rows, part)
            for whole, part in zip(placed.optimizer_state, after, strict=True)
        )

    def _averaged(self, node: ParameterizedNode, gradient: np.ndarray) -> np.ndarray:
        if self.averages_instances and len(node.instances) > 1:
            gradient *= gradient.dtype.type(1.0 / len(node.instances))
        return gradient


def _gather(part: Any, shape: tuple[int, ...], rows: np.ndarray) -> Any:
    """Read the rows of one part of an optimizer's state; a scalar is the same for all rows."""
    if not isinstance(part, np.ndarray):
        return part
    whole = cast("np.ndarray[Any, np.dtype[Any]]", part)
    return whole.reshape(shape)[rows].reshape(-1)


def _scatter(whole: Any, shape: tuple[int, ...], rows: np.ndarray, part: Any) -> Any:
    """Write the rows of one part of an optimizer's state back; a scalar replaces the old one."""
    if isinstance(whole, np.ndarray):
        whole.reshape(shape)[rows] = part.reshape(len(rows), *shape[1:])
        return cast("Any", whole)
    return part


def gradient_of(node: ParameterizedNode) -> np.ndarray:
    """Take what a node has accumulated.

    Raises:
        SimulationError: it does not fit the parameters.
    """
    given: Any = node.take_gradient()
    if getattr(given, "shape", None) == node.theta.shape and given.dtype == node.theta.dtype:
        return given
    raise _misfit(node, given)


def gradient_or_fault(node: ParameterizedNode) -> np.ndarray:
    """Take the same; that the user's code failed is told as an update's."""
    with user_code(f"an update of {node.describe()} failed"):
        return gradient_of(node)


def _misfit(node: ParameterizedNode, given: Any) -> SimulationError:
    shown = f"{given.dtype}{given.shape}" if hasattr(given, "dtype") else short(given)
    return SimulationError(
        f"take_gradient of {node.describe()} must return an array as its parameters, "
        f"{node.theta.dtype}{node.theta.shape}, got {shown}; does a node send another type?"
    )


def _told(node: ParameterizedNode, now_s: float) -> str:
    """The line on weights of a node that stop being finite."""
    when = "" if math.isnan(now_s) else f" at {now_s:.9g} s"  # known of a run, not of a replay
    return (
        f"weights of {node.describe()} stopped being finite in update {node.version + 1} "
        f"with gradients of instance {max(node.instances)}{when}; {LOWER_RATE}"
    )


def average_replicas(graph: Graph) -> None:
    """Set the parameters of each group of replicas to their mean (Section 5).

    It happens between epochs and takes no virtual time ("negligible communication cost"). Shapes
    only count it.
    """
    for group in graph.replica_groups:
        mean = None
        if not group[0].is_abstract:
            mean = group[0].theta.copy()
            for replica in group[1:]:
                mean += replica.theta
            mean /= len(group)
        for replica in group:
            replica.adopt_mean(mean)
