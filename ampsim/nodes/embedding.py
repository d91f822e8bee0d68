"""Embedding: a lookup table, "just another parameterized payload transform" (Section 4)."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, ParameterizedNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import NO_WORK, Work
from ampsim.nodes.linear import Start, by_state, stack, update_work

OPERATIONS_OF_SUM: Final = 11
"""Stack indices and gradients, find the rows, sort, sum by row (5), gather and scatter."""

PASSES_OF_SUM: Final = 5
"""Arrays of a gradient's size that an update reads and writes to sum it by row: the copy below
others, the copy in the order of their rows, and the sum."""

FEW_ROWS: Final = 64  # chosen: a one-hot product is the faster up to about this many rows


def require_places(index: np.ndarray) -> None:
    """Check places of rows, of which NumPy counts those below 0 from the end.

    Raises:
        IndexError: one is below 0.
    """
    if index.min(initial=0) < 0:
        raise IndexError(f"index {index.min()} is below 0")


class Embedding(ParameterizedNode, CachingNode):
    """Rows of a table of `vocabulary` x `width`, looked up by integer payloads of any shape.

    A lookup multiplies nothing, so forward and backward count no FLOP; an update counts one per
    parameter that it changes, as Appendix C does for a fully connected layer. Those are all of
    them, or with `is_sparse` the rows looked up since the last update: cost and accumulated
    gradients then follow the rows, not the vocabulary, and an optimizer's memory of a row rests
    while the row does (as PyTorch's SparseAdam; a dense Adam would let it decay).

    Args:
        name: the node's name.
        vocabulary: rows of the table.
        width: columns of the table.
        is_sparse: update only rows that were looked up.
        start: draws the first table, (vocabulary, width); by default from the standard normal
            distribution, as PyTorch's Embedding does.
        gradient_factor: what gradients of the table are multiplied by before an update.
        padding: row whose gradient is 0, so that plain steps leave it as it is; None for none.

    Raises:
        GraphError: an extent is below 1, the factor no finite number above 0, or the padding
            no row of the table.
    """

    @checked
    def __init__(
        self,
        name: str,
        vocabulary: int,
        width: int,
        *,
        is_sparse: bool = False,
        start: Start | None = None,
        gradient_factor: float = 1.0,
        padding: int | None = None,
    ) -> None:
        if vocabulary < 1 or width < 1:
            raise GraphError(
                f"{name}: extents must be >= 1, got vocabulary={vocabulary}, width={width}"
            )
        if not 0 < gradient_factor < math.inf:
            raise GraphError(
                f"{name}: gradient_factor must be finite and > 0, got {gradient_factor}"
            )
        if padding is not None and not 0 <= padding < vocabulary:
            raise GraphError(
                f"{name}: padding must be a row from 0 to {vocabulary - 1}, got {padding}"
            )
        super().__init__(name, {"weight": (vocabulary, width)})
        self.vocabulary = vocabulary
        self.width = width
        self.is_sparse = is_sparse
        self._start = start
        self._factor = gradient_factor
        self._padding = padding
        self._pairs: list[tuple[State, np.ndarray, np.ndarray]] = []

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the table that training starts from, flat."""
        if self._start is not None:
            table = self._start(generator)
            shape = (self.vocabulary, self.width)
            assert table.shape == shape, f"{self.name}: start drew {table.shape}"
            return table.reshape(-1)
        return generator.standard_normal(self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind the table to the new parameters."""
        super().adopt(theta)
        self.weight = self.views(theta)["weight"]

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the rows; record the indices and the table's version under the state."""
        require_places(payload)
        if self.is_training:
            self._saved[state] = (payload, self.version)
        if self.is_abstract:
            return ((0, state, standin((*payload.shape, self.width), self.theta.itemsize)),)
        return ((0, state, self.weight[payload]),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate; indices have no gradient, so None goes back."""
        indices, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        if self.is_abstract and self.is_sparse:  # the rows touched decide what an update costs
            self._pairs.append((state, indices.reshape(-1), np.empty((indices.size, 0))))
        elif not self.is_abstract:
            self.accumulate(state, indices, gradient)
        return ((0, state, None),)

    def accumulate(self, state: State, indices: np.ndarray, gradient: np.ndarray) -> None:
        """Keep the gradient of rows, to be added in the order of states."""
        self._pairs.append((state, indices.reshape(-1), gradient.reshape(-1, self.width)))

    def take_gradient(self) -> np.ndarray:
        """Sum the gradients of each row of the table over all accumulated messages, flat."""
        flat = np.zeros_like(self.theta)
        table = self.views(flat)["weight"]
        if self._pairs and self.vocabulary <= FEW_ROWS:
            indices, gradients = self._take_pairs()
            np.matmul(one_hot(np.arange(self.vocabulary), indices, flat.dtype), gradients, table)
        elif self._pairs:
            rows, sums = sums_by_row(*self._take_pairs())
            table[rows] = sums
        if self._padding is not None:
            table[self._padding] = 0
        if self._factor != 1:
            flat *= self._factor
        return flat

    def take_rows(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the rows looked up and the sums of their gradients; None unless sparse."""
        if not self.is_sparse:
            return None
        rows, sums = sums_by_row(*self._take_pairs())
        if self._factor != 1:
            sums *= self._factor
        if self._padding is not None:
            sums[rows == self._padding] = 0
        return rows, sums

    @property
    def rows_touched(self) -> int | None:
        """Count of rows that have been looked up since the last update; None unless sparse."""
        if not self.is_sparse:
            return None
        looked_up = [indices for _state, indices, _gradients in self._pairs]
        return len(np.unique(stack(looked_up))) if looked_up else 0

    def _take_pairs(self) -> tuple[np.ndarray, np.ndarray]:
        _states, indices, gradients = zip(*by_state(self._pairs), strict=True)
        self._pairs = []
        return stack(indices), stack(gradients)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count bytes moved; FLOP for the update only, whose shape is the rows touched."""
        itemsize = self.theta.itemsize
        if direction is Direction.UPDATE:
            changed = self.parameter_count if shape is None else shape[0] * self.width
            moved = (3 + 2 * self.state_arrays) * changed * itemsize
            more, calls = 1, OPERATIONS_OF_SUM  # zeros, in which sums are put
            if self.is_sparse:  # these rows and what is kept of them are gathered, and put back
                more, calls = 4 * (1 + self.state_arrays), calls + 2 * self.state_arrays
            return update_work(self, calls, changed, moved, changed, more=more)
        if shape is None:
            return NO_WORK
        if direction is Direction.BACKWARD:
            gradient_bytes = math.prod(shape) * itemsize
            return Work(0, 2 * gradient_bytes, pass_bytes=PASSES_OF_SUM * gradient_bytes)
        moved = math.prod(shape) * self.width * itemsize
        return Work(0, 2 * moved, 2, 0 if self.is_sparse else moved)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Append the width to the shape of the indices."""
        (shape,) = known(shapes)
        require(len(shape) >= 1, self, "an array of indices", shape)
        return ((*shape, self.width),)


def sums_by_row(indices: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct `indices`, ascending, and the sum of the `gradients` of each.

    Few distinct rows are one product with a one-hot matrix, many are sums over runs of sorted
    indices; `np.add.at` takes several times as long (`tests/benchmark/bench_embedding.py`).
    """
    rows, place = np.unique(indices, return_inverse=True)
    if len(rows) <= FEW_ROWS:
        return rows, one_hot(np.arange(len(rows)), place, gradients.dtype) @ gradients
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(rows)))
    return rows, np.add.reduceat(gradients[order], starts, axis=0)


def one_hot(rows: np.ndarray, indices: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the matrix (rows, indices) that is 1 where an index is the row's, else 0."""
    return (rows[:, None] == indices).astype(dtype)
