"""Linear, the heavy operation of the paper's Appendix C, and what all nodes with a matrix share.

Gradients are kept as pairs until an update asks for their sum.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, ParameterizedNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import NO_WORK, Work

Start: TypeAlias = Callable[[np.random.Generator], np.ndarray]
"""Draws a first weight, in its own shape, from the run's stream for that node."""

ROWS_JOINED: Final = 8192
"""Rows of one product of pairs; chosen: it bounds the copy, and a larger product gains nothing."""

OPERATIONS_OF_SUM: Final = 4
"""Of an update, before the optimizer's: stack x and g, form Xᵀ G and the column sums of G."""

LARGE_ROWS: Final = 32
"""Rows from which on a message's own product is as fast as its share of a larger; measured."""


class Pairs:
    """Gradients of a matrix and its bias, as pairs (x, g) until an update asks for their sum.

    Several matrices (…, d_in, d_out) of one x have their g one after the other, (…, rows, d_out),
    and their biases (…, d_out).

    The sum is in the order of the pairs' states, whichever came first: it is the same to the bit
    wherever the same gradients meet. Pairs of few rows become one large product instead of one
    outer product each (`tests/benchmark/bench_cells.py`); pairs of many rows gain nothing from
    that, and have a product each, without a copy.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[State, np.ndarray, np.ndarray]] = []

    def add(self, state: State, inputs: np.ndarray, gradients: np.ndarray) -> None:
        """Keep one message's input (rows, d_in) and gradient (rows, d_out); nobody writes them."""
        if len(inputs):
            self._waiting.append((state, inputs, gradients))

    def take(self, weight: np.ndarray, bias: np.ndarray) -> None:
        """Write Xᵀ G into `weight` and the column sums of G into `bias`, and start anew."""
        waiting, self._waiting = by_state(self._waiting), []
        try:
            self._sum(waiting, weight, bias)
        except ValueError as error:
            kinds = {f"{x.dtype}{x.shape} and {g.dtype}{g.shape}" for _state, x, g in waiting}
            raise ValueError(
                f"expected inputs and gradients that give {weight.dtype}{weight.shape}, got "
                f"{'; '.join(sorted(kinds)[:2])}"
            ) from error

    def _sum(
        self,
        waiting: list[tuple[State, np.ndarray, np.ndarray]],
        weight: np.ndarray,
        bias: np.ndarray,
    ) -> None:
        """Add the products of pairs, in their order."""
        products = _joined(waiting)
        first = next(products, None)
        if first is None:
            weight[...], bias[...] = 0, 0
            return
        _product(*first, weight, bias)
        more: tuple[np.ndarray, np.ndarray] | None = None
        for inputs, gradients in products:
            more = more or (np.empty_like(weight), np.empty_like(bias))
            _product(inputs, gradients, *more)
            weight += more[0]
            bias += more[1]


Kept = TypeVar("Kept", bound="tuple[Any, ...]")
"""What waits for an update: the state of its message, and what there is of it."""


def by_state(kept: list[Kept]) -> list[Kept]:
    """Sort by the states of messages, so that a sum does not depend on the order of arrival.

    States that cannot be compared, as where a field is now None and now a number, are sorted by
    what they read as.
    """
    if len(kept) < 2:
        return kept
    try:
        return sorted(kept, key=itemgetter(0))
    except TypeError:
        return sorted(kept, key=lambda one: repr(one[0]))


