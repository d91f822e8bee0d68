"""One number for each row of an axis: Mean, and Max; payloads of any shape.

Source: PyTorch's `mean(dim)` and `max(dim)`; of equal numbers the first is the largest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Direction, Shape, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import elementwise_work
from ampsim.nodes.views import Reshaping


class _OverAxis(Reshaping):
    """Reduces one axis, which is gone from what is sent."""

    @checked
    def __init__(self, name: str, axis: int) -> None:
        """Reduce `axis`.

        Raises:
            GraphError: it is below 0.
        """
        if axis < 0:
            raise GraphError(f"{name}: axis must be >= 0, got {axis}")
        super().__init__(name)
        self.axis = axis

    def sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Without the axis."""
        return (*shape[: self.axis], *shape[self.axis + 1 :])

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read, or write, every element once."""
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require the axis; return the others."""
        (shape,) = known(shapes)
        require(len(shape) > max(self.axis, 1), self, f"more than {max(self.axis, 1)} axes", shape)
        return ((*shape[: self.axis], *shape[self.axis + 1 :]),)


class Mean(_OverAxis):
    """The mean along an axis; every element gets its share of the gradient."""

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Take the mean."""
        return whole.mean(axis=self.axis)

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Divide by how many there are."""
        share = np.expand_dims(gradient, self.axis) / shape[self.axis]
        return np.broadcast_to(share, shape)


class Max(_OverAxis):
    """The largest along an axis, which alone gets the gradient; of equal ones the first."""

    def seen(self, whole: np.ndarray) -> np.ndarray:
        """Take the largest."""
        return whole.max(axis=self.axis)

    def taken(self, whole: np.ndarray) -> tuple[np.ndarray, Any]:
        """Take the largest, and where it is."""
        places = np.expand_dims(whole.argmax(axis=self.axis), self.axis)
        return np.take_along_axis(whole, places, self.axis).squeeze(self.axis), places

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Put the gradient where the largest was, among zeros."""
        whole = np.zeros(shape, gradient.dtype)
        np.put_along_axis(whole, kept, np.expand_dims(gradient, self.axis), self.axis)
        return whole

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Where the largest was: a number of 8 bytes for each result."""
        shape, _kept = self._saved[state]
        return taken_bytes // self.element_bytes // shape[self.axis] * 8
