"""Embedding: a lookup table, "just another parameterized payload transform" (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ampsim.errors import GraphError
from ampsim.ir import Direction, ParameterizedNode, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require

SMALL_TABLE: Final = 64  # chosen: the one-hot product is the faster up to about this many rows


class Embedding(ParameterizedNode):
    """Rows of a table of `vocabulary` x `width`, looked up by integer payloads of any shape.

    A lookup multiplies nothing, so forward and backward count no FLOP; an update counts one per
    parameter, as Appendix C does for a fully connected layer.
    """

    def __init__(self, name: str, vocabulary: int, width: int) -> None:
        """Hold `vocabulary` rows of `width`.

        Raises:
            GraphError: an extent is below 1.
        """
        if vocabulary < 1 or width < 1:
            raise GraphError(
                f"{name}: extents must be >= 1, got vocabulary={vocabulary}, width={width}"
            )
        super().__init__(name, {"weight": (vocabulary, width)})
        self.vocabulary = vocabulary
        self.width = width
        self._saved: dict[State, tuple[np.ndarray, int]] = {}
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw from the standard normal distribution, as PyTorch's Embedding does."""
        return generator.standard_normal(self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind the table to the new parameters."""
        super().adopt(theta)
        self.weight = self.views(theta)["weight"]

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the rows; record the indices and the table's version under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        if self.is_abstract:
            return ((0, state, Standin((*payload.shape, self.width), self.theta.itemsize)),)
        return ((0, state, self.weight[payload]),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate; indices have no gradient, so None goes back."""
        indices, version = self._saved.pop(state)
        self.count_gradient(state, version)
        if not self.is_abstract:
            self._pairs.append((indices.reshape(-1), gradient.reshape(-1, self.width)))
        return ((0, state, None),)

    def take_gradient(self) -> np.ndarray:
        """Sum the gradients of each row of the table over all accumulated messages, flat."""
        flat = np.zeros_like(self.theta)
        if self._pairs:
            indices, gradients = map(np.concatenate, zip(*self._pairs, strict=True))
            _add_rows(self.views(flat)["weight"], indices, gradients)
        self._pairs = []
        return flat

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count bytes moved; FLOP only for the update."""
        itemsize = self.theta.itemsize
        if direction is Direction.UPDATE:
            return Work(self.parameter_count, 3 * self.parameter_count * itemsize)
        assert shape is not None
        return Work(0, 2 * int(np.prod(shape)) * self.width * itemsize)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Append the width to the shape of the indices."""
        (shape,) = known(shapes)
        require(len(shape) >= 1, self, "an array of indices", shape)
        return ((*shape, self.width),)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()


def _add_rows(table: np.ndarray, indices: np.ndarray, gradients: np.ndarray) -> None:
    """Add each row of `gradients` to the row of a zero `table` that its index names.

    A small table is one product with the indices' one-hot matrix, a large one sums runs of
    sorted indices; `np.add.at` takes ten times as long (`tests/benchmark/bench_embedding.py`).
    """
    if len(table) <= SMALL_TABLE:
        chosen = np.arange(len(table))[:, None] == indices
        np.matmul(chosen.astype(gradients.dtype), gradients, out=table)
        return
    order = np.argsort(indices, kind="stable")
    rows, starts = np.unique(indices[order], return_index=True)
    table[rows] = np.add.reduceat(gradients[order], starts, axis=0)
