"""One number for each row of an axis: Mean, and Max; payloads of any shape.

Source: PyTorch's `mean(dim)` and `max(dim)`; of equal numbers the first is the largest.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import CachingNode, Direction, Payload, Sends, Shape, State, Work, standin
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import elementwise_work


class _OverAxis(CachingNode):
    """Reduces one axis, which is gone from what is sent."""

    keeps_state = True
    heeds_need = False

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

    @abstractmethod
    def reduced(self, payload: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return the result, and what backward needs besides the shape."""

    @abstractmethod
    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Return the gradient of a payload of `shape`; the reduced axis has extent 1 in it."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the result; record the shape, and what else is needed, under the state."""
        shape = payload.shape
        if self.is_abstract:
            rest = (*shape[: self.axis], *shape[self.axis + 1 :])
            result, kept = standin(rest, payload.itemsize), None
        else:
            result, kept = self.reduced(payload)
        if self.is_training:
            self._saved[state] = (shape, kept)
        return ((0, state, result),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient in the shape of what came."""
        shape, kept = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        if self.is_abstract:
            return ((0, state, standin(shape, gradient.itemsize)),)
        spread = np.expand_dims(gradient, self.axis)
        return ((0, state, self.pulled_back(spread, shape, kept)),)

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

    def reduced(self, payload: np.ndarray) -> tuple[np.ndarray, Any]:
        """Take the mean."""
        return payload.mean(axis=self.axis), None

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Divide by how many there are."""
        return np.broadcast_to(gradient / shape[self.axis], shape)


class Max(_OverAxis):
    """The largest along an axis, which alone gets the gradient; of equal ones the first."""

    def reduced(self, payload: np.ndarray) -> tuple[np.ndarray, Any]:
        """Take the largest, and where it is."""
        places = np.expand_dims(payload.argmax(axis=self.axis), self.axis)
        return np.take_along_axis(payload, places, self.axis).squeeze(self.axis), places

    def pulled_back(self, gradient: np.ndarray, shape: tuple[int, ...], kept: Any) -> np.ndarray:
        """Put the gradient where the largest was, among zeros."""
        whole = np.zeros(shape, gradient.dtype)
        np.put_along_axis(whole, kept, gradient, self.axis)
        return whole

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Where the largest was: a number of 8 bytes for each result."""
        shape, _kept = self._saved[state]
        return taken_bytes // self.element_bytes // shape[self.axis] * 8
