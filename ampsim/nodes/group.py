"""Ungroup and "a simpler variant" Replicate make many messages of one, Group one (Section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir.message import Direction, Payload, Sends, Standin, State, standin
from ampsim.ir.node import Node, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import VIEW, Work, elementwise_work

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
        new_axis: put members along a new first axis, (members, rows, …), as `Ungroup` found them;
            all have one shape then.
    """

    @checked
    def __init__(
        self, name: str, place: Place, *, rows: str | int = "rows", new_axis: bool = False
    ) -> None:
        super().__init__(name)
        self.place = place
        self._rows = rows
        self.new_axis = new_axis
        self._filling: dict[State, _Members] = {}
        self._grouped: dict[State, list[tuple[State, int]]] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Wait for the other members of the group, then send all of them.

        Raises:
            GraphError: the member's number is out of range, or taken.
        """
        group, number, count = self.place(state)
        members = self._filling.get(group)
        if members is None:
            members = self._filling[group] = _Members([None] * count, [None] * count, [count])
        self.require_free(members.states, number, state)
        members.states[number] = state
        members.payloads[number] = payload
        members.missing[0] -= 1
        if members.missing[0]:
            return ()
        del self._filling[group]
        parts, (first, *columns) = members.payloads, members.payloads[0].shape
        rows = [part.shape[0] for part in parts]
        if self.is_training:
            self._grouped[group] = list(zip(members.states, rows, strict=True))
        if self.is_abstract:
            extents = (len(parts), first) if self.new_axis else (sum(rows),)
            return ((0, group, standin((*extents, *columns), parts[0].itemsize)),)
        return ((0, group, np.stack(parts) if self.new_axis else np.concatenate(parts)),)

    def require_free(self, members: list[Any], number: int, state: State) -> None:
        """Require that a member's number is in its range, and nobody else's.

        Raises:
            GraphError: it is not.
        """
        count = len(members)
        if not 0 <= number < count:
            raise GraphError(
                f"{self.describe()}: a member's number must be from 0 to below {count}, "
                f"got {number} for {state}"
            )
        if members[number] is not None:
            raise GraphError(
                f"{self.describe()}: two members have number {number}, "
                f"{members[number]} and {state}"
            )

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send each member its rows of the gradient; they are views."""
        sends: list[tuple[int, State, Payload]] = []
        start = 0
        for number, (member, rows) in enumerate(self._grouped.pop(state)):
            if gradient is None:
                part = None
            elif self.new_axis:
                is_shape = self.is_abstract
                part = (
                    standin(gradient.shape[1:], gradient.itemsize) if is_shape else gradient[number]
                )
            elif self.is_abstract:
                part = standin((rows, *gradient.shape[1:]), gradient.itemsize)
            else:
                part = gradient[start : start + rows]
            sends.append((0, member, part))
            start += rows
        return sends

    def joins(self, direction: Direction, state: State) -> State:
        """Name the group for which members wait."""
        return self.place(state)[0] if direction is Direction.FORWARD else state

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; send views of the gradient."""
        if direction is Direction.BACKWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Give the first axis the group's own extent."""
        (shape,) = known(shapes)
        require(len(shape) >= 2, self, "at least two axes", shape)
        return ((self._rows, *(shape if self.new_axis else shape[1:])),)

    def pending(self) -> Iterable[State]:
        """Groups that wait for a member, or whose gradient has not come."""
        return [*self._filling, *self._grouped]

    def awaits(self, state: State) -> str:
        """Members that have not come, or the backward message."""
        filling = self._filling.get(state)
        if filling is None:
            return super().awaits(state)
        return f"{filling.missing[0]} of {len(filling.states)} members"


