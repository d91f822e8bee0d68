"""Replicate: "a simpler variant of Ungroup", copies with an extra loop counter (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any

from ampsim.arguments import checked
from ampsim.ir import Direction, Node, Payload, Sends, Shape, State, Work
from ampsim.ir.shapes import known
from ampsim.nodes.light import VIEW, elementwise_work
from ampsim.nodes.offspring import Offspring


class Replicate(Node):
    """Sends a message several times under different states; sums the gradients of all copies.

    The sum is taken in the order of the counter, whatever the order of arrival.

    Args:
        name: the node's name.
        counter: gives the state of copy i: ``counter(state, i)``; distinct for distinct i.
        count: how many copies of the message of a state, at least one.
    """

    @checked
    def __init__(
        self, name: str, counter: Callable[[Any, int], State], count: Callable[[Any], int]
    ) -> None:
        """Send ``count(state)`` copies, tagged ``counter(state, i)``."""
        super().__init__(name)
        self._offspring = Offspring(counter)
        self._count = count

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the payload itself under each state; nobody may write into a payload.

        Raises:
            GraphError: there is no copy, or two of them get one state.
        """
        states = self._offspring.states(self, state, self._count(state))
        return [(0, tag, payload) for tag in states]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient of a copy until all have come back, then send their sum."""
        returned = self._offspring.take(state, gradient)
        if returned is None:
            return ()
        origin, gradients = returned
        real = [part for part in gradients if part is not None]
        if self.is_abstract or len(real) < 2:
            return ((0, origin, real[0] if real else None),)
        return ((0, origin, reduce(add, real)),)

    def joins(self, direction: Direction, state: State) -> State:
        """Gradients wait for those of the same origin."""
        return self._offspring.origin(state) if direction is Direction.BACKWARD else state

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send the payload itself; read and write every element of the gradients once."""
        if direction is Direction.FORWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)

    def pending(self) -> Iterable[State]:
        """States of which some copy's gradient has not come back."""
        return self._offspring.missing.keys()

    def awaits(self, state: State) -> str:
        """Gradients that have not come back."""
        return f"{self._offspring.missing[state]} more gradients"
