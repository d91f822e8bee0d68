"""Messages: what travels between nodes, and the state that each carries.

The paper keeps all dynamic behaviour here (Section 3): a message's state names its instance and its
loop counters, and is the key of every cache, so that nodes can serve messages in any order.
"""

from __future__ import annotations

import math
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, TypeAlias

State: TypeAlias = Any
"""A `NamedTuple` that the model declares; its first field is the instance, an int. Hashable."""

Payload: TypeAlias = Any
"""An array, a `Standin` for one, or None where a gradient is known not to be needed."""

Send: TypeAlias = "tuple[int, State, Payload]"
"""What a node's step asks to be sent: (port of this node, state, payload).

Forward steps name an output port, backward steps an input port; the graph knows its partner."""

Pumped: TypeAlias = "tuple[str | int, State, Payload]"
"""What brings an instance into a graph: (port of the controller, by its name or its place, state,
payload)."""

Sends: TypeAlias = "tuple[Send, ...] | list[Send]"


class Direction(IntEnum):
    """The three kinds of message (Section 3), most urgent first."""

    UPDATE = 0
    BACKWARD = 1
    FORWARD = 2


class Standin:
    """A tensor's shape without its numbers, for runs in `sleep` mode.

    Offers what the engine asks of a payload: `shape`, and the `nbytes` that the array would take.
    """

    __slots__ = ("itemsize", "nbytes", "shape")

    def __init__(self, shape: tuple[int, ...], itemsize: int = 4) -> None:
        self.shape = shape
        self.itemsize = itemsize
        self.nbytes = math.prod(shape) * itemsize

    def __repr__(self) -> str:
        return f"Standin{self.shape}"


standin: Final = lru_cache(maxsize=4096)(Standin)
"""``standin(shape, itemsize)`` is the one array without numbers of a shape; nobody writes one."""
