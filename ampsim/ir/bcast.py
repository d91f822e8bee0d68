"""Bcast: one payload to several consumers; the graph inserts it where a wire is shared."""

from __future__ import annotations

from collections.abc import Iterable

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Join, Node, Shape
from ampsim.options import Ports


class Bcast(Node):
    """Copies a message to every successor; sums their gradients on the way back (Section 4).

    The sum is taken in the order of the ports, whatever the order of arrival.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, copies: Ports) -> None:
        """Send `copies` copies.

        Raises:
            GraphError: fewer than one copy.
        """
        if copies < 1:
            raise GraphError(f"{name}: copies must be >= 1, got {copies}")
        self.outputs = tuple(f"copy-{i}" for i in range(copies))
        super().__init__(name)
        self._returned = Join(copies)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the payload itself out of every port; nobody may write into a payload."""
        return [(copy, state, payload) for copy in range(len(self.outputs))]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient until all have come back, then send their sum."""
        parts = self._returned.put(port, state, gradient)
        if parts is None:
            return ()
        total = None
        for part in parts:
            if total is None:
                total = part
            elif part is not None and not self.is_abstract:
                total = total + part
        return ((0, state, total),)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Every copy has the shape of the input."""
        assert shapes[0] is not None
        return (shapes[0],) * len(self.outputs)

    def pending(self) -> Iterable[State]:
        """States of which some gradient has not come back."""
        return self._returned.waiting.keys()

    def awaits(self, state: State) -> str:
        """Gradients that have not come back."""
        return self._returned.lacks(state, "gradient of", self.outputs)
