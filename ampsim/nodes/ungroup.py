"""Ungroup: one message for each slice of a payload, told apart by a loop counter (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work
from ampsim.nodes.offspring import Offspring


class Ungroup(Node):
    """Cuts a payload along its first axis; groups the gradients back.

    Args:
        name: the node's name.
        counter: gives the state of slice i: ``counter(state, i)``; distinct for distinct i.
        keep_axis: send slices of extent 1, ``payload[i : i + 1]``, instead of ``payload[i]``;
            `Group` is then the reverse. A payload of extent 0 is one slice, all of it.
    """

    @checked
    def __init__(
        self, name: str, counter: Callable[[Any, int], State], *, keep_axis: bool = False
    ) -> None:
        """Tag slice i with ``counter(state, i)``."""
        super().__init__(name)
        self._offspring = Offspring(counter)
        self._keeps_axis = keep_axis

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send each slice under a state of its own; slices are views.

        Raises:
            GraphError: there is no slice, or two of them get one state.
        """
        extent = payload.shape[0]
        count = max(extent, 1) if self._keeps_axis else extent
        states = self._offspring.states(self, state, count)
        if isinstance(payload, Standin):
            kept = (min(extent, 1),) if self._keeps_axis else ()
            part = Standin((*kept, *payload.shape[1:]), payload.itemsize)
            return [(0, tag, part) for tag in states]
        if self._keeps_axis:
            return [(0, tag, payload[i : i + 1]) for i, tag in enumerate(states)]
        return [(0, tag, payload[i]) for i, tag in enumerate(states)]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient of a slice until all have come back, then send them grouped.

        A slice without gradient counts as zeros; without any, there is none.
        """
        returned = self._offspring.take(state, gradient)
        if returned is None:
            return ()
        origin, gradients = returned
        return ((0, origin, self._grouped(gradients)),)

    def _grouped(self, gradients: list[Payload]) -> Payload:
        real = next((part for part in gradients if part is not None), None)
        if real is None:
            return None
        rows, *columns = real.shape if self._keeps_axis else (1, *real.shape)
        shape = (len(gradients) * rows, *columns)
        if self.is_abstract:
            return Standin(shape, real.itemsize)
        parts = [np.zeros_like(real) if part is None else part for part in gradients]
        return np.concatenate(parts).reshape(shape)

    def joins(self, direction: Direction, state: State) -> State:
        """Gradients wait for those of the same origin."""
        return self._offspring.origin(state) if direction is Direction.BACKWARD else state

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send views; read and write every element of their gradients once."""
        if direction is Direction.FORWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Drop the first axis, or say that its extent is 1; of an empty payload it is 0."""
        (shape,) = known(shapes)
        if self._keeps_axis:
            require(len(shape) >= 1, self, "at least one axis", shape)
            return ((1, *shape[1:]),)
        require(len(shape) >= 2, self, "at least two axes", shape)
        return (shape[1:],)

    def pending(self) -> Iterable[State]:
        """States of which some slice's gradient has not come back."""
        return self._offspring.missing.keys()

    def awaits(self, state: State) -> str:
        """Gradients that have not come back."""
        return f"{self._offspring.missing[state]} more gradients"
