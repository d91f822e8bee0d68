"""Split: cuts a payload into columns, the reverse of Concat (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Direction, Join, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work


class Split(Node):
    """Sends columns out of one port for each of `widths`; joins the gradients in the same way."""

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, widths: Sequence[int]) -> None:
        """Cut into `widths` columns.

        Raises:
            GraphError: fewer than two outputs, or a width below 1.
        """
        if len(widths) < 2 or min(widths) < 1:
            raise GraphError(f"{name}: widths must be two or more numbers >= 1, got {widths}")
        self.outputs = tuple(f"part-{i}" for i in range(len(widths)))
        super().__init__(name)
        edges = [sum(widths[:i]) for i in range(len(widths) + 1)]
        self.widths = tuple(widths)
        self._columns = [slice(a, b) for a, b in pairwise(edges)]
        self._returned = Join(len(widths))

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send each port its columns; they are views."""
        if self.is_abstract:
            rows, itemsize = payload.shape[0], payload.itemsize
            return [
                (part, state, Standin((rows, width), itemsize))
                for part, width in enumerate(self.widths)
            ]
        return [(part, state, payload[:, cut]) for part, cut in enumerate(self._columns)]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient until all have come back, then send them side by side.

        A part without gradient counts as zeros; without any, there is none.
        """
        parts = self._returned.put(port, state, gradient)
        if parts is None:
            return ()
        real = next((part for part in parts if part is not None), None)
        if real is None:
            return ((0, state, None),)
        shape = (real.shape[0], sum(self.widths))
        if self.is_abstract:
            return ((0, state, Standin(shape, real.itemsize)),)
        joined = np.empty(shape, real.dtype)
        for cut, part in zip(self._columns, parts, strict=True):
            joined[:, cut] = 0 if part is None else part
        return ((0, state, joined),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send views; read all columns of the gradients and write them once."""
        if direction is Direction.FORWARD:
            return VIEW
        whole = None if shape is None else (shape[0], sum(self.widths))
        return elementwise_work(whole, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, sum of widths); return (rows, width) of every part."""
        (shape,) = known(shapes)
        fits = len(shape) == 2 and shape[1] == sum(self.widths)
        require(fits, self, f"(rows, {sum(self.widths)})", shape)
        return tuple((shape[0], width) for width in self.widths)

    def pending(self) -> Iterable[State]:
        """States of which some gradient has not come back."""
        return self._returned.waiting.keys()

    def awaits(self, state: State) -> str:
        """Gradients that have not come back."""
        return self._returned.lacks(state, "gradient of", self.outputs)
