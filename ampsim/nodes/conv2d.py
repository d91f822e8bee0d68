"""Conv2d: a filter over all windows of an image, a product of matrices (`im2col`).

Source: the operation is that of PyTorch's `Conv2d` (cross-correlation, zeros around the image). To
lay windows out as columns of one matrix: Chellapilla, Puri and Simard, "High performance
convolutional neural networks for document processing", 2006. Its FLOP are those of that product,
counted as Appendix C of AMPNet counts a linear layer's: 2 for each multiplication and addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import (
    NO_WORK,
    Direction,
    ParameterizedNode,
    Payload,
    Sends,
    Shape,
    Standin,
    State,
    Work,
)
from ampsim.ir.shapes import known
from ampsim.nodes.accumulate import update_work
from ampsim.nodes.windows import Windows
from ampsim.options import Count

COLUMN_ELEMENTS: Final = 1 << 18
"""Numbers in the columns of the images that are taken at once; measured: they stay in cache."""

OPERATIONS: Final = (3, 3, 2)
"""Columns, product and bias; columns, product and sum; and of the input a product and a fold."""

OPERATIONS_OF_UPDATE: Final = 4
"""Bring weight and bias into one vector, and the two of plain gradient descent."""

Extents = tuple[int, int, int, int]


class Conv2d(ParameterizedNode):
    """y = the windows of x times W, + b; x is (rows, channels, height, width).

    W is (filters, channels, kernel, kernel), b (filters,), y (rows, filters, windows down, windows
    across). A step keeps x, and lays its windows out again on the way back.

    Args:
        name: the node's name.
        channels: of x.
        filters: channels of y.
        kernel: height and width of a window.
        stride: pixels from window to window.
        padding: zeros around the image, on each side.

    Attributes:
        windows: kernel, stride and padding.
    """

    @checked
    def __init__(
        self,
        name: str,
        channels: Count,
        filters: Count,
        kernel: Count,
        *,
        stride: Count = 1,
        padding: int = 0,
    ) -> None:
        """Map `channels` to `filters`.

        Raises:
            GraphError: the padding is below 0, or as wide as the kernel.
            OptionError: another number is below 1.
        """
        self.windows = Windows(kernel, stride, padding)
        self.windows.require_valid(name, kernel - 1)
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (filters, channels, kernel, kernel),
            "bias": (filters,),
        }
        super().__init__(name, shapes)
        self.channels = channels
        self.filters = filters
        self._matrix_shape = (filters, channels * kernel**2)
        self._saved: dict[State, tuple[Payload, int]] = {}
        self._sums: tuple[np.ndarray, np.ndarray] | None = None

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from ±1/√(channels · kernel²), as PyTorch's Conv2d does."""
        bound = 1.0 / math.sqrt(self._matrix_shape[1])
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, self.bias = self.parts(theta)
        self._matrix = self.weight.reshape(self._matrix_shape)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the filtered images; record x and the version of W under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        shape = self._sent(payload.shape)
        if self.is_abstract:
            return ((0, state, Standin(shape, payload.itemsize)),)
        rows, filters, high, wide = shape
        output = np.empty((filters, rows, high, wide), payload.dtype)
        for some in self._blocks(shape):
            product = self._matrix @ self.windows.columns(payload[some])
            product += self.bias[:, None]
            output[:, some] = product.reshape(filters, -1, high, wide)
        return ((0, state, output.swapaxes(0, 1)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate, and send the gradient of x, with the weights of the moment."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        is_needed = self.input_needs_gradient[0]
        if self.is_abstract:
            return ((0, state, saved if is_needed else None),)
        self._accumulate(saved, gradient)
        return ((0, state, self._of_input(saved.shape, gradient) if is_needed else None),)

    def backward_input(self, state: State, gradient: Payload) -> Sends:
        """The first half of `backward`, for schedules that split it: send the gradient of x."""
        if gradient is None or not self.input_needs_gradient[0]:
            return ((0, state, None),)
        saved, _version = self._saved[state]
        if self.is_abstract:
            return ((0, state, saved),)
        return ((0, state, self._of_input(saved.shape, gradient)),)

    def backward_weight(self, state: State, gradient: Payload) -> None:
        """The second half, any time after the first: accumulate the parameter gradient."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return
        self.count_gradient(state, version)
        if not self.is_abstract:
            self._accumulate(saved, gradient)

    def take_gradient(self) -> np.ndarray:
        """Return the sum over all accumulated messages, flat."""
        if self._sums is None:
            return np.zeros_like(self.theta)
        weight, bias = self._sums
        self._sums = None
        return np.concatenate([weight.reshape(-1), bias])

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count 2 · windows · filters · channels · kernel² for each product (Appendix C).

        Backward is the gradient accumulation, and the input's gradient if it is needed. The bytes
        are those of x, y and W: columns are how it is computed here, and not on every device.
        """
        weights, itemsize = math.prod(self._matrix_shape), self.theta.itemsize
        if direction is Direction.UPDATE:
            moved = (4 + 2 * self.state_arrays) * self.parameter_count * itemsize
            return update_work(self, OPERATIONS_OF_UPDATE, weights, moved, self.parameter_count)
        if shape is None:
            return NO_WORK
        if direction is Direction.FORWARD:
            return self._forward_work(_images(shape))
        accumulation = self._accumulation_work(_images(shape))
        if not self.input_needs_gradient[0]:
            return accumulation
        return accumulation + self._input_work(_images(shape))

    def work_of_halves(self, shape: tuple[int, ...] | None) -> tuple[Work, Work]:
        """What the two halves of a backward step cost; together, what the whole does."""
        if shape is None:
            return NO_WORK, NO_WORK
        images = _images(shape)
        needed = self._input_work(images) if self.input_needs_gradient[0] else NO_WORK
        return needed, self._accumulation_work(images)

    def product_rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        """Windows of all images: a device is as efficient as with a matrix of so many rows."""
        is_forward = direction is Direction.FORWARD
        rows, _channels, high, wide = self._sent(shape) if is_forward else _images(shape)
        return rows * high * wide

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require images of `channels`, at least as large as a window."""
        (shape,) = known(shapes)
        return ((shape[0], self.filters, *self.windows.require_fit(self, shape, self.channels)),)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()

    def _sent(self, shape: tuple[int, ...]) -> Extents:
        """The shape of y."""
        rows, _channels, height, width = shape
        return rows, self.filters, self.windows.count(height), self.windows.count(width)

    def _blocks(self, sent: tuple[int, ...]) -> Iterator[slice]:
        """Images to take at once, so that memory does not grow with their number."""
        rows, _filters, high, wide = sent
        step = max(1, COLUMN_ELEMENTS // (self._matrix_shape[1] * high * wide))
        for start in range(0, rows, step):
            yield slice(start, start + step)

    def _accumulate(self, images: np.ndarray, gradient: np.ndarray) -> None:
        """Add one message's product of gradient and columns, and the sum of the gradient."""
        if self._sums is None:
            matrix = np.zeros(self._matrix_shape, gradient.dtype)
            self._sums = matrix, np.zeros(self.filters, gradient.dtype)
        weight, bias = self._sums
        for some in self._blocks(gradient.shape):
            part = _by_channel(gradient[some])
            weight += part @ self.windows.columns(images[some]).T
            bias += part.sum(axis=1)

    def _of_input(self, shape: tuple[int, ...], gradient: np.ndarray) -> np.ndarray:
        """The gradient of x, which has `shape`."""
        rows, channels, height, width = shape
        found = np.empty((channels, rows, height, width), gradient.dtype).swapaxes(0, 1)
        for some in self._blocks(gradient.shape):
            columns = self._matrix.T @ _by_channel(gradient[some])
            found[some] = self.windows.folded(columns, (len(gradient[some]), *shape[1:]))
        return found

    def _forward_work(self, images: Extents) -> Work:
        sent, itemsize = self._sent(images), self.theta.itemsize
        weight_bytes = self.parameter_count * itemsize
        moved = (math.prod(images) + math.prod(sent)) * itemsize + weight_bytes
        return Work(self._product_flop(sent), moved, OPERATIONS[0], weight_bytes)

    def _accumulation_work(self, gradient: Extents) -> Work:
        moved = (self._touched(gradient) + math.prod(gradient)) * self.theta.itemsize
        return Work(self._product_flop(gradient), moved, OPERATIONS[1])

    def _input_work(self, gradient: Extents) -> Work:
        itemsize = self.theta.itemsize
        weight_bytes = self.parameter_count * itemsize
        moved = (self._touched(gradient) + math.prod(gradient)) * itemsize + weight_bytes
        return Work(self._product_flop(gradient), moved, OPERATIONS[2], weight_bytes)

    def _product_flop(self, sent: Extents) -> int:
        rows, _filters, high, wide = sent
        return 2 * rows * high * wide * math.prod(self._matrix_shape)

    def _touched(self, gradient: Extents) -> int:
        """Numbers of x that the windows of a gradient reach."""
        rows, _filters, high, wide = gradient
        return rows * self.channels * self.windows.touched(high) * self.windows.touched(wide)


def _by_channel(gradient: np.ndarray) -> np.ndarray:
    """The gradient as (filters, images · windows)."""
    return gradient.swapaxes(0, 1).reshape(gradient.shape[1], -1)


def _images(shape: tuple[int, ...]) -> Extents:
    rows, channels, height, width = shape
    return rows, channels, height, width
