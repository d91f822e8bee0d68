"""Windows of images: the square parts that a kernel meets, row by row and column by column.

Images are (rows, channels, height, width), as in PyTorch. Arrays made here lie in memory with the
channels first, so that the product over all windows of all images is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ampsim.errors import GraphError
from ampsim.ir import Node, Shape
from ampsim.ir.shapes import require


@dataclass(frozen=True, slots=True)
class Windows:
    """Square windows of `kernel` pixels, `stride` apart, over images with a border of `padding`.

    Where the last window would leave the image there is none, as in PyTorch without `ceil_mode`.
    """

    kernel: int
    stride: int
    padding: int

    def require_valid(self, name: str, padding_max: int) -> None:
        """Check the numbers.

        Raises:
            GraphError: kernel or stride is below 1, or the padding not from 0 to `padding_max`.
        """
        if self.kernel < 1 or self.stride < 1:
            raise GraphError(
                f"{name}: kernel and stride must be >= 1, got {self.kernel} and {self.stride}"
            )
        if not 0 <= self.padding <= padding_max:
            raise GraphError(
                f"{name}: padding must be from 0 to {padding_max} for a kernel of {self.kernel}, "
                f"got {self.padding}"
            )

    def count(self, extent: int) -> int:
        """Windows along an extent of so many pixels.

        >>> Windows(kernel=5, stride=1, padding=0).count(28)
        24
        """
        return (extent + 2 * self.padding - self.kernel) // self.stride + 1

    def touched(self, count: int) -> int:
        """Pixels that so many windows along an extent reach, without the border."""
        return (count - 1) * self.stride + self.kernel - 2 * self.padding

    def require_fit(self, node: Node, shape: Shape, channels: int | str) -> tuple[int, int]:
        """Check the shape of images; return how many windows there are along height and width.

        Raises:
            GraphError: it is not (rows, channels, height, width), or smaller than a window.
        """
        least = max(1, self.kernel - 2 * self.padding)
        wanted = f"(rows, {channels}, height >= {least}, width >= {least})"
        fits = len(shape) == 4 and channels in (shape[1], "channels")
        height, width = shape[2:] if fits else (0, 0)
        is_known = isinstance(height, int) and isinstance(width, int)
        require(fits and is_known, node, wanted, shape)
        assert isinstance(height, int) and isinstance(width, int)
        require(min(height, width) >= least, node, wanted, shape)
        return self.count(height), self.count(width)

    def padded(self, images: np.ndarray, border: float) -> np.ndarray:
        """The images with a border of that value; the images themselves, if it has no width."""
        if not self.padding:
            return images
        around = (self.padding, self.padding)
        return np.pad(images, ((0, 0), (0, 0), around, around), constant_values=border)

    def columns(self, images: np.ndarray) -> np.ndarray:
        """Each window of images as a column: (channels · kernel², images · windows), a copy."""
        whole = sliding_window_view(self.padded(images, 0), (self.kernel, self.kernel), axis=(2, 3))
        chosen = whole[:, :, :: self.stride, :: self.stride].transpose(1, 4, 5, 0, 2, 3)
        return chosen.reshape(images.shape[1] * self.kernel**2, -1)

    def folded(self, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The reverse of `columns`: images of that shape, where windows overlap the sum."""
        rows, channels, height, width = shape
        high, wide = self.count(height), self.count(width)
        parts = columns.reshape(channels, self.kernel**2, rows, high, wide).transpose(1, 2, 0, 3, 4)
        images = self.blank(shape, columns.dtype)
        for part, pixels in zip(parts, self.places(images, high, wide), strict=True):
            pixels += part
        return self.inside(images, height, width)

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
        """Zeros for images of that shape, with their border."""
        rows, channels, height, width = shape
        border = 2 * self.padding
        return np.zeros((channels, rows, height + border, width + border), dtype).swapaxes(0, 1)

    def places(self, images: np.ndarray, high: int, wide: int) -> Iterator[np.ndarray]:
        """For each pixel of a window, where all windows have it in images with their border."""
        for down in range(self.kernel):
            for right in range(self.kernel):
                rows = slice(down, down + self.stride * (high - 1) + 1, self.stride)
                columns = slice(right, right + self.stride * (wide - 1) + 1, self.stride)
                yield images[:, :, rows, columns]

    def inside(self, images: np.ndarray, height: int, width: int) -> np.ndarray:
        """The images without their border."""
        if not self.padding:
            return images
        first = self.padding
        return images[:, :, first : first + height, first : first + width]
