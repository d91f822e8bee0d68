"""Images: Conv2d filters all windows, and MaxPool takes their largest pixels.

Source of Conv2d: PyTorch's (cross-correlation, zeros around the image). Its FLOP are those of one
product with all windows as columns, counted as Appendix C of AMPNet counts a linear layer's: 2 for
each multiplication and addition.

Source of MaxPool: PyTorch's `MaxPool2d` without dilation and `ceil_mode`. Of equal pixels the
first counts, in the order of rows and then of columns. A border, if any, is never the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import ge, lt
from typing import Final, NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, Shape
from ampsim.ir.shapes import known
from ampsim.ir.work import NO_WORK, Work
from ampsim.nodes.linear import InHalves, by_state, update_work
from ampsim.nodes.windows import Extent, Windows, pair
from ampsim.options import Count

COLUMN_ELEMENTS: Final = 1 << 18
"""Numbers in the columns of the images that are taken at once; measured: they stay in cache."""

OPERATIONS: Final = 2
"""Columns and a product; of the input's gradient a product and a fold."""

OPERATIONS_OF_BIAS: Final = 1
"""In a forward step, in the gradient of W, and in an update, where there is a bias: it is added,
with a pass over what is sent; summed up, with one over the gradient; and put behind the weight."""

Extents = tuple[int, int, int, int]


