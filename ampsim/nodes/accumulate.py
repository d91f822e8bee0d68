"""What nodes share whose work is a product with a matrix: gradients kept as pairs, and the cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ampsim.ir import NO_WORK, Direction, ParameterizedNode, State, Work

ROWS_HELD: Final = 8192
"""Rows that wait at most; chosen: it bounds their memory, and a larger product gains nothing."""

OPERATIONS_OF_UPDATE: Final = 6
"""Stack x and g, form Xᵀ G and the column sums of G, and the two of plain gradient descent."""

OPERATIONS_OF_STATE: Final = 4
"""More operations for each array that the optimizer keeps: Adam, which keeps two, has ten."""

PASSES_OF_UPDATE: Final = 6
"""Arrays of the parameters' size that an update reads and writes, operation by operation: Xᵀ G,
the gradient times the rate, and the weights less that."""

PASSES_OF_STATE: Final = 9
"""More of them for each array that the optimizer keeps: Adam, with two, has 24."""

ROOTED_ARRAYS: Final = 2
"""Arrays of an optimizer from which on it takes a root of every element: Adam's."""

LARGE_ROWS: Final = 32
"""Rows from which on a message's own product is as fast as its share of a larger; measured."""


class Pairs:
    """Gradients of a matrix and its bias, as pairs (x, g) until an update asks for their sum.

    Several matrices (…, d_in, d_out) of one x have their g one after the other, (…, rows, d_out),
    and their biases (…, d_out).

    Pairs of few rows wait, and Xᵀ G is formed once per update from all of them: one large product
    instead of one outer product per message (`tests/benchmark/bench_cells.py`). Pairs of many
    rows gain nothing from that and are summed up as they come, without a copy. Only the first of
    them waits for the second: where none comes, its product is formed in place, once.
    """

    __slots__ = ("_first", "_gradients", "_inputs", "_rows", "_sums")

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._inputs: list[np.ndarray] = []
        self._gradients: list[np.ndarray] = []
        self._rows = 0
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        self._sums: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, inputs: np.ndarray, gradients: np.ndarray) -> None:
        """Keep one message's input (rows, d_in) and gradient (rows, d_out); nobody writes them."""
        rows = len(inputs)
        if not rows:
            return
        if rows >= LARGE_ROWS:
            self._add_large(inputs, gradients)
            return
        self._inputs.append(inputs)
        self._gradients.append(gradients)
        self._rows += rows
        if self._rows > ROWS_HELD:
            self._add_large(*self._waiting())

    def take(self, weight: np.ndarray, bias: np.ndarray) -> None:
        """Write Xᵀ G into `weight` and the column sums of G into `bias`, and start anew."""
        if self._inputs and (self._first or self._sums):
            self._add_large(*self._waiting())
        if self._sums:
            weight[...], bias[...] = self._sums
        elif self._first:
            _product(*self._first, weight, bias)
        elif self._inputs:
            _product(*self._waiting(), weight, bias)
        else:
            weight[...], bias[...] = 0, 0
        self._start()

    def _waiting(self) -> tuple[np.ndarray, np.ndarray]:
        """Join the pairs of few rows; none of them waits any longer."""
        joined = stack(self._inputs), stack(self._gradients, axis=-2)
        self._inputs, self._gradients, self._rows = [], [], 0
        return joined

    def _add_large(self, inputs: np.ndarray, gradients: np.ndarray) -> None:
        if self._sums:
            weight, bias = _new_product(inputs, gradients)
            np.add(self._sums[0], weight, out=self._sums[0])
            np.add(self._sums[1], bias, out=self._sums[1])
        elif self._first:
            self._sums = _new_product(*self._first)
            self._first = None
            self._add_large(inputs, gradients)
        else:
            self._first = (inputs, gradients)


