"""Ungroup: one message for each slice of a payload, told apart by a loop counter (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np

from ampsim.ir import Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import elementwise_work


class Ungroup(Node):
    """Cuts a payload along its first axis; groups the gradients back.

    Args:
        name: the node's name.
        counter: gives the state of slice i: ``counter(state, i)``; distinct for distinct i.
    """

    def __init__(self, name: str, counter: Callable[[Any, int], State]) -> None:
        """Tag slice i with ``counter(state, i)``."""
        super().__init__(name)
        self._counter = counter
        self._origin: dict[State, tuple[State, int]] = {}
        self._returning: dict[State, tuple[list[int], Any]] = {}
        self._extents: dict[State, int] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send each slice under a state of its own; slices are views."""
        extent = payload.shape[0]
        sends = [(0, self._counter(state, i), self._slice(payload, i)) for i in range(extent)]
        if self.is_training:
            self._extents[state] = extent
            for i, (_port, part_state, _part) in enumerate(sends):
                self._origin[part_state] = (state, i)
        return sends

    def _slice(self, payload: Payload, i: int) -> Payload:
        return Standin(payload.shape[1:], payload.itemsize) if self.is_abstract else payload[i]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient of a slice until all have come back, then send them grouped."""
        origin, i = self._origin.pop(state)
        group = self._returning.get(origin)
        if group is None:
            group = self._returning[origin] = (
                [self._extents[origin]],
                self._empty(origin, gradient),
            )
        left, grouped = group
        if isinstance(grouped, np.ndarray):
            grouped[i] = gradient
        left[0] -= 1
        if left[0]:
            return ()
        del self._returning[origin], self._extents[origin]
        return ((0, origin, cast("Payload", grouped)),)

    def _empty(self, origin: State, gradient: Payload) -> Payload:
        if gradient is None:
            return None
        shape = (self._extents[origin], *gradient.shape)
        if self.is_abstract:
            return Standin(shape, gradient.itemsize)
        empty: Payload = np.empty(shape, gradient.dtype)
        return empty

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once."""
        return elementwise_work(shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Drop the first axis."""
        (shape,) = known(shapes)
        require(len(shape) >= 2, self, "at least two axes", shape)
        return (shape[1:],)

    def pending(self) -> Iterable[State]:
        """States of which some slice's gradient has not come back."""
        return self._extents.keys()
