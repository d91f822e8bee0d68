"""Flatten: images as rows of numbers, for what follows the last convolution."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ampsim.arguments import checked
from ampsim.ir import Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW


class Flatten(Node):
    """(rows, channels, height, width), or more or fewer axes, becomes (rows, their product).

    The order is that of PyTorch's `Flatten`: channel by channel, each row after row.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._saved: dict[State, tuple[int, ...]] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send all numbers of an item side by side."""
        shape = payload.shape
        if self.is_training:
            self._saved[state] = shape
        flat = (shape[0], math.prod(shape[1:]))
        if self.is_abstract:
            return ((0, state, Standin(flat, payload.itemsize)),)
        return ((0, state, payload.reshape(flat)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient in the shape of what came."""
        shape = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        if self.is_abstract:
            return ((0, state, Standin(shape, gradient.itemsize)),)
        return ((0, state, gradient.reshape(shape)),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Nothing: the same numbers in the same order."""
        return VIEW

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require known extents but for the rows; return (rows, their product)."""
        (shape,) = known(shapes)
        rows, *others = shape if len(shape) > 1 else ("rows", "unknown")
        extents = [extent for extent in others if isinstance(extent, int)]
        require(extents == others, self, "(rows, …) with all other extents known", shape)
        return ((rows, math.prod(extents)),)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()