def _new_product(inputs: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    *matrices, _rows, d_out = gradients.shape
    weight = np.empty((*matrices, inputs.shape[1], d_out), gradients.dtype)
    bias = np.empty((*matrices, d_out), gradients.dtype)
    _product(inputs, gradients, weight, bias)
    return weight, bias


def _product(
    inputs: np.ndarray, gradients: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> None:
    """Write Xᵀ G and the column sums of G; the sums as a product too, which is faster."""
    np.matmul(inputs.T, gradients, out=weight)
    np.matmul(_ones(len(inputs), gradients.dtype), gradients, out=bias)


@lru_cache(maxsize=256)
def _ones(rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A vector of ones, for `_product` alone: nobody writes it."""
    return np.ones(rows, dtype)


def update_work(
    node: ParameterizedNode, operations: int, flop: int, moved: int, changed: int, *, more: int = 0
) -> Work:
    """The work of an update.

    Args:
        node: whose parameters they are.
        operations: of an optimizer that keeps nothing.
        flop: of the update.
        moved: bytes that it reads and writes at least.
        changed: parameters that it changes.
        more: arrays of their size that it reads and writes beside those of the optimizer.
    """
    states = node.state_arrays
    arrays = PASSES_OF_UPDATE + PASSES_OF_STATE * states + more
    return Work(
        flop,
        moved,
        operations + OPERATIONS_OF_STATE * states,
        pass_bytes=arrays * changed * node.theta.itemsize,
        functions=changed if states >= ROOTED_ARRAYS else 0,
    )


def stack(arrays: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """Stack rows; a single array needs no copy."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)


class MatrixNode(ParameterizedNode):
    """A node that multiplies rows, put together from its inputs, with one matrix.

    Attributes:
        widths: columns that each input contributes to the product.
        d_in: columns of the product's left side, the sum of `widths`.
        d_out: columns of the product.
        operations: of a forward step (least: product and bias), and of a backward step that sends
            every input a gradient (least: the pair's share of a product, and a product).
    """

    operations: tuple[int, int] = (2, 2)

    def __init__(
        self,
        name: str,
        parameter_shapes: dict[str, tuple[int, ...]],
        widths: tuple[int, ...],
        d_out: int,
    ) -> None:
        super().__init__(name, parameter_shapes)
        self.widths = widths
        self.d_in = sum(widths)
        self.d_out = d_out
        self._saved: dict[State, Any] = {}

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count 2·k·d_in·d_out for each matrix product and d_in·d_out for an update (Appendix C).

        Backward is the gradient accumulation, and the input gradient only of the inputs that need
        one; nothing, where the gradient was None. Accumulation keeps a pair (`Pairs`): the bytes of
        the matrix Xᵀ G are the update's, which writes and reads it, the weights, and what the
        optimizer keeps.
        """
        itemsize = self.theta.itemsize
        weights = self.d_in * self.d_out
        if direction is Direction.UPDATE:
            moved = (4 + 2 * self.state_arrays) * self.parameter_count * itemsize
            return update_work(self, OPERATIONS_OF_UPDATE, weights, moved, self.parameter_count)
        if shape is None:
            return NO_WORK
        rows = shape[0]
        product = 2 * rows * weights
        moved = rows * (self.d_in + self.d_out) * itemsize
        if direction is Direction.FORWARD:
            weight_bytes = self.parameter_count * itemsize
            moved += weight_bytes
            return self._with_passes(direction, rows, product, moved, weight_bytes)
        needed = sum(
            width
            for width, is_needed in zip(self.widths, self.input_needs_gradient, strict=True)
            if is_needed
        )
        if not needed:
            return self._with_passes(direction, rows, product, moved, 0)
        weight_bytes = self.parameter_count * needed // self.d_in * itemsize
        moved += rows * (needed + self.d_out) * itemsize + weight_bytes
        product += 2 * rows * needed * self.d_out
        return self._with_passes(direction, rows, product, moved, weight_bytes)

    def _with_passes(
        self, direction: Direction, rows: int, flop: int, moved: int, weight_bytes: int
    ) -> Work:
        """The work of a product, with what the step's other operations do."""
        elements, functions = self.passed_elements(direction)
        is_back = direction is Direction.BACKWARD
        passed, count = rows * elements * self.theta.itemsize, rows * functions
        return Work(flop, moved, self.operations[is_back], weight_bytes, passed, count)

    def passed_elements(self, direction: Direction) -> tuple[int, int]:
        """Elements that operations beside the product read and write, and functions, for a row.

        Forward, the bias is added; backward, the pair is copied below others before the update.
        """
        forward = direction is Direction.FORWARD
        return 2 * (self.d_out if forward else self.d_in + self.d_out), 0

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()