def _joined(
    waiting: Iterable[tuple[State, np.ndarray, np.ndarray]],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The factors of each product: of many rows one pair, of few rows all that wait together."""
    inputs: list[np.ndarray] = []
    gradients: list[np.ndarray] = []
    rows = 0
    for _state, x, g in waiting:
        if len(x) >= LARGE_ROWS:
            yield x, g
            continue
        inputs.append(x)
        gradients.append(g)
        rows += len(x)
        if rows > ROWS_JOINED:
            yield stack(inputs), stack(gradients, axis=-2)
            inputs, gradients, rows = [], [], 0
    if inputs:
        yield stack(inputs), stack(gradients, axis=-2)


def _product(
    inputs: np.ndarray, gradients: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> None:
    """Write Xᵀ G and the column sums of G; the sums as a product too, which is faster.

    Of one row `np.matmul` multiplies without BLAS, seven times as slowly as `np.dot`.
    """
    (np.dot if gradients.ndim == 2 else np.matmul)(inputs.T, gradients, out=weight)
    np.matmul(_ones(len(inputs), gradients.dtype), gradients, out=bias)


@lru_cache(maxsize=256)
def _ones(rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A vector of ones, for `_product` alone: nobody writes it."""
    return np.ones(rows, dtype)


FEW_ROWS: Final = 8  # measured: up to about these, nothing is faster than a view of Wᵀ
FEW_WEIGHTS: Final = 1 << 15  # chosen: of smaller ones a product costs little more than its call
SMALL_WEIGHT: Final = 1 << 18  # chosen: larger ones cost more to copy than one product gains
SMALL_PRODUCT: Final = 10**6  # OpenBLAS: so many multiplications use no copy (SkylakeX, permit)


class Transposed:
    """Wᵀ of one version of W, multiplied in the way that is fastest for the number of rows.

    OpenBLAS is slow where the right matrix is transposed (`tests/benchmark/bench_cells.py`). Of a
    small W, Wᵀ is copied once there are rows enough to pay for it: between about 8 and 100 rows a
    product then takes half as long. Of a large W, (W gᵀ)ᵀ is formed, which saves a tenth; its
    columns lie one after the other, which suits the products that follow.
    """

    __slots__ = ("_copy", "_weight")

    def __init__(self, weight: np.ndarray) -> None:
        self._weight = weight
        self._copy: np.ndarray | None = None

    def matrix(self, rows: int) -> np.ndarray:
        """Return Wᵀ (d_out, d_in) to multiply `rows` with; a view, if few or W large, or a copy."""
        if rows <= FEW_ROWS or self._weight.size > SMALL_WEIGHT:
            return self._weight.T
        if self._copy is None:
            self._copy = np.ascontiguousarray(self._weight.T)
        return self._copy

    def after(self, gradient: np.ndarray) -> np.ndarray:
        """Return g Wᵀ, for g of (rows, d_out)."""
        rows = len(gradient)
        if rows > FEW_ROWS and self._weight.size > SMALL_WEIGHT:
            return (self._weight @ gradient.T).T
        return gradient @ self.matrix(rows)

    def after_few(self, gradient: np.ndarray) -> np.ndarray:
        """Return g Wᵀ, for g of few rows of many messages (`product_of_few`)."""
        rows, weight = len(gradient), self._weight
        if rows <= FEW_ROWS // 2 or weight.size <= SMALL_WEIGHT:
            return product_of_few(gradient, self.matrix(rows))
        return product_of_few(gradient, weight, transposed=True)


def product_of_few(x: np.ndarray, weight: np.ndarray, *, transposed: bool = False) -> np.ndarray:
    """Return x W, or (W xᵀ)ᵀ, of few rows: of a multiple of four, with which OpenBLAS is faster.

    Two rows of a large W are two products of a vector, which read W twice and are faster too; up to
    four are a product for each piece of W, small enough that kernels for AVX-512 copy nothing.
    """
    rows = len(x)
    if rows == 1 or rows > LARGE_ROWS or weight.size < FEW_WEIGHTS:
        return (weight @ x.T).T if transposed else x @ weight
    matrix = weight.T if transposed else weight
    if rows == 2 and weight.size > SMALL_WEIGHT:
        product = np.empty((rows, matrix.shape[1]), x.dtype)
        np.dot(x[0], matrix, out=product[0])
        np.dot(x[1], matrix, out=product[1])
        return product
    if more := -rows % 4:
        padded = np.zeros((rows + more, x.shape[1]), x.dtype)
        padded[:rows] = x
        x = padded
    pieces = -(-len(x) * weight.size // SMALL_PRODUCT)
    if len(x) > 4 or pieces == 1:
        return ((weight @ x.T).T if transposed else x @ weight)[:rows]
    product = np.empty((len(x), matrix.shape[1]), x.dtype)
    width = -(-matrix.shape[1] // pieces)
    for start in range(0, matrix.shape[1], width):
        np.matmul(x, matrix[:, start : start + width], out=product[:, start : start + width])
    return product[:rows]


def update_work(
    node: ParameterizedNode, operations: int, flop: int, moved: int, changed: int, *, more: int = 0
) -> Work:
    """The work of an update, whose passes are the optimizer's; writing Xᵀ G is the product's.

    Args:
        node: whose parameters they are.
        operations: before those of the optimizer.
        flop: of the update.
        moved: bytes that it reads and writes at least.
        changed: parameters that it changes.
        more: arrays of their size that it reads and writes beside those of the optimizer.
    """
    calls = node.step_calls
    return Work(
        flop,
        moved,
        operations + calls.operations,
        pass_bytes=(calls.passes + more) * changed * node.theta.itemsize,
        functions=calls.functions * changed,
    )


def stack(arrays: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """Stack rows; a single array needs no copy."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)


class MatrixNode(ParameterizedNode, CachingNode):
    """A node that multiplies rows, put together from its inputs, with one matrix.

    Attributes:
        widths: columns that each input contributes to the product.
        d_in: columns of the product's left side, the sum of `widths`.
        d_out: columns of the product.
        operations: of a forward step (least: a product), of a backward step beside `sent_back`
            (least: the pair's share of a product), and of an update before the optimizer's.
    """

    operations: tuple[int, int, int] = (2, 1, OPERATIONS_OF_SUM)

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
            return update_work(self, self.operations[2], weights, moved, self.parameter_count)
        if shape is None:
            return NO_WORK
        rows = math.prod(shape[:-1])
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
        operations = self.operations[0]
        if direction is Direction.BACKWARD:
            more, sent = self.sent_back()
            operations, elements = self.operations[1] + more, elements + sent
        passed, count = rows * elements * self.theta.itemsize, rows * functions
        return Work(flop, moved, operations, weight_bytes, passed, count)

    def sent_back(self) -> tuple[int, int]:
        """Operations of the input gradients that are needed, and elements that they pass over."""
        return int(any(self.input_needs_gradient)), 0

    def product_rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        """Count the rows over all axes but the columns."""
        return math.prod(shape[:-1])

    def passed_elements(self, direction: Direction) -> tuple[int, int]:
        """Elements that operations beside the product read and write, and functions, for a row.

        Forward, the bias is added; backward, the pair is copied below others before the update.
        """
        if direction is Direction.BACKWARD:
            return 2 * (self.d_in + self.d_out), 0
        return 2 * self.d_out * (self.operations[0] - 1), 0


class InHalves(ParameterizedNode, CachingNode):
    """A node of one input whose backward step can be taken in two halves."""

    @abstractmethod
    def accumulate(self, state: State, saved: Payload, gradient: Payload) -> None:
        """Keep one message's gradient of the parameters, to be added in the order of states."""

    @abstractmethod
    def _of_input(self, saved: Payload, gradient: Payload) -> Payload:
        """The gradient of the input that was `saved`, with the weights of the moment."""

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate, and send the input's gradient, with the weights of the moment."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        is_needed = self.input_needs_gradient[0]
        if self.is_abstract:
            return ((0, state, saved if is_needed else None),)
        self.accumulate(state, saved, gradient)
        return ((0, state, self._of_input(saved, gradient) if is_needed else None),)

    def backward_input(self, state: State, gradient: Payload) -> Sends:
        """The first half of `backward`, for schedules that split it: send the input's gradient."""
        if gradient is None or not self.input_needs_gradient[0]:
            return ((0, state, None),)
        saved, _version = self._saved[state]
        return ((0, state, saved if self.is_abstract else self._of_input(saved, gradient)),)

    def backward_weight(self, state: State, gradient: Payload) -> None:
        """The second half, any time after the first: accumulate the parameter gradient."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return
        self.count_gradient(state, version)
        if not self.is_abstract:
            self.accumulate(state, saved, gradient)


class Linear(InHalves, MatrixNode):
    """y = x W + b, for x of k rows and d_in columns and W of d_in x d_out.

    x may have more axes before its columns, as a sequence of rows has; all of them are rows.

    Args:
        name: the node's name.
        d_in: columns of x.
        d_out: columns of y.
        start: draws the first W, (d_in, d_out), and b starts at 0; or both, (d_in + 1, d_out), of
            which b is the last row. By default both are drawn uniformly from ±1/√d_in, as
            PyTorch's Linear does.
        has_bias: whether there is a b, which is learned; without, y = x W.

    Raises:
        GraphError: a width is below 1.
    """

    @checked
    def __init__(
        self, name: str, d_in: int, d_out: int, *, start: Start | None = None, has_bias: bool = True
    ) -> None:
        if d_in < 1 or d_out < 1:
            raise GraphError(f"{name}: widths must be >= 1, got d_in={d_in}, d_out={d_out}")
        shapes: dict[str, tuple[int, ...]] = {"weight": (d_in, d_out), "bias": (d_out,)}
        if not has_bias:
            del shapes["bias"]
        super().__init__(name, shapes, (d_in,), d_out)
        self._pairs = Pairs()
        self._start = start
        self.operations = (1 + has_bias, 1, OPERATIONS_OF_SUM)

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the parameters that training starts from, flat."""
        if self._start is not None:
            drawn = self._start(generator)
            if drawn.shape == (self.d_in, self.d_out) and "bias" in self.parameter_shapes:
                drawn = np.vstack([drawn, np.zeros(self.d_out)])
            assert drawn.size == self.parameter_count and drawn.shape[1:] == (self.d_out,), (
                f"{self.name}: start drew {drawn.shape}"
            )
            return drawn.reshape(-1)
        bound = 1.0 / math.sqrt(self.d_in)
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, *bias = self.parts(theta)
        self.bias = bias[0] if bias else None
        self._transposed = Transposed(self.weight)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send x W + b; record x and the version of W under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        if self.is_abstract:
            return ((0, state, standin((*payload.shape[:-1], self.d_out), payload.itemsize)),)
        if not len(payload):  # as of a type of bond that a molecule has not: no product
            return ((0, state, np.empty((*payload.shape[:-1], self.d_out), payload.dtype)),)
        try:
            output = payload @ self.weight
        except (TypeError, ValueError) as error:
            raise self._misfit(payload) from error
        if output.dtype is not self.weight.dtype and output.dtype != self.weight.dtype:
            raise self._misfit(payload)
        if self.bias is not None:
            output += self.bias
        return ((0, state, output),)

    def _misfit(self, payload: np.ndarray) -> ValueError:
        return ValueError(
            f"expected (rows, {self.d_in}) of numbers that go with {self.weight.dtype}, the model's"
            f" dtype, got {payload.dtype}{payload.shape}; correct the data, the pump or the sender"
        )

    def accumulate(self, state: State, saved: Payload, gradient: Payload) -> None:
        """Keep the pair of input and gradient."""
        if gradient.ndim > 2:
            saved, gradient = saved.reshape(-1, self.d_in), gradient.reshape(-1, self.d_out)
        self._pairs.add(state, saved, gradient)

    def _of_input(self, saved: Payload, gradient: Payload) -> Payload:
        if gradient.ndim == 2:
            return self._transposed.after(gradient)
        return self._transposed.after(gradient.reshape(-1, self.d_out)).reshape(saved.shape)

    def back(self, gradient: np.ndarray) -> np.ndarray:
        """Return g Wᵀ, for g of the rows of many messages."""
        return self._transposed.after_few(gradient)

    def work_of_halves(self, shape: tuple[int, ...] | None) -> tuple[Work, Work]:
        """Return the work of the two halves of a backward step; their sum is that of the whole."""
        if shape is None:
            return NO_WORK, NO_WORK
        whole, rows = self.work(Direction.BACKWARD, shape), math.prod(shape[:-1])
        moved = rows * (self.d_in + self.d_out) * self.theta.itemsize
        flop = 2 * rows * self.d_in * self.d_out
        weight = Work(flop, moved, pass_bytes=whole.pass_bytes)
        flop, moved = whole.flop - weight.flop, whole.bytes - weight.bytes
        return Work(flop, moved, weight_bytes=whole.weight_bytes), weight

    def take_gradient(self) -> np.ndarray:
        """Form (Xᵀ G, column sums of G) over all accumulated messages, flat."""
        flat = np.empty_like(self.theta)
        weight, *bias = self.parts(flat)
        self._pairs.take(weight, bias[0] if bias else np.empty(self.d_out, flat.dtype))
        return flat

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, d_in), or more axes before the columns; return them with d_out."""
        (shape,) = known(shapes)
        fits = len(shape) >= 2 and shape[-1] == self.d_in
        require(fits, self, f"(rows, {self.d_in})", shape)
        return ((*shape[:-1], self.d_out),)
