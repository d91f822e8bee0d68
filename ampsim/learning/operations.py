"""Operations on the rows of many messages at once, by class of node: `OPERATIONS`.

Who reads a message that is never served (`ampsim.learning.routes`) is told where its rows are. All
else is a `RowOperation`. Of the items that are served together it gathers the rows, computes once,
and puts the rows where others find them. A class that is in neither registry, as a user's own, is
served message by message, with all others of its graph.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from itertools import accumulate, pairwise
from operator import add, mul
from typing import Any, Final, cast

import numpy as np

from ampsim.ir import Graph, LossReport, Node, Partition, Sends, State
from ampsim.learning.learners import OfEmbedding, OfGru, OfLinear, OfLstm
from ampsim.learning.operation import OfLearner, RowOperation, RowPools
from ampsim.learning.routes import ROUTES
from ampsim.learning.rows import EVERY, Item, gathered
from ampsim.nodes import (
    BranchLSTM,
    Collect,
    Concat,
    Difference,
    Distribute,
    Dropout,
    Embedding,
    Group,
    GRUCell,
    LeafLSTM,
    Linear,
    LSTMCell,
    Product,
    ReLU,
    Sigmoid,
    SoftmaxCrossEntropy,
    SquaredError,
    Sum,
    Tanh,
    Ungroup,
)
from ampsim.nodes.distribute import sum_rows
from ampsim.nodes.losses import require_labels


class _Loss(RowOperation):
    """A loss of a pair: its gradients are there with what it reports."""

    is_loss = True

    def trace(self, port: int, state: State, ref: Any) -> Sends:
        super().trace(port, state, ref)
        return ()

    def forward(self, items: list[Item]) -> None:
        prediction, wanted = self.inputs(items)
        counts = np.array([item.rows for item in items])
        gradient, losses, correct, error = self._evaluated(prediction, wanted, counts)
        total = float(losses.sum(dtype=np.float64))
        if not math.isfinite(total):
            starts = [0, *accumulate(counts.tolist())]
            for item, start in zip(items, starts, strict=False):
                loss = float(losses[start : start + item.rows].sum())
                self.report(self.node, item.state, LossReport(loss, None, item.rows))
        report = LossReport(total, correct, len(losses), error)
        self.report(self.node, items[0].state, report)
        if self.is_training:
            self.give_back(items, 0, gradient)

    def backward(self, items: list[Item]) -> None:
        raise AssertionError("a loss has no outputs")

    @abstractmethod
    def _evaluated(
        self, prediction: np.ndarray, wanted: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int | None, float | None]:
        """Gradient, the loss of each row, rows that were right, the sum of absolute errors."""


class _CrossEntropy(_Loss):
    """−log softmax(prediction)[label]."""

    def _evaluated(
        self, prediction: np.ndarray, wanted: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int | None, float | None]:
        require_labels(wanted, prediction.shape[1])
        rows = np.arange(len(wanted))
        probability = prediction - prediction.max(axis=1, keepdims=True)
        right = probability[rows, wanted].astype(np.float64)
        np.exp(probability, out=probability)
        total = probability.sum(axis=1)
        correct = int(np.count_nonzero(prediction.argmax(axis=1) == wanted))
        probability /= total[:, None]
        probability[rows, wanted] -= 1
        if counts.max(initial=0) > 1:
            probability /= counts.repeat(counts)[:, None].astype(prediction.dtype)
        return probability, np.log(total, dtype=np.float64) - right, correct, None


class _SquaredError(_Loss):
    """(prediction − target)²."""

    def _evaluated(
        self, prediction: np.ndarray, wanted: np.ndarray, counts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int | None, float | None]:
        difference = np.subtract(prediction, wanted, dtype=prediction.dtype)
        outputs = math.prod(difference.shape[1:])
        flat = difference.reshape(len(difference), outputs).astype(np.float64)
        error = float(np.abs(flat).sum()) / outputs
        scale = (2.0 / (np.maximum(counts, 1) * outputs)).astype(prediction.dtype).repeat(counts)
        difference *= scale.reshape(-1, *[1] * (difference.ndim - 1))
        return difference, np.square(flat).sum(axis=1) / outputs, None, error


class _Elementwise(RowOperation):
    """A function of each element, whose derivative is told from its value."""

    def forward(self, items: list[Item]) -> None:
        self.give(items, self.node.value(*self.inputs(items)))

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        self.give_back(items, 0, self.node.pulled_back(self.values(items), gradient))


class _Dropout(OfLearner):
    """Elements times masks, which each message has of its own."""

    learns = False

    def forward(self, items: list[Item]) -> None:
        (output,) = self.inputs(items)
        mask = None
        if self.is_training:
            shapes = [(item.rows, *output.shape[1:]) for item in items]
            each = zip(items, shapes, strict=True)
            mask = np.concatenate(
                [self.node.mask(item.state, shape, output.dtype) for item, shape in each]
            )
            output = output * mask
        self.give(items, output)
        if mask is not None:
            self.keep(items, mask)

    def backward(self, items: list[Item]) -> None:
        self.give_back(items, 0, self.gradient(items) * self.of_kept(items))


class _Sum(RowOperation):
    """Payloads added up."""

    def forward(self, items: list[Item]) -> None:
        self.give(items, reduce(add, self.inputs(items)))

    def backward(self, items: list[Item]) -> None:
        self.give_all_back(items, [self.gradient(items)] * len(self.backs))


class _Difference(RowOperation):
    """One payload less another."""

    def forward(self, items: list[Item]) -> None:
        first, second = self.inputs(items)
        self.give(items, first - second)

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        self.give_all_back(items, [gradient, -gradient])


class _Product(RowOperation):
    """Payloads multiplied."""

    def forward(self, items: list[Item]) -> None:
        self.give(items, reduce(mul, self.inputs(items)))

    def backward(self, items: list[Item]) -> None:
        gradient, factors = self.gradient(items), self.inputs(items)
        ports = range(len(factors))
        others = [factors[:port] + factors[port + 1 :] for port in ports]
        self.give_all_back(items, [reduce(mul, others[port], gradient) for port in ports])


class _Concat(RowOperation):
    """Columns side by side."""

    def forward(self, items: list[Item]) -> None:
        self.give(items, np.concatenate(self.inputs(items), axis=1))

    def backward(self, items: list[Item]) -> None:
        gradient = self.gradient(items)
        cuts = pairwise(accumulate(self.node.widths, initial=0))
        self.give_all_back(items, [gradient[:, start:stop] for start, stop in cuts])


class _Joining(RowOperation):
    """Rows of several payloads in one; the gradients of all of them are in one pool."""

    def back_pool(self, port: int) -> Any:
        return self.backs[0]

    def give_every_back(self, items: list[Item], gradient: np.ndarray) -> None:
        pool = self.backs[0]
        if pool is None:
            pool = self.backs[0] = self.pools.gradients(gradient)
        pool.put(gradient, items, EVERY)


class _Grouped(_Joining):
    """Members of a group below each other."""

    def __init__(self, node: Group, place: int, pools: RowPools, tape: list[Item]) -> None:
        super().__init__(node, place, pools, tape)
        self._filling: dict[State, list[Any]] = {}

    @property
    def waits(self) -> bool:
        return bool(self._filling)

    def trace(self, port: int, state: State, ref: Any) -> Sends:
        group, number, count = self.node.place(state)
        members = self._filling.get(group)
        if members is None:
            members = self._filling[group] = [None] * count
        self.node.require_free(members, number, state)
        members[number] = ref
        if None in members:
            return ()
        del self._filling[group]
        item = self.item(group, members, sum([one[2] for one in members]))
        return ((0, group, (item, 0, item.rows, None)),)

    def forward(self, items: list[Item]) -> None:
        self.give(items, gathered([ref for item in items for ref in item.refs]))

    def backward(self, items: list[Item]) -> None:
        self.give_every_back(items, self.gradient(items))


def _by_control(items: list[Item], sizes: list[int]) -> np.ndarray:
    """Rows that controls name, of wholes that lie one after the other."""
    starts = [0, *accumulate(sizes)]
    each = zip(items, starts, strict=False)
    return np.concatenate([item.control.rows + start for item, start in each])


def _sums(items: list[Item], values: np.ndarray) -> np.ndarray:
    """The rows of each item's parts, which lie one after the other, summed as its control says."""
    controls = [cast("Partition", item.control) for item in items]
    edges = [0, *accumulate([len(one.rows) for one in controls])]
    each = zip(controls, edges[:-1], edges[1:], strict=True)
    sums = [sum_rows(control, values[start:stop]) for control, start, stop in each]
    return sums[0] if len(sums) == 1 else np.concatenate(sums)


