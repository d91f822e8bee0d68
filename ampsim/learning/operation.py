"""An operation: what serves items of one node together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ampsim.ir import Join, LossNode, LossReport, Payload, Sends, State
from ampsim.learning.rows import KEPT, VALUE, Item, Life, Ref, RowPool, gathered, summed
from ampsim.model_parallel import LearnerPass

Trace: TypeAlias = Callable[[int, State, Any], Sends]
"""Serves a forward message whose payload is a `Ref`, or control information."""

Report: TypeAlias = Callable[[LossNode, State, LossReport], None]
"""Takes what a loss says, of the message of that state and of others."""


class RowPools:
    """RowPools of values and of gradients, by shape and type of a row."""

    def __init__(self) -> None:
        self._values: dict[Any, RowPool] = {}
        self._gradients: dict[Any, RowPool] = {}

    def values(self, array: np.ndarray) -> RowPool:
        """Return the pool of results of this type and width."""
        return _pool(self._values, array)

    def gradients(self, array: np.ndarray) -> RowPool:
        """Return the pool of gradients of this type and width."""
        return _pool(self._gradients, array)


def _pool(pools: dict[Any, RowPool], array: np.ndarray) -> RowPool:
    key = (array.shape[1:], array.dtype)
    pool = pools.get(key)
    if pool is None:
        pool = pools[key] = RowPool(array.shape, array.dtype)
    return pool


class RowOperation(ABC):
    """Serves items of one node together.

    Args:
        node: whose items.
        place: of it, in the graph.
        pools: where rows are.
        tape: takes the items of an instance, in an order in which they can be served.

    Attributes:
        learns: whether it has parameters.
        is_loss: whether gradients begin here.
        is_training: whether backward steps follow.
        life: of the instance that is led through the graph.
        order: of a learner's steps, in a pass of training.
        report: takes what a loss says.
    """

    learns = False
    is_loss = False
    order: LearnerPass
    report: Report

    def __init__(self, node: Any, place: int, pools: RowPools, tape: list[Item]) -> None:
        self.node, self.place = node, place
        self.is_training = True
        self.life = Life()
        self.pools, self.tape = pools, tape
        self.backs: list[RowPool | None] = [None] * len(node.inputs)
        self.join = Join(len(node.inputs))

    @property
    def waits(self) -> bool:
        """Whether messages wait for others."""
        return bool(self.join.waiting)

    def trace(self, port: int, state: State, ref: Any) -> Sends:
        """Note an item once all inputs of a state are known."""
        refs = self.join.put(port, state, ref)
        if refs is None:
            return ()
        item = self.item(state, refs, refs[0][2])
        return ((0, state, (item, 0, item.rows, None)),)

    def item(self, state: State, refs: list[Ref], rows: int) -> Item:
        """Put an item on the tape that reads these and gives so many rows."""
        item = Item(self, self.life, state, refs, rows)
        item.needs = self.learns or any([ref[0].needs for ref in refs])  # noqa: C419  # faster
        self.tape.append(item)
        return item

    @abstractmethod
    def forward(self, items: list[Item]) -> None:
        """Compute what items give."""

    @abstractmethod
    def backward(self, items: list[Item]) -> None:
        """Compute the gradients of what they read."""

    def back_pool(self, port: int) -> Any:
        """Return the pool of an input's gradients, once there are some."""
        return self.backs[port]

    def inputs(self, items: list[Item]) -> list[np.ndarray]:
        """The rows of each input."""
        return [gathered([item.refs[port] for item in items]) for port in range(len(self.backs))]

    def values(self, items: list[Item]) -> np.ndarray:
        """Gather the results of items."""
        return gathered([(item, 0, item.rows, None) for item in items])

    def gradient(self, items: list[Item]) -> np.ndarray:
        """The gradient of what items gave."""
        pool = items[0].pool
        assert pool is not None
        return summed(items, pool.values)

    def give(self, items: list[Item], output: np.ndarray) -> None:
        """Put what items give where it is found."""
        self.pools.values(output).put(output, items, VALUE)

    def give_back(self, items: list[Item], port: int, gradient: np.ndarray) -> None:
        """Put the gradients of an input where they are found."""
        pool = self.backs[port]
        if pool is None:
            pool = self.backs[port] = self.pools.gradients(gradient)
        pool.put(gradient, items, port)

    def give_all_back(self, items: list[Item], backs: Sequence[Payload]) -> None:
        """Give each input that needs one its gradient."""
        for port, back in enumerate(backs):
            if any([item.refs[port][0].needs for item in items]):  # noqa: C419  # faster
                self.give_back(items, port, back)


class OfLearner(RowOperation):
    """A node with parameters."""

    learns = True
    _kept: RowPool | None = None

    def keep(self, items: list[Item], array: np.ndarray) -> None:
        """Keep what backward steps need; rows are the last axis but one."""
        if self._kept is None:
            self._kept = RowPool(array.shape, array.dtype, axis=-2)
        self._kept.put(array, items, KEPT)

    def of_kept(self, items: list[Item]) -> np.ndarray:
        """Gather what was kept of items."""
        assert self._kept is not None
        return self._kept.kept(items)

    def count(self, items: list[Item]) -> None:
        """Note that gradients were accumulated, all of steps that met the present weights."""
        node = self.node
        node.gradient_count += len(items)
        node.instances.update([item.state[0] for item in items])


def needing(items: list[Item]) -> tuple[list[Item], int, int]:
    """Items, those first that read what needs a gradient; how many these are, and their rows."""
    first: list[Item] = []
    others: list[Item] = []
    for item in items:
        is_needed = any([ref[0].needs for ref in item.refs])  # noqa: C419  # faster
        (first if is_needed else others).append(item)
    return first + others, len(first), sum([item.rows for item in first])
