"""Windows over images: where they are, their pixels as columns, and columns as images again.

Images are (rows, channels, height, width), as in PyTorch. Arrays made here lie in memory with the
channels first, so that the product over all windows of all images is one.

To lay windows out as columns of one matrix: Chellapilla, Puri and Simard, "High performance
convolutional neural networks for document processing", 2006.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ampsim.errors import GraphError
from ampsim.ir.node import Node, Shape
from ampsim.ir.shapes import require
from ampsim.options import Count

Extent: TypeAlias = Count | tuple[Count, Count]
"""Pixels down and across, or one number for both."""


def pair(given: int | tuple[int, int]) -> tuple[int, int]:
    """The number down and the number across."""
    return given if isinstance(given, tuple) else (given, given)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `kernel` pixels, `stride` apart, over images with a border of `padding`.

    Each is (down, across). Where the last window would leave the image there is none, as in PyTorch
    without `ceil_mode`.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def pixels(self) -> int:
        """Pixels of a window."""
        return math.prod(self.kernel)

    def require_valid(self, name: str, padding_max: tuple[int, int]) -> None:
        """Check the numbers.

        Raises:
            GraphError: kernel or stride is below 1, or the padding not from 0 to `padding_max`.
        """
        if min(*self.kernel, *self.stride) < 1:
            raise GraphError(
                f"{name}: kernel and stride must be >= 1, got {_shown(self.kernel)} and "
                f"{_shown(self.stride)}"
            )
        if not all(0 <= one <= most for one, most in zip(self.padding, padding_max, strict=True)):
            raise GraphError(
                f"{name}: padding must be from 0 to {_shown(padding_max)} for a kernel of "
                f"{_shown(self.kernel)}, got {_shown(self.padding)}"
            )

    def count(self, extent: int, axis: int = 0) -> int:
        """Windows along an extent of so many pixels.

        >>> Windows(kernel=(5, 3), stride=(1, 1), padding=(0, 0)).count(28)
        24
        """
        return (extent + 2 * self.padding[axis] - self.kernel[axis]) // self.stride[axis] + 1

    def touched(self, count: int, axis: int) -> int:
        """Pixels that so many windows along an extent reach, without the border."""
        return (count - 1) * self.stride[axis] + self.kernel[axis] - 2 * self.padding[axis]

    def require_fit(self, node: Node, shape: Shape, channels: int | str) -> tuple[int, int]:
        """Check the shape of images; return how many windows there are along height and width.

        Raises:
            GraphError: it is not (rows, channels, height, width), or smaller than a window.
        """
        high, wide = (
            max(1, kernel - 2 * padding)
            for kernel, padding in zip(self.kernel, self.padding, strict=True)
        )
        wanted = f"(rows, {channels}, height >= {high}, width >= {wide})"
        fits = len(shape) == 4 and channels in (shape[1], "channels")
        height, width = shape[2:] if fits else (0, 0)
        is_known = isinstance(height, int) and isinstance(width, int)
        require(fits and is_known, node, wanted, shape)
        assert isinstance(height, int) and isinstance(width, int)
        require(height >= high and width >= wide, node, wanted, shape)
        return self.count(height, 0), self.count(width, 1)

    def padded(self, images: np.ndarray, border: float) -> np.ndarray:
        """The images with a border of that value; the images themselves, if it has no width."""
        if not any(self.padding):
            return images
        around = [(padding, padding) for padding in self.padding]
        return np.pad(images, ((0, 0), (0, 0), *around), constant_values=border)

    def columns(self, images: np.ndarray) -> np.ndarray:
        """Each window of images as a column: (channels · pixels, images · windows), a copy."""
        whole = sliding_window_view(self.padded(images, 0), self.kernel, axis=(2, 3))
        down, across = self.stride
        chosen = whole[:, :, ::down, ::across].transpose(1, 4, 5, 0, 2, 3)
        return chosen.reshape(images.shape[1] * self.pixels, -1)

    def folded(self, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The reverse of `columns`: images of that shape, where windows overlap the sum."""
        rows, channels, height, width = shape
        high, wide = self.count(height, 0), self.count(width, 1)
        parts = columns.reshape(channels, self.pixels, rows, high, wide).transpose(1, 2, 0, 3, 4)
        images = self.blank(shape, columns.dtype)
        for part, pixels in zip(parts, self.places(images, high, wide), strict=True):
            pixels += part
        return self.inside(images, height, width)

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
        """Zeros for images of that shape, with their border."""
        rows, channels, height, width = shape
        down, across = self.padding
        bordered = (channels, rows, height + 2 * down, width + 2 * across)
        return np.zeros(bordered, dtype).swapaxes(0, 1)

    def places(self, images: np.ndarray, high: int, wide: int) -> Iterator[np.ndarray]:
        """For each pixel of a window, where all windows have it in images with their border."""
        step_down, step_across = self.stride
        for down in range(self.kernel[0]):
            for right in range(self.kernel[1]):
                rows = slice(down, down + step_down * (high - 1) + 1, step_down)
                columns = slice(right, right + step_across * (wide - 1) + 1, step_across)
                yield images[:, :, rows, columns]

    def inside(self, images: np.ndarray, height: int, width: int) -> np.ndarray:
        """The images without their border."""
        if not any(self.padding):
            return images
        down, across = self.padding
        return images[:, :, down : down + height, across : across + width]


def _shown(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} x {pair[1]}"