class _Collect(_Joining):
    """Rows of several parts, summed by index."""

    def trace(self, port: int, state: State, ref: Any) -> Sends:
        refs = self.join.put(port, state, ref)
        if refs is None:
            return ()
        control = refs.pop()
        self.node.require_parts(control)
        self.node.require_rows(control, [one[2] for one in refs])
        item = self.item(state, refs, control.size)
        item.control = control
        return ((0, state, (item, 0, item.rows, None)),)

    def forward(self, items: list[Item]) -> None:
        self.give(items, _sums(items, gathered([ref for item in items for ref in item.refs])))

    def backward(self, items: list[Item]) -> None:
        rows = _by_control(items, [item.rows for item in items])
        self.give_every_back(items, self.gradient(items).take(rows, axis=0))


class _Distribute(RowOperation):
    """Rows by index, to several successors."""

    def trace(self, port: int, state: State, ref: Any) -> Sends:
        refs = self.join.put(port, state, ref)
        if refs is None:
            return ()
        whole, control = refs
        self.node.require_whole((whole[2],), control)
        self.node.require_parts(control)
        item = self.item(state, [whole], len(control.rows))
        item.control = control
        return [
            (part, state, (item, cut.start, cut.stop - cut.start, None))
            for part, cut in enumerate(control.cuts)
        ]

    def forward(self, items: list[Item]) -> None:
        refs = [item.refs[0] for item in items]
        self.give(items, gathered(refs).take(_by_control(items, [ref[2] for ref in refs]), axis=0))

    def backward(self, items: list[Item]) -> None:
        self.give_back(items, 0, _sums(items, self.gradient(items)))


