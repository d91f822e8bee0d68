"""Columns of payloads: side by side (Concat), cut apart (Split), and some of them (Columns).

Columns are the last axis; payloads may have more axes than rows before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State, standin
from ampsim.ir.node import CachingNode, Node, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import VIEW, Work, elementwise_work, placed_work


class SideBySide(CachingNode):
    """Parts of some columns each, and the whole of all columns: what Concat and Split share.

    Raises:
        GraphError: there are fewer than two widths, or one is below 1.
    """

    keeps_state = True
    heeds_need = False
    joins_in = Direction.FORWARD
    """Kind of step that puts the parts together; the other sends views."""
    joining = 1
    """Operations of that."""

    def __init__(self, name: str, widths: Sequence[int]) -> None:
        if len(widths) < 2 or min(widths) < 1:
            raise GraphError(f"{name}: widths must be two or more numbers >= 1, got {widths}")
        super().__init__(name)
        self.widths = tuple(widths)
        self._columns = [
            np.s_[..., slice(*edge)] for edge in pairwise(accumulate(widths, initial=0))
        ]

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read all columns and write them once where parts are joined; else send views."""
        if direction is not self.joins_in:
            return VIEW
        whole = None if shape is None else (*shape[:-1], sum(self.widths))
        return elementwise_work(whole, self.element_bytes, self.joining)

    def _cut(self, state: State, whole: Payload) -> Sends:
        if self.is_abstract:
            rows, itemsize = whole.shape[:-1], whole.itemsize
            return [
                (part, state, standin((*rows, width), itemsize))
                for part, width in enumerate(self.widths)
            ]
        return [(part, state, whole[cut]) for part, cut in enumerate(self._columns)]


class Concat(SideBySide):
    """Puts the columns of its inputs side by side (Section 4); splits the gradient likewise."""

    @checked
    def __init__(self, name: str, widths: Sequence[int]) -> None:
        self.inputs = tuple(f"part-{i}" for i in range(len(widths)))
        super().__init__(name, widths)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for the other parts of the state, then send them joined."""
        parts = self._arrived.put(port, state, payload)
        if parts is None:
            return ()
        if self.is_abstract:
            joined = standin((*payload.shape[:-1], sum(self.widths)), payload.itemsize)
            return ((0, state, joined),)
        return ((0, state, np.concatenate(parts, axis=-1)),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each input its columns of the gradient."""
        if gradient is None:
            return [(part, state, None) for part in range(len(self.widths))]
        return self._cut(state, gradient)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, width) of every part, rows alike; return (rows, sum of widths)."""
        parts = known(shapes)
        rows = parts[0][:-1]
        fits = all(
            len(shape) >= 2 and shape == (*rows, width)
            for shape, width in zip(parts, self.widths, strict=True)
        )
        wanted = " and ".join(f"(rows, {width})" for width in self.widths)
        require(fits, self, wanted, *parts)
        return ((*rows, sum(self.widths)),)


class Split(SideBySide):
    """Sends columns out of one port for each of `widths`; joins the gradients in the same way."""

    joins_in = Direction.BACKWARD

    @checked
    def __init__(self, name: str, widths: Sequence[int]) -> None:
        self.outputs = tuple(f"part-{i}" for i in range(len(widths)))
        self.joining = len(widths)
        super().__init__(name, widths)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send each port its columns; they are views."""
        return self._cut(state, payload)

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
        shape = (*real.shape[:-1], sum(self.widths))
        if self.is_abstract:
            return ((0, state, standin(shape, real.itemsize)),)
        joined = np.empty(shape, real.dtype)
        for cut, part in zip(self._columns, parts, strict=True):
            joined[cut] = 0 if part is None else part
        return ((0, state, joined),)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, sum of widths); return (rows, width) of every part."""
        (shape,) = known(shapes)
        fits = len(shape) >= 2 and shape[-1] == sum(self.widths)
        require(fits, self, f"(rows, {sum(self.widths)})", shape)
        return tuple((*shape[:-1], width) for width in self.widths)


class Columns(Node):
    """Sends columns `start` to before `stop` of its `width`; the others' gradient is 0.

    Attributes:
        width, start, stop: as given.

    Raises:
        GraphError: these are not columns of a payload of `width`.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, width: int, start: int, stop: int) -> None:
        if not 0 <= start < stop <= width:
            raise GraphError(
                f"{name}: columns must be within a width of {width}, got {start} to {stop}"
            )
        super().__init__(name)
        self.width = width
        self.start, self.stop = start, stop
        self._kept = np.s_[..., start:stop]
        self._count = stop - start

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the columns; a view, not a copy."""
        if self.is_abstract:
            kept = standin((*payload.shape[:-1], self._count), payload.itemsize)
            return ((0, state, kept),)
        return ((0, state, payload[self._kept]),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient with zeros where columns were left out."""
        if gradient is None:
            return ((0, state, None),)
        shape = (*gradient.shape[:-1], self.width)
        if self.is_abstract:
            return ((0, state, standin(shape, gradient.itemsize)),)
        whole = np.zeros(shape, gradient.dtype)
        whole[self._kept] = gradient
        return ((0, state, whole),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send a view; read the gradient's columns and write them once, into zeros."""
        if direction is Direction.FORWARD or shape is None:
            return VIEW
        rows = math.prod(shape[:-1])
        return placed_work(rows * self._count, rows * self.width, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, width); return (rows, columns kept)."""
        (shape,) = known(shapes)
        fits = len(shape) >= 2 and shape[-1] == self.width
        require(fits, self, f"(rows, {self.width})", shape)
        return ((*shape[:-1], self._count),)
