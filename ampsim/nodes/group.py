"""Group: one message from those of several states, the reverse of Ungroup (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import Direction, Node, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import VIEW, elementwise_work

Place: TypeAlias = Callable[[Any], "tuple[State, int, int]"]
"""``place(state)`` is (state of the group, number of the member, count of members)."""


class _Members(NamedTuple):
    """A group that is filling: states and payloads of members by number; None has not come."""

    states: list[State]
    payloads: list[Payload]
    missing: list[int]


class Group(Node):
    """Puts the rows of all members of a group below each other; cuts the gradient back.

    Members are payloads of one row or more, (rows, …), ordered by their number, not by arrival.
    With ``Ungroup(..., keep_axis=True)`` before it, the payload is as it was.

    Args:
        name: the node's name.
        place: ``place(state)`` is (state of the group, number of the member, count of members).
        rows: what the first extent of the result is called in shapes.
    """

    @checked
    def __init__(self, name: str, place: Place, *, rows: str = "rows") -> None:
        """Group by `place`."""
        super().__init__(name)
        self._place = place
        self._rows = rows
        self._filling: dict[State, _Members] = {}
        self._grouped: dict[State, list[tuple[State, int]]] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for the other members of the group, then send all of them.

        Raises:
            GraphError: the member's number is out of range, or taken.
        """
        group, number, count = self._place(state)
        members = self._filling.get(group)
        if members is None:
            members = self._filling[group] = _Members([None] * count, [None] * count, [count])
        self._require_free(members, number, state)
        members.states[number] = state
        members.payloads[number] = payload
        members.missing[0] -= 1
        if members.missing[0]:
            return ()
        del self._filling[group]
        parts = members.payloads
        if self.is_training:
            rows = [part.shape[0] for part in parts]
            self._grouped[group] = list(zip(members.states, rows, strict=True))
        if self.is_abstract:
            return ((0, group, _below_each_other(parts)),)
        return ((0, group, np.concatenate(parts)),)

    def _require_free(self, members: _Members, number: int, state: State) -> None:
        count = len(members.states)
        if not 0 <= number < count:
            raise GraphError(
                f"{self.describe()}: a member's number must be from 0 to below {count}, "
                f"got {number} for {state}"
            )
        if members.states[number] is not None:
            raise GraphError(
                f"{self.describe()}: two members have number {number}, "
                f"{members.states[number]} and {state}"
            )

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each member its rows of the gradient; they are views."""
        sends: list[tuple[int, State, Payload]] = []
        start = 0
        for member, rows in self._grouped.pop(state):
            if gradient is None:
                part = None
            elif self.is_abstract:
                part = Standin((rows, *gradient.shape[1:]), gradient.itemsize)
            else:
                part = gradient[start : start + rows]
            sends.append((0, member, part))
            start += rows
        return sends

    def joins(self, direction: Direction, state: State) -> State:
        """Members wait for their group."""
        return self._place(state)[0] if direction is Direction.FORWARD else state

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; send views of the gradient."""
        if direction is Direction.BACKWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Give the first axis the group's own extent."""
        (shape,) = known(shapes)
        require(len(shape) >= 2, self, "at least two axes", shape)
        return ((self._rows, *shape[1:]),)

    def pending(self) -> Iterable[State]:
        """Groups that wait for a member, or whose gradient has not come."""
        return [*self._filling, *self._grouped]

    def awaits(self, state: State) -> str:
        """Members that have not come, or the backward message."""
        filling = self._filling.get(state)
        if filling is None:
            return super().awaits(state)
        return f"{filling.missing[0]} of {len(filling.states)} members"


def _below_each_other(parts: list[Payload]) -> Standin:
    rows = sum(part.shape[0] for part in parts)
    return Standin((rows, *parts[0].shape[1:]), parts[0].itemsize)