class Conv2d(InHalves):
    """y = the windows of x times W, + b; x is (rows, channels, height, width).

    W is (filters, channels, kernel height, kernel width), b (filters,), y (rows, filters, windows
    down, windows across). A step keeps x, and lays its windows out again on the way back.

    Args:
        name: the node's name.
        channels: of x.
        filters: channels of y.
        kernel: height and width of a window; a pair where they differ, as with those below.
        stride: pixels from window to window.
        padding: zeros around the image, on each side.
        has_bias: whether there is a b, which is learned.

    Attributes:
        windows: kernel, stride and padding.

    Raises:
        GraphError: the padding is below 0, or as wide as the kernel.
        OptionError: another number is below 1.
    """

    @checked
    def __init__(
        self,
        name: str,
        channels: Count,
        filters: Count,
        kernel: Extent,
        *,
        stride: Extent = 1,
        padding: int | tuple[int, int] = 0,
        has_bias: bool = True,
    ) -> None:
        self.windows = windows = Windows(pair(kernel), pair(stride), pair(padding))
        high, wide = windows.kernel
        windows.require_valid(name, (high - 1, wide - 1))
        shapes: dict[str, tuple[int, ...]] = {
            "weight": (filters, channels, high, wide),
            "bias": (filters,),
        }
        if not has_bias:
            del shapes["bias"]
        super().__init__(name, shapes)
        self.channels = channels
        self.filters = filters
        self._matrix_shape = (filters, channels * windows.pixels)
        self._sums: list[tuple[State, np.ndarray, np.ndarray]] = []

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw uniformly from ±1/√(channels · kernel²), as PyTorch's Conv2d does."""
        bound = 1.0 / math.sqrt(self._matrix_shape[1])
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, *bias = self.parts(theta)
        self.bias = bias[0] if bias else None
        self._matrix = self.weight.reshape(self._matrix_shape)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the filtered images; record x and the version of W under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        shape = self._sent(payload.shape)
        if self.is_abstract:
            return ((0, state, standin(shape, payload.itemsize)),)
        rows, filters, high, wide = shape
        output = np.empty((filters, rows, high, wide), payload.dtype)
        for some in self._blocks(shape):
            product = self._matrix @ self.windows.columns(payload[some])
            if self.bias is not None:
                product += self.bias[:, None]
            output[:, some] = product.reshape(filters, -1, high, wide)
        return ((0, state, output.swapaxes(0, 1)),)

    def take_gradient(self) -> np.ndarray:
        """Return the sum over all accumulated messages, flat."""
        flat = np.zeros_like(self.theta)
        weight, *biases = self.parts(flat)
        for _state, of_weight, of_bias in by_state(self._sums):
            weight += of_weight.reshape(weight.shape)
            for bias in biases:
                bias += of_bias
        self._sums = []
        return flat

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count 2 · windows · filters · channels · kernel² for each product (Appendix C).

        Backward is the gradient accumulation, and the input's gradient if it is needed. The bytes
        are those of x, y and W, the passes those of b: columns are how it is computed here, and not
        on every device.
        """
        weights, itemsize = math.prod(self._matrix_shape), self.theta.itemsize
        if direction is Direction.UPDATE:
            moved = (4 + 2 * self.state_arrays) * self.parameter_count * itemsize
            joined = 1 + self._operations_of_bias  # before the optimizer's: one vector
            return update_work(self, joined, weights, moved, self.parameter_count)
        if shape is None:
            return NO_WORK
        if direction is Direction.FORWARD:
            sent, weight_bytes = self._sent(shape), self.parameter_count * itemsize
            moved = (math.prod(shape) + math.prod(sent)) * itemsize + weight_bytes
            more = self._operations_of_bias
            passed = 2 * more * math.prod(sent) * itemsize
            return Work(self._product_flop(sent), moved, OPERATIONS + more, weight_bytes, passed)
        of_input, of_weight = self.work_of_halves(shape)
        return of_weight + of_input if self.input_needs_gradient[0] else of_weight

    def work_of_halves(self, shape: tuple[int, ...] | None) -> tuple[Work, Work]:
        """Return the work of the two halves of a backward step; their sum is that of the whole."""
        if shape is None:
            return NO_WORK, NO_WORK
        images, needed = _images(shape), NO_WORK
        if self.input_needs_gradient[0]:
            needed = self._backward_work(images, is_of_input=True)
        return needed, self._backward_work(images, is_of_input=False)

    def product_rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        """Windows of all images: a device is as efficient as with a matrix of so many rows."""
        is_forward = direction is Direction.FORWARD
        rows, _channels, high, wide = self._sent(shape) if is_forward else _images(shape)
        return rows * high * wide

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require images of `channels`, at least as large as a window."""
        (shape,) = known(shapes)
        return ((shape[0], self.filters, *self.windows.require_fit(self, shape, self.channels)),)

    def _sent(self, shape: tuple[int, ...]) -> Extents:
        rows, _channels, height, width = shape
        return rows, self.filters, self.windows.count(height, 0), self.windows.count(width, 1)

    def _blocks(self, sent: tuple[int, ...]) -> Iterator[slice]:
        """Images to take at once, so that memory does not grow with their number."""
        rows, _filters, high, wide = sent
        step = max(1, COLUMN_ELEMENTS // (self._matrix_shape[1] * high * wide))
        for start in range(0, rows, step):
            yield slice(start, start + step)

    def accumulate(self, state: State, saved: np.ndarray, gradient: np.ndarray) -> None:
        """Sum the products of patches and gradients, and keep that."""
        weight = np.zeros(self._matrix_shape, gradient.dtype)
        bias = np.zeros(self.filters, gradient.dtype)
        self._sums.append((state, weight, bias))
        for some in self._blocks(gradient.shape):
            part = _by_channel(gradient[some])
            weight += part @ self.windows.columns(saved[some]).T
            if self.bias is not None:
                bias += part.sum(axis=1)

    def _of_input(self, saved: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        shape = saved.shape
        rows, channels, height, width = shape
        found = np.empty((channels, rows, height, width), gradient.dtype).swapaxes(0, 1)
        for some in self._blocks(gradient.shape):
            columns = self._matrix.T @ _by_channel(gradient[some])
            found[some] = self.windows.folded(columns, (len(gradient[some]), *shape[1:]))
        return found

    def _backward_work(self, gradient: Extents, *, is_of_input: bool) -> Work:
        """The work of one of the two products: the input's gradient, or that of W."""
        itemsize = self.theta.itemsize
        weight_bytes = self.parameter_count * itemsize if is_of_input else 0
        moved = (self._touched(gradient) + math.prod(gradient)) * itemsize + weight_bytes
        more = 0 if is_of_input else self._operations_of_bias
        passed = more * math.prod(gradient) * itemsize
        flop = self._product_flop(gradient)
        return Work(flop, moved, OPERATIONS + more, weight_bytes, passed)

    @property
    def _operations_of_bias(self) -> int:
        return OPERATIONS_OF_BIAS if "bias" in self.parameter_shapes else 0

    def _product_flop(self, sent: Extents) -> int:
        rows, _filters, high, wide = sent
        return 2 * rows * high * wide * math.prod(self._matrix_shape)

    def _touched(self, gradient: Extents) -> int:
        """Numbers of x that the windows of a gradient reach."""
        rows, _filters, high, wide = gradient
        touched = self.windows.touched(high, 0) * self.windows.touched(wide, 1)
        return rows * self.channels * touched


def _by_channel(gradient: np.ndarray) -> np.ndarray:
    return gradient.swapaxes(0, 1).reshape(gradient.shape[1], -1)


def _images(shape: tuple[int, ...]) -> Extents:
    rows, channels, height, width = shape
    return rows, channels, height, width


class _KeptMaxima(NamedTuple):
    """The shape of the images; which pixel of each window was the largest, None without numbers."""

    shape: tuple[int, ...]
    largest: np.ndarray | None


class MaxPool(CachingNode):
    """The largest of each window of (rows, channels, height, width), channel by channel.

    Args:
        name: the node's name.
        kernel: height and width of a window; a pair where they differ, as with those below.
        stride: pixels from window to window; the kernel unless given, so that none overlap.
        padding: pixels around the image, on each side.

    Attributes:
        windows: kernel, stride and padding.

    Raises:
        GraphError: the padding is below 0, or more than half of the kernel.
        OptionError: another number is below 1.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(
        self,
        name: str,
        kernel: Extent,
        *,
        stride: Extent | None = None,
        padding: int | tuple[int, int] = 0,
    ) -> None:
        self.windows = windows = Windows(pair(kernel), pair(stride or kernel), pair(padding))
        high, wide = windows.kernel
        windows.require_valid(name, (high // 2, wide // 2))
        super().__init__(name)
        self._index_type = np.dtype(np.min_scalar_type(windows.pixels - 1))

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the largest pixels, and record which they were."""
        shape = self._sent(payload.shape)
        if self.is_abstract:
            if self.is_training:
                self._saved[state] = _KeptMaxima(payload.shape, None)
            return ((0, state, standin(shape, payload.itemsize)),)
        images = self.windows.padded(payload, -math.inf)
        first, *others = self.windows.places(images, *shape[2:])
        output = first.copy(order="K")
        if not self.is_training:
            for pixels in others:
                np.maximum(output, pixels, out=output)
            return ((0, state, output),)
        largest = np.zeros_like(output, self._index_type)
        for place, pixels in enumerate(others, 1):
            is_larger = pixels > output
            np.copyto(output, pixels, where=is_larger)
            largest[is_larger] = place
        self._saved[state] = _KeptMaxima(payload.shape, largest)
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient to the pixels that were the largest; 0 to the others."""
        shape, largest = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        if largest is None:
            return ((0, state, standin(shape, gradient.itemsize)),)
        images = self.windows.blank(shape, gradient.dtype)
        places = self.windows.places(images, *gradient.shape[2:])
        if all(map(ge, self.windows.stride, self.windows.kernel)):
            for place, pixels in enumerate(places):
                np.multiply(gradient, largest == place, out=pixels)
        else:
            for place, pixels in enumerate(places):
                pixels += gradient * (largest == place)
        return ((0, state, self.windows.inside(images, *shape[2:])),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count a small number for each window: which of its pixels was the largest."""
        return math.prod(self._sent(self._saved[state].shape)) * self._index_type.itemsize

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read or write each image and each window's pixel once; compare each pixel of windows.

        Of a pixel of all windows that is a comparison, a copy and a place, in five passes over the
        windows, in validation a maximum in three; backward a comparison and a product, in three,
        into an image of zeros, to which they are added in as many more where windows overlap.
        """
        if shape is None:
            return NO_WORK
        pixels, images = self.windows.pixels, math.prod(shape)
        windows = math.prod(self._sent(shape))
        moved = (images + windows) * self.element_bytes
        if direction is Direction.FORWARD:
            operations, passed = 3 * pixels - 1, (5 * pixels - 3) * windows
            if not self.is_training:
                operations, passed = pixels, (3 * pixels - 1) * windows
            if any(self.windows.padding):
                operations, passed = operations + 1, passed + 2 * images
        else:
            calls = 3 if any(map(lt, self.windows.stride, self.windows.kernel)) else 2
            operations, passed = 1 + calls * pixels, (3 * calls - 3) * pixels * windows + images
        return Work(0, moved, operations, pass_bytes=passed * self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require images at least as large as a window."""
        (shape,) = known(shapes)
        windows = self.windows.require_fit(self, shape, "channels")
        return ((*shape[:2], *windows),)

    def _sent(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        rows, channels, height, width = shape
        return rows, channels, self.windows.count(height, 0), self.windows.count(width, 1)
