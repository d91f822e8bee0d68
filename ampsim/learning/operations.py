"""What nodes do with rows of many messages at once, class by class: the registry `OPERATIONS`.

A message that only finds its way, or of which some rows or columns go on, is not served at all: who
reads it is told where its rows are (`Router`). All else is an `Operation`: of the items that are
served together it gathers the rows, computes once, and puts the rows where others find them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from operator import mul
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
from ampsim.learning.rows import EVERY, KEPT, VALUE, Item, Life, Pool, Ref, gathered, summed
from ampsim.nodes import (
    BranchLSTM,
    Collect,
    Columns,
    Concat,
    Distribute,
    Embedding,
    Group,
    GRUCell,
    LeafLSTM,
    Linear,
    LSTMCell,
    Product,
    ReLU,
    Replicate,
    Sigmoid,
    SoftmaxCrossEntropy,
    SquaredError,
    Tanh,
    Ungroup,
)
from ampsim.nodes.distribute import sum_rows
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
        pool = pools[key] = Pool(array.shape, array.dtype)
    return pool


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

    def _item(self, state: State, refs: list[Any], rows: int = -1) -> Sends:
        if rows < 0:
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

    def give(self, items: list[Item], output: np.ndarray) -> None:
        """Put what items give where it is found."""
        self.pools.values(output).put(output, items, VALUE)

    def give_back(self, items: list[Item], port: int, gradient: np.ndarray) -> None:
        """Put gradients of an input where they are found."""
        pool = self.backs[port]
        if pool is None:
            pool = self.backs[port] = self.pools.gradients(gradient)
        pool.put(gradient, items, port)


class _Learning(Operation):
    learns = True
    kept: Any = None

    def keep(self, items: list[Item], array: np.ndarray) -> None:
        """Keep what backward steps need."""
        if self.kept is None:
            self.kept = Pool(array.shape, array.dtype, -2)
        self.kept.put(array, items, KEPT)

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
        self.give(items, output)

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
        self.give(items, output)
        if self.is_training:
            self.keep(items, node.factors(kept))

    def backward(self, items: list[Item]) -> None:
        node = self.node
        items, count, rows, needed = _needing(items, len(node.inputs))
        gradient = self.gradient(items)
        factors = self.kept.kept(items)
        slopes, through = node.back_by_factors(items[0].state, factors, gradient)
        self.count(items)
        if not count:
            return
        backs = node.backs_by_factors(factors[:rows], slopes[:rows], through[:rows])
        for port, back in enumerate(backs):
            if needed[port]:
                self.give_back(items[:count], port, back)


class OfGru(_Learning):
    """A GRU cell."""

    def forward(self, items: list[Item]) -> None:
        node = self.node
        output, kept = node.step([gathered([item.refs[p] for item in items]) for p in (0, 1)])
        self.give(items, output)
        if self.is_training:
            self.keep(items, node.factors(kept))

    def backward(self, items: list[Item]) -> None:
        node = self.node
        items, count, rows, needed = _needing(items, 2)
        gradient = self.gradient(items)
        payloads = [gathered([item.refs[p] for item in items]) for p in (0, 1)]
        if len(items) == 1:
            payloads = [one.copy() for one in payloads]
        factors = self.kept.kept(items)
        slopes = node.back_by_factors(items[0].state, payloads, factors, gradient)
        self.count(items)
        if count:
            for port, back in enumerate(node.backs_by_factors(slopes[:, :rows], needed)):
                if back is not None:
                    self.give_back(items[:count], port, back)


class OfEmbedding(_Learning):
    """Rows of a table."""

    def forward(self, items: list[Item]) -> None:
        indices = gathered([item.refs[0] for item in items])
        if indices.size and indices.min() < 0:
            raise IndexError(f"index {indices.min()} is below 0")
        output = self.node.weight[indices]
        self.give(items, output)

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


class OfElementwise(Operation):
    """A function of each element."""

    def forward(self, items: list[Item]) -> None:
        output = self.node.value(gathered([item.refs[0] for item in items]))
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        given = gathered([(item, 0, item.rows, None) for item in items])
        self.give_back(items, 0, self.node.pulled_back(given, gradient))


class OfProduct(Operation):
    """A product of elements."""

    def forward(self, items: list[Item]) -> None:
        output = reduce(mul, self.operands(items))
        self.give(items, output)

    def operands(self, items: list[Item]) -> list[np.ndarray]:
        return [gathered([item.refs[p] for item in items]) for p in range(len(self.backs))]

    def backward(self, items: list[Item]) -> None:
        gradient, factors = self.gradient(items), self.operands(items)
        backs = [
            reduce(mul, factors[:p] + factors[p + 1 :], gradient) for p in range(len(factors))
        ]
        for port, back in enumerate(backs):
            self.give_back(items, port, back)


class OfConcat(Operation):
    """Columns side by side."""

    def forward(self, items: list[Item]) -> None:
        parts = [gathered([item.refs[p] for item in items]) for p in range(len(self.backs))]
        output = np.concatenate(parts, axis=1)
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        for port, cut in enumerate(self.node._columns):
            if items[0].refs[port][0].needs:
                self.give_back(items, port, gradient[:, cut])


class _OneBack:
    """The one pool of the gradients of all inputs."""

    def __init__(self) -> None:
        self.pool: Pool | None = None

    def __getitem__(self, port: int) -> Any:
        return self.pool


class _Joining(Operation):
    """Rows of several payloads below each other; their gradients are in one pool."""

    def __init__(self, node: Any, place: int, pools: Pools) -> None:
        super().__init__(node, place, pools)
        self.backs: Any = _OneBack()

    def give_all_back(self, items: list[Item], gradient: np.ndarray) -> None:
        pool = self.backs.pool
        if pool is None:
            pool = self.backs.pool = self.pools.gradients(gradient)
        pool.put(gradient, items, EVERY)


class OfGroup(_Joining):
    """Members of a group below each other."""

    def __init__(self, node: Any, place: int, pools: Pools) -> None:
        super().__init__(node, place, pools)
        self._filling: dict[State, list[Any]] = {}

    def _trace_one(self, port: int, state: State, ref: Any) -> Sends:
        group, number, count = self.node._place(state)
        members = self._filling.get(group)
        if members is None:
            members = self._filling[group] = [[None] * count, count]
        members[0][number] = ref
        members[1] -= 1
        if members[1]:
            return ()
        refs = self._filling.pop(group)[0]
        return self._item(group, refs, sum([ref[2] for ref in refs]))

    def forward(self, items: list[Item]) -> None:
        output = gathered([ref for item in items for ref in item.refs])
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        self.give_all_back(items, self.gradient(items))


class OfCollect(_Joining):
    """Sums of rows by index."""

    def _trace_all(self, port: int, state: State, ref: Any) -> Sends:
        refs = self._join.put(port, state, ref)
        if refs is None:
            return ()
        control = refs.pop()
        sends = self._item(state, refs, control.size)
        self.tape[-1].control = control
        return sends

    def forward(self, items: list[Item]) -> None:
        values = gathered([ref for item in items for ref in item.refs])
        rows = sum([item.rows for item in items])
        output = np.empty((rows, *values.shape[1:]), values.dtype)
        start = at = 0
        for item in items:
            control = item.control
            end, to = start + len(control.rows), at + item.rows
            output[at:to] = sum_rows(control, values[start:end])
            start, at = end, to
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        self.give_all_back(items, gradient.take(by_control(items, [0]), axis=0))


def by_control(items: list[Item], starts: list[int]) -> np.ndarray:
    """Rows that controls name, of wholes that lie at `starts`, or one after the other."""
    if len(starts) < len(items):
        starts = [0, *accumulate([item.rows for item in items])]
    return np.concatenate(
        [item.control.rows + at for item, at in zip(items, starts, strict=False)]
    )


class OfDistribute(Operation):
    """Rows by index."""

    def _trace_all(self, port: int, state: State, ref: Any) -> Sends:
        refs = self._join.put(port, state, ref)
        if refs is None:
            return ()
        ref, control = refs
        self._item(state, [ref], len(control.rows))
        item = self.tape[-1]
        item.control = control
        return [
            (part, state, (item, cut.start, cut.stop - cut.start, None))
            for part, cut in enumerate(control.cuts)
        ]

    def forward(self, items: list[Item]) -> None:
        whole = gathered([item.refs[0] for item in items])
        starts = [0, *accumulate([item.refs[0][2] for item in items])]
        output = whole.take(by_control(items, starts), axis=0)
        self.give(items, output)

    def backward(self, items: list[Item]) -> None:
        gradient, start, parts = self.gradient(items), 0, list[np.ndarray]()
        for item in items:
            end = start + item.rows
            parts.append(sum_rows(item.control, gradient[start:end]))
            start = end
        self.give_back(items, 0, parts[0] if len(parts) == 1 else np.concatenate(parts))


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
    GRUCell: OfGru,
    Sigmoid: OfElementwise,
    Tanh: OfElementwise,
    ReLU: OfElementwise,
    Product: OfProduct,
    Concat: OfConcat,
    Group: OfGroup,
    Collect: OfCollect,
    Distribute: OfDistribute,
}
