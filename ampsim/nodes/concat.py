"""Concat: joins payloads of equal state, column by column (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Direction, Join, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work


class Concat(Node):
    """Puts the columns of its inputs side by side; splits the gradient in the same way."""

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, widths: Sequence[int]) -> None:
        """Expect one input port for each of `widths` columns.

        Raises:
            GraphError: fewer than two inputs, or a width below 1.
        """
        if len(widths) < 2 or min(widths) < 1:
            raise GraphError(f"{name}: widths must be two or more numbers >= 1, got {widths}")
        self.inputs = tuple(f"part-{i}" for i in range(len(widths)))
        super().__init__(name)
        edges = np.cumsum([0, *widths])
        self.widths = tuple(widths)
        self._columns = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self._arrived = Join(len(widths))

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for the other parts of the state, then send them joined."""
        parts = self._arrived.put(port, state, payload)
        if parts is None:
            return ()
        if self.is_abstract:
            joined = Standin((payload.shape[0], sum(self.widths)), payload.itemsize)
            return ((0, state, joined),)
        return ((0, state, np.concatenate(parts, axis=1)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input its columns of the gradient."""
        if gradient is None:
            return [(part, state, None) for part in range(len(self.widths))]
        if self.is_abstract:
            rows, itemsize = gradient.shape[0], gradient.itemsize
            return [
                (part, state, Standin((rows, width), itemsize))
                for part, width in enumerate(self.widths)
            ]
        return [(part, state, gradient[:, cut]) for part, cut in enumerate(self._columns)]

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read all columns and write them once; send views of the gradient."""
        if direction is Direction.BACKWARD:
            return VIEW
        whole = None if shape is None else (shape[0], sum(self.widths))
        return elementwise_work(whole, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, width) of every part, rows alike; return (rows, sum of widths)."""
        parts = known(shapes)
        fits = all(
            len(shape) == 2 and shape == (parts[0][0], width)
            for shape, width in zip(parts, self.widths, strict=True)
        )
        wanted = " and ".join(f"(rows, {width})" for width in self.widths)
        require(fits, self, wanted, *parts)
        return ((parts[0][0], sum(self.widths)),)

    def pending(self) -> Iterable[State]:
        """States that wait for a part."""
        return self._arrived.waiting.keys()

    def awaits(self, state: State) -> str:
        """Parts that have not come."""
        return self._arrived.lacks(state, "input", self.inputs)
