"""Columns: some of a payload's columns, such as h of an LSTM's [h | c]."""

from __future__ import annotations

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work


class Columns(Node):
    """Sends columns `start` to `stop` of its `width`; the others' gradient is 0."""

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, width: int, start: int, stop: int) -> None:
        """Keep columns `start` to `stop`, the latter not included.

        Raises:
            GraphError: these are not columns of a payload of `width`.
        """
        if not 0 <= start < stop <= width:
            raise GraphError(
                f"{name}: columns must be within a width of {width}, got {start} to {stop}"
            )
        super().__init__(name)
        self.width = width
        self._kept = slice(start, stop)
        self._count = stop - start

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the columns; a view, not a copy."""
        if self.is_abstract:
            kept = Standin((payload.shape[0], self._count), payload.itemsize)
            return ((0, state, kept),)
        return ((0, state, payload[:, self._kept]),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient with zeros where columns were left out."""
        if gradient is None:
            return ((0, state, None),)
        rows = gradient.shape[0]
        if self.is_abstract:
            return ((0, state, Standin((rows, self.width), gradient.itemsize)),)
        whole = np.zeros((rows, self.width), gradient.dtype)
        whole[:, self._kept] = gradient
        return ((0, state, whole),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send a view; read the gradient's columns and write them once, into zeros."""
        if direction is Direction.FORWARD:
            return VIEW
        kept = None if shape is None else (shape[0], self._count)
        return elementwise_work(kept, self.element_bytes, 2)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, width); return (rows, columns kept)."""
        (shape,) = known(shapes)
        require(len(shape) == 2 and shape[1] == self.width, self, f"(rows, {self.width})", shape)
        return ((shape[0], self._count),)
