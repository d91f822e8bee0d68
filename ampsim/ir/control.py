"""Control flow (Section 4): Cond routes, Phi joins, Isu counts, Bcast copies.

The graph inserts a Bcast where a wire is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, State
from ampsim.ir.node import CachingNode, Node, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import NO_WORK, Work, joined_work
from ampsim.options import Ports

CHECKED_STATES: Final = 256  # chosen: a wrong inverse shows on the first state it meets


class Cond(Node):
    """Sends each message to the one successor that a function of its state names.

    Args:
        name: the node's name.
        query: ``query(state)`` is the name of an output port; it sees the state, never the payload.
        outputs: names of the output ports.

    Raises:
        GraphError: there is no output, or two have one name.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, query: Callable[[Any], str], outputs: Sequence[str]) -> None:
        self.outputs = _port_names(name, "output", outputs)
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


class Phi(Node):
    """Passes on a message from any of its `inputs`; returns the gradient to that input.

    Raises:
        GraphError: there is no input, or two have one name.
    """

    waits_for_all = False
    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, inputs: Sequence[str]) -> None:
        self.inputs = _port_names(name, "input", inputs)
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
        """Tell whether any parameter lies upstream of the input that the message came from."""
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


class Bcast(CachingNode):
    """Copies a message to every successor; sums their gradients on the way back (Section 4).

    The sum is taken in the order of the ports, whatever the order of arrival.

    Raises:
        GraphError: there is not one copy.
    """

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str, copies: Ports) -> None:
        if copies < 1:
            raise GraphError(f"{name}: copies must be >= 1, got {copies}")
        self.outputs = tuple(f"copy-{i}" for i in range(copies))
        super().__init__(name)

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

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Forward nothing is computed; backward gradients are added, one for each copy."""
        is_back = direction is Direction.BACKWARD and len(self.outputs) > 1
        return joined_work(shape, self.element_bytes, len(self.outputs)) if is_back else NO_WORK

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Every copy has the shape of the input."""
        assert shapes[0] is not None
        return (shapes[0],) * len(self.outputs)


def _port_names(name: str, side: str, names: Sequence[str]) -> tuple[str, ...]:
    if not names or len(set(names)) != len(names):
        raise GraphError(f"{name}: {side} names must be distinct and at least one, got {names}")
    return tuple(names)
