"""Isu: the invertible state update, such as counting a loop's steps (Section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node, Shape
from ampsim.ir.shapes import known

CHECKED_STATES: Final = 256  # chosen: a wrong inverse shows on the first state it meets


class Isu(Node):
    """state ← f(state) forward, state ← f⁻¹(state) backward; the payload passes unchanged.

    The pair is checked on the first states that it meets, on all of them where `checks_all`.

    Args:
        name: the node's name.
        update: f, of a state.
        inverse: f⁻¹, with ``inverse(update(state)) == state``.
    """

    @checked
    def __init__(
        self, name: str, update: Callable[[Any], State], inverse: Callable[[Any], State]
    ) -> None:
        """Apply `update` forward and `inverse` backward."""
        super().__init__(name)
        self._update = update
        self._inverse = inverse
        self._unchecked = CHECKED_STATES
        self.checks_all = False

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the message on under f(state).

        Raises:
            GraphError: the inverse does not give the state back.
        """
        after = self._update(state)
        if self._unchecked or self.checks_all:
            self._check_inverse(state, after)
        return ((0, after, payload),)

    def _check_inverse(self, state: State, after: State) -> None:
        self._unchecked = max(0, self._unchecked - 1)
        before = self._inverse(after)
        if before != state:
            raise GraphError(
                f"{self.describe()}: the inverse must give the state back, "
                f"but {state} -> {after} -> {before}"
            )

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient on under f⁻¹(state)."""
        return ((0, self._inverse(state), gradient),)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)
