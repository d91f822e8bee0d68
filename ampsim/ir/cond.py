"""Cond: routes a message by its state (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node, Shape
from ampsim.ir.shapes import known


class Cond(Node):
    """Sends each message to the one successor that a function of its state names.

    Args:
        name: the node's name.
        query: ``query(state)`` is the name of an output port; it sees the state, never the payload.
        outputs: names of the output ports.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, query: Callable[[Any], str], outputs: Sequence[str]) -> None:
        """Route by `query` to `outputs`.

        Raises:
            GraphError: no output, or two of one name.
        """
        if not outputs or len(set(outputs)) != len(outputs):
            raise GraphError(
                f"{name}: output names must be distinct and at least one, got {outputs}"
            )
        self.outputs = tuple(outputs)
        super().__init__(name)
        self._query = query
        self._ports = {output: port for port, output in enumerate(outputs)}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the message on, out of the port that the query names.

        Raises:
            GraphError: the query names no output port.
        """
        chosen = self._ports.get(self._query(state))
        if chosen is None:
            raise GraphError(
                f"{self.describe()}: the query must name an output port "
                f"({', '.join(self.outputs)}), got {self._query(state)!r} for {state}"
            )
        return ((chosen, state, payload),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Pass the gradient to the one input."""
        return ((0, state, gradient),)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Every output has the shape of the input."""
        return known(shapes) * len(self.outputs)
