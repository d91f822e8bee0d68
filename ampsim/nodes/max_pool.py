"""MaxPool: the largest pixel of each window; the gradient goes to where it was.

Source: PyTorch's `MaxPool2d` without dilation and `ceil_mode`. Of equal pixels the first counts, in
the order of rows and then of columns. A border, if any, is never the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import NO_WORK, Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known
from ampsim.nodes.windows import Windows
from ampsim.options import Count


class _KeptMaxima(NamedTuple):
    """The shape of the images; which pixel of each window was the largest, None without numbers."""

    shape: tuple[int, ...]
    largest: np.ndarray | None


class MaxPool(Node):
    """The largest of each window of (rows, channels, height, width), channel by channel.

    Args:
        name: the node's name.
        kernel: height and width of a window.
        stride: pixels from window to window; the kernel unless given, so that none overlap.
        padding: pixels around the image, on each side.

    Attributes:
        windows: kernel, stride and padding.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(
        self, name: str, kernel: Count, *, stride: Count | None = None, padding: int = 0
    ) -> None:
        """Take windows of `kernel` pixels.

        Raises:
            GraphError: the padding is below 0, or more than half of the kernel.
            OptionError: another number is below 1.
        """
        self.windows = Windows(kernel, stride or kernel, padding)
        self.windows.require_valid(name, kernel // 2)
        super().__init__(name)
        self._saved: dict[State, _KeptMaxima] = {}
        self._index_type = np.dtype(np.min_scalar_type(kernel**2 - 1))

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the largest pixels, and record which they were."""
        shape = self._sent(payload.shape)
        if self.is_abstract:
            if self.is_training:
                self._saved[state] = _KeptMaxima(payload.shape, None)
            return ((0, state, Standin(shape, payload.itemsize)),)
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
            return ((0, state, Standin(shape, gradient.itemsize)),)
        images = self.windows.blank(shape, gradient.dtype)
        places = self.windows.places(images, *gradient.shape[2:])
        if self.windows.stride >= self.windows.kernel:
            for place, pixels in enumerate(places):
                np.multiply(gradient, largest == place, out=pixels)
        else:
            for place, pixels in enumerate(places):
                pixels += gradient * (largest == place)
        return ((0, state, self.windows.inside(images, *shape[2:])),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Which pixel was the largest: a small number for each window."""
        return math.prod(self._sent(self._saved[state].shape)) * self._index_type.itemsize

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read or write each image and each window's pixel once; compare each pixel of windows."""
        if shape is None:
            return NO_WORK
        pixels = self.windows.kernel**2
        windows = math.prod(self._sent(shape))
        moved = (math.prod(shape) + windows) * self.element_bytes
        return Work(0, moved, 3 * pixels - 2 if direction is Direction.FORWARD else 2 * pixels)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require images at least as large as a window."""
        (shape,) = known(shapes)
        windows = self.windows.require_fit(self, shape, "channels")
        return ((*shape[:2], *windows),)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()

    def _sent(self, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        rows, channels, height, width = shape
        return rows, channels, self.windows.count(height), self.windows.count(width)
