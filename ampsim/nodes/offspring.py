"""Offspring: what `Ungroup` and `Replicate` remember of the messages that one message became."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampsim.errors import GraphError
from ampsim.ir import Node, Payload, State


class Offspring:
    """Numbers the states that one state gives rise to, and gathers the gradients of all of them.

    Attributes:
        missing: for each origin of which something has not come back, how many.
    """

    __slots__ = ("_counter", "_gradients", "_origin", "missing")

    def __init__(self, counter: Callable[[Any, int], State]) -> None:
        """Give number i of `state` the state ``counter(state, i)``."""
        self._counter = counter
        self._origin: dict[State, tuple[State, int]] = {}
        self._gradients: dict[State, list[Payload]] = {}
        self.missing: dict[State, int] = {}

    def states(self, node: Node, state: State, count: int) -> list[State]:
        """Return the states of `count` messages; in training, expect a gradient of each.

        Raises:
            GraphError: the count is 0, or two of the states are equal.
        """
        if count < 1:
            raise GraphError(f"{node.describe()} expects at least one part, got {count} of {state}")
        counter = self._counter
        states = [counter(state, i) for i in range(count)]
        if node.is_training:
            known = len(self._origin)
            for i, part in enumerate(states):
                self._origin[part] = (state, i)
            if len(self._origin) != known + count:
                raise GraphError(
                    f"{node.describe()}: the counter must give a state of its own to each part, "
                    f"got {', '.join(map(str, states[:4]))} of {state}"
                )
            self._gradients[state] = [None] * count
            self.missing[state] = count
        return states

    def origin(self, state: State) -> State:
        """The state that gave rise to `state`, whose gradient has not come back."""
        return self._origin[state][0]

    def take(self, state: State, gradient: Payload) -> tuple[State, list[Payload]] | None:
        """Take one gradient; return (origin, all gradients by number) once the last has come."""
        origin, i = self._origin.pop(state)
        gradients = self._gradients[origin]
        gradients[i] = gradient
        left = self.missing[origin] - 1
        if left:
            self.missing[origin] = left
            return None
        del self.missing[origin], self._gradients[origin]
        return origin, gradients