class _Multiplying(Node):
    """A node that makes several messages of one, and one gradient of theirs.

    It numbers the states that one state gives rise to, and gathers the gradients of all of them.
    """

    def __init__(self, name: str, counter: Callable[[Any, int], State]) -> None:
        super().__init__(name)
        self._counter = counter
        self._origin: dict[State, tuple[State, int]] = {}
        self._gradients: dict[State, list[Payload]] = {}
        self._missing: dict[State, int] = {}

    def _states(self, state: State, count: int) -> list[State]:
        """Return the states of `count` messages; in training, expect a gradient of each.

        Raises:
            GraphError: the count is 0, or two of the states are equal.
        """
        if count < 1:
            raise GraphError(f"{self.describe()} expects at least one part, got {count} of {state}")
        counter = self._counter
        states = [counter(state, i) for i in range(count)]
        if self.is_training:
            known = len(self._origin)
            for i, part in enumerate(states):
                self._origin[part] = (state, i)
            if len(self._origin) != known + count:
                raise GraphError(
                    f"{self.describe()}: the counter must give a state of its own to each part, "
                    f"got {', '.join(map(str, states[:4]))} of {state}"
                )
            self._gradients[state] = [None] * count
            self._missing[state] = count
        return states

    def _take(self, state: State, gradient: Payload) -> tuple[State, list[Payload]] | None:
        """Take one gradient; return (origin, all gradients by number) once the last has come."""
        origin, i = self._origin.pop(state)
        gradients = self._gradients[origin]
        gradients[i] = gradient
        left = self._missing[origin] - 1
        if left:
            self._missing[origin] = left
            return None
        del self._missing[origin], self._gradients[origin]
        return origin, gradients

    def joins(self, direction: Direction, state: State) -> State:
        """Name the origin for whose other gradients one waits."""
        return self._origin[state][0] if direction is Direction.BACKWARD else state

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Send views, or the payload itself; read and write every element of gradients once."""
        if direction is Direction.FORWARD:
            return VIEW
        return elementwise_work(shape, self.element_bytes)

    def pending(self) -> Iterable[State]:
        """States of which some message's gradient has not come back."""
        return self._missing.keys()

    def awaits(self, state: State) -> str:
        """Gradients that have not come back."""
        return f"{self._missing[state]} more gradients"


class Ungroup(_Multiplying):
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
        super().__init__(name, counter)
        self.keeps_axis = keep_axis

    def states(self, state: State, extent: int) -> list[State]:
        """Return the state of each slice of a payload of that extent.

        Raises:
            GraphError: there is no slice, or two of them get one state.
        """
        count = max(extent, 1) if self.keeps_axis else extent
        return self._states(state, count)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send each slice under a state of its own; slices are views.

        Raises:
            GraphError: there is no slice, or two of them get one state.
        """
        extent = payload.shape[0]
        states = self.states(state, extent)
        if isinstance(payload, Standin):
            kept = (min(extent, 1),) if self.keeps_axis else ()
            part = standin((*kept, *payload.shape[1:]), payload.itemsize)
            return [(0, tag, part) for tag in states]
        if self.keeps_axis:
            return [(0, tag, payload[i : i + 1]) for i, tag in enumerate(states)]
        return [(0, tag, payload[i]) for i, tag in enumerate(states)]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient of a slice until all have come back, then send them grouped.

        A slice without gradient counts as zeros; without any, there is none.
        """
        returned = self._take(state, gradient)
        if returned is None:
            return ()
        origin, gradients = returned
        return ((0, origin, self._grouped(gradients)),)

    def _grouped(self, gradients: list[Payload]) -> Payload:
        real = next((part for part in gradients if part is not None), None)
        if real is None:
            return None
        rows, *columns = real.shape if self.keeps_axis else (1, *real.shape)
        shape = (len(gradients) * rows, *columns)
        if self.is_abstract:
            return standin(shape, real.itemsize)
        parts = [np.zeros_like(real) if part is None else part for part in gradients]
        return np.concatenate(parts).reshape(shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Drop the first axis, or say that its extent is 1; of an empty payload it is 0."""
        (shape,) = known(shapes)
        if self.keeps_axis:
            require(len(shape) >= 1, self, "at least one axis", shape)
            return ((1, *shape[1:]),)
        require(len(shape) >= 2, self, "at least two axes", shape)
        return (shape[1:],)


class Replicate(_Multiplying):
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
        super().__init__(name, counter)
        self._count = count

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send the payload itself under each state; nobody may write into a payload.

        Raises:
            GraphError: there is no copy, or two of them get one state.
        """
        states = self._states(state, self._count(state))
        return [(0, tag, payload) for tag in states]

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Keep the gradient of a copy until all have come back, then send their sum."""
        returned = self._take(state, gradient)
        if returned is None:
            return ()
        origin, gradients = returned
        real = [part for part in gradients if part is not None]
        if self.is_abstract or len(real) < 2:
            return ((0, origin, real[0] if real else None),)
        return ((0, origin, reduce(add, real)),)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)
