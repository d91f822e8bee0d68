"""What nodes do with rows of many messages at once, class by class: the registry `OPERATIONS`.

A message that only finds its way, or of which some rows or columns go on, is not served at all: who
reads it is told where its rows are (`Router`). All else is an `Operation`: of the items that are
served together it gathers the rows, computes once, and puts the rows where others find them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.ir import (
    Bcast,
    Cond,
    Isu,
    Join,
    LossReport,
    Node,
    ParameterizedNode,
    Phi,
    Sends,
    State,
)
from ampsim.learning.rows import Item, Life, Pool, Ref, gathered, rows_of, summed
from ampsim.nodes import (
    BranchLSTM,
    Columns,
    Embedding,
    LeafLSTM,
    Linear,
    LSTMCell,
    Replicate,
    SoftmaxCrossEntropy,
    SquaredError,
    Ungroup,
)
from ampsim.nodes.linear import product_of_few

Trace: TypeAlias = Callable[[int, State, Any], Sends]
"""Serves a forward message whose payload is a `Ref`."""


class Pools:
    """Pools of values and of gradients, by shape and type of a row."""

    def __init__(self) -> None:
        self._values: dict[Any, Pool] = {}
        self._gradients: dict[Any, Pool] = {}

    def values(self, array: np.ndarray) -> Pool:
        return _pool(self._values, array)

    def gradients(self, array: np.ndarray) -> Pool:
        return _pool(self._gradients, array)


def _pool(pools: dict[Any, Pool], array: np.ndarray) -> Pool:
    key = (array.shape[1:], array.dtype)
    pool = pools.get(key)
    if pool is None:
        pool = pools[key] = Pool(*key)
    return pool


def _put(pool: Pool, array: np.ndarray, items: Sequence[Item], port: int | None = None) -> int:
    at = pool.reserve(len(array))
    pool.values[at : at + len(array)] = array
    pool.give(items, port)
    return at


class Operation:
    """Serves items of one node together.

    Attributes:
        learns: whether it has parameters.
        is_loss: whether gradients begin here.
        backs: the pool of each input's gradient.
    """

    learns = False
    is_loss = False

    def __init__(self, node: Any, place: int, pools: Pools) -> None:
        self.node, self.place, self.pools = node, place, pools
        self.backs: list[Any] = [None] * len(node.inputs)
        self.is_training = True
        self.tape: list[Item] = []
        self.life = Life()
        ports = len(node.inputs)
        self._join = Join(ports)
        if ports == 1:
            self.trace: Trace = self._trace_one
        else:
            self.trace = self._trace_all

    def _trace_one(self, port: int, state: State, ref: Any) -> Sends:
        return self._item(state, [ref])

    def _trace_all(self, port: int, state: State, ref: Any) -> Sends:
        refs = self._join.put(port, state, ref)
        return () if refs is None else self._item(state, refs)

    def _item(self, state: State, refs: list[Any]) -> Sends:
        rows = refs[0][2]
        item = Item(self, self.life, state, refs, rows)
        item.needs = self.learns or any([ref[0].needs for ref in refs])
        self.tape.append(item)
        return () if self.is_loss else ((0, state, (item, 0, rows, None)),)

    @abstractmethod
    def forward(self, items: list[Item]) -> None:
        """Compute what items give."""

    @abstractmethod
    def backward(self, items: list[Item]) -> None:
        """Compute the gradients of what they read."""

    def gradient(self, items: list[Item]) -> np.ndarray:
        """Of what items gave."""
        pool = items[0].pool
        assert pool is not None
        return summed(items, pool.values.shape[1:], pool.values.dtype)

    def give_back(self, items: list[Item], port: int, gradient: np.ndarray) -> None:
        """Put gradients of an input where they are found."""
        pool = self.backs[port]
        if pool is None:
            pool = self.backs[port] = self.pools.gradients(gradient)
        _put(pool, gradient, items, port)


class _Learning(Operation):
    learns = True

    def count(self, items: list[Item]) -> None:
        """Note that gradients were accumulated, all of steps that met the present weights."""
        node = self.node
        node.gradient_count += len(items)
        node.instances.update([item.state[0] for item in items])


def _needing(items: list[Item], port_count: int) -> tuple[list[Item], int, int, list[bool]]:
    """Items, those first whose inputs need gradients; how many, their rows; which inputs do."""
    first: list[Item] = []
    others: list[Item] = []
    needed = [False] * port_count
    for item in items:
        is_needed = False
        for port, ref in enumerate(item.refs):
            if ref[0].needs:
                needed[port] = is_needed = True
        (first if is_needed else others).append(item)
    rows = sum([item.rows for item in first])
    return first + others, len(first), rows, needed


class OfLinear(_Learning):
    """x W + b."""

    def forward(self, items: list[Item]) -> None:
        x = gathered([item.refs[0] for item in items])
        output = x @ self.node.weight
        output += self.node.bias
        _put(self.pools.values(output), output, items)

    def backward(self, items: list[Item]) -> None:
        items, count, rows, _needed = _needing(items, 1)
        gradient = self.gradient(items)
        x = gathered([item.refs[0] for item in items])
        self.node._pairs.add(items[0].state, x if len(items) > 1 else x.copy(), gradient)
        self.count(items)
        if count:
            self.give_back(items[:count], 0, self.node._transposed.after(gradient[:rows]))


class OfLstm(_Learning):
    """A cell of `ampsim.nodes.lstm`."""

    def forward(self, items: list[Item]) -> None:
        node = self.node
        payloads = [gathered([item.refs[p] for item in items]) for p in range(len(node.inputs))]
        joined, mask = node.joined(payloads), None
        if self.is_training and node.dropout:
            mask = np.concatenate([node.mask(item.state, item.rows) for item in items])
        output, kept = node.step(payloads, joined, product_of_few(joined, node.weight), mask)
        pool = self.pools.values(output)
        at = _put(pool, output, items)
        if self.is_training:
            pool.keep(self.place, (node.factors(kept),), at)

    def backward(self, items: list[Item]) -> None:
        node = self.node
        items, count, rows, needed = _needing(items, len(node.inputs))
        gradient = self.gradient(items)
        (factors,) = items[0].pool.kept(self.place, 1, rows_of(items))
        slopes, through = node.back_by_factors(items[0].state, factors, gradient)
        self.count(items)
        if not count:
            return
        backs = node.backs_by_factors(factors[:rows], slopes[:rows], through[:rows])
        for port, back in enumerate(backs):
            if needed[port]:
                self.give_back(items[:count], port, back)


class OfEmbedding(_Learning):
    """Rows of a table."""

    def forward(self, items: list[Item]) -> None:
        indices = gathered([item.refs[0] for item in items])
        if indices.size and indices.min() < 0:
            raise IndexError(f"index {indices.min()} is below 0")
        output = self.node.weight[indices]
        _put(self.pools.values(output), output, items)

    def backward(self, items: list[Item]) -> None:
        indices = gathered([item.refs[0] for item in items])
        node = self.node
        gradient = self.gradient(items).reshape(-1, node.width)
        node._pairs.append((items[0].state, indices.reshape(-1).copy(), gradient))
        self.count(items)


class OfLoss(Operation):
    """A loss of a pair: its gradients are there with what it reports."""

    is_loss = True

    def __init__(self, node: Any, place: int, pools: Pools) -> None:
        super().__init__(node, place, pools)
        self.report: Any = None

    def forward(self, items: list[Item]) -> None:
        prediction = gathered([item.refs[0] for item in items])
        wanted = gathered([item.refs[1] for item in items])
        counts = np.array([item.rows for item in items])
        gradient, losses, correct, errors = self.evaluated(prediction, wanted, counts)
        if not math.isfinite(float(losses.sum())):
            for item, loss in zip(items, np.add.reduceat(losses, counts.cumsum() - counts)):
                if not math.isfinite(loss):
                    self.report(item, loss)
        self.report.add(LossReport(float(losses.sum(dtype=np.float64)), correct, len(losses), errors))
        if self.is_training:
            self.give_back(items, 0, gradient)


class OfCrossEntropy(OfLoss):
    def evaluated(self, logits, label, counts):
        rows = np.arange(len(label))
        shifted = logits - logits.max(axis=1, keepdims=True)
        probability = np.exp(shifted)
        total = probability.sum(axis=1)
        losses = np.log(total).astype(np.float64) - shifted[rows, label]
        correct = int(np.count_nonzero(logits.argmax(axis=1) == label))
        probability /= total[:, None]
        probability[rows, label] -= 1
        if len(counts) < len(rows):
            probability /= counts.repeat(counts)[:, None].astype(logits.dtype)
        return probability, losses, correct, None


class OfSquaredError(OfLoss):
    def evaluated(self, prediction, wanted, counts):
        difference = prediction - wanted
        flat = difference.reshape(len(difference), -1).astype(np.float64)
        outputs = flat.shape[1]
        losses = (flat * flat).sum(axis=1) / outputs
        error = float(np.abs(flat).sum()) / outputs
        scale = (2.0 / (counts * outputs)).astype(prediction.dtype).repeat(counts)
        difference *= scale.reshape(-1, *[1] * (difference.ndim - 1))
        return difference, losses, None, error


def _ungroup(node: Ungroup) -> Trace:
    counter = node._offspring._counter

    def trace(port: int, state: State, ref: Any) -> Sends:
        item, offset, rows, columns = ref
        if rows < 1:
            return ((0, counter(state, 0), ref),)
        return [(0, counter(state, i), (item, offset + i, 1, columns)) for i in range(rows)]

    return trace


def _columns(node: Columns) -> Trace:
    cut = node._kept

    def trace(port: int, state: State, ref: Any) -> Sends:
        item, offset, rows, columns = ref
        first = columns[0] if columns else 0
        return ((0, state, (item, offset, rows, (first + cut.start, first + cut.stop))),)

    return trace


def _as_it_is(node: Node) -> Trace:
    return node.forward


ROUTERS: Final[dict[type[Node], Callable[[Any], Trace]]] = {
    Bcast: _as_it_is,
    Cond: _as_it_is,
    Isu: _as_it_is,
    Phi: _as_it_is,
    Replicate: _as_it_is,
    Ungroup: _ungroup,
    Columns: _columns,
}

OPERATIONS: Final[dict[type[Node], type[Operation]]] = {
    Linear: OfLinear,
    LSTMCell: OfLstm,
    LeafLSTM: OfLstm,
    BranchLSTM: OfLstm,
    Embedding: OfEmbedding,
    SoftmaxCrossEntropy: OfCrossEntropy,
    SquaredError: OfSquaredError,
}