OPERATIONS: Final[dict[type[Node], type[RowOperation]]] = {
    BranchLSTM: OfLstm,
    Collect: _Collect,
    Concat: _Concat,
    Difference: _Difference,
    Distribute: _Distribute,
    Dropout: _Dropout,
    Embedding: OfEmbedding,
    GRUCell: OfGru,
    Group: _Grouped,
    LSTMCell: OfLstm,
    LeafLSTM: OfLstm,
    Linear: OfLinear,
    Product: _Product,
    ReLU: _Elementwise,
    Sigmoid: _Elementwise,
    SoftmaxCrossEntropy: _CrossEntropy,
    SquaredError: _SquaredError,
    Sum: _Sum,
    Tanh: _Elementwise,
}
"""Classes whose messages are served together."""

WHY_ALONE: Final[dict[type[Node], Callable[[Any], str]]] = {
    **dict.fromkeys((*OPERATIONS, *ROUTES), lambda _node: ""),
    Group: lambda node: "adds an axis" if node.new_axis else "",
    Linear: lambda node: "has no bias" if node.bias is None else "",
    **dict.fromkeys((Product, Sum), lambda node: "has inputs of several shapes" * any(node.spread)),
    Ungroup: lambda node: "" if node.keeps_axis else "drops an axis",
}
"""Why the messages of a node cannot be served together, by its class; empty where they can."""


def operations_of(
    graph: Graph, pools: RowPools, tape: list[Item]
) -> tuple[dict[int, RowOperation], list[Any]]:
    """The operations of a graph's nodes by their places, and what traces each node's messages."""
    operations: dict[int, RowOperation] = {}
    traces: list[Any] = [None]
    for place, node in enumerate(graph.nodes[1:], 1):
        route = ROUTES.get(type(node))
        if route is None:
            made = operations[place] = OPERATIONS[type(node)](node, place, pools, tape)
            traces.append(made.trace)
        else:
            traces.append(route(node))
    return operations, traces
