"""Phi: joins control flow, and remembers where each message came from (Section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node, Shape
from ampsim.ir.shapes import require


class Phi(Node):
    """Passes on a message from any of its inputs; returns the gradient to that input."""

    waits_for_all = False
    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, inputs: Sequence[str]) -> None:
        """Join `inputs`, the names of the input ports.

        Raises:
            GraphError: no input, or two of one name.
        """
        if not inputs or len(set(inputs)) != len(inputs):
            raise GraphError(f"{name}: input names must be distinct and at least one, got {inputs}")
        self.inputs = tuple(inputs)
        super().__init__(name)
        self._origin: dict[State, int] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the message on and record its port under the state."""
        if self.is_training:
            assert state not in self._origin, f"{self.name}: {state} arrived twice"
            self._origin[state] = port
        return ((0, state, payload),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Return the gradient to where the message came from."""
        origin = self._origin.pop(state)
        return ((origin, state, gradient if self.input_needs_gradient[origin] else None),)

    def gradients_needed(self, state: State) -> tuple[bool, ...]:
        """For the input that the message came from, whether any parameter lies upstream of it."""
        needed = list(self.input_needs_gradient)
        needed[self._origin[state]] = self.sent_needs_gradient(state)
        return tuple(needed)

    def sent_needs_gradient(self, state: State) -> bool:
        """Whether any parameter lies upstream of the input that the message came from."""
        origin = self._origin[state]
        nodes = self.decided_by[origin]
        if not nodes:
            return self.input_needs_gradient[origin]
        return any([n.sent_needs_gradient(state) for n in nodes])  # noqa: C419  # faster than lazily

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require equal shapes at all inputs known so far."""
        present = [shape for shape in shapes if shape is not None]
        alike = all(shape == present[0] for shape in present)
        require(alike, self, "one shape at all inputs", *present)
        return (present[0],)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._origin.keys()
