"""What is wrong with what a step of a node, or a pump, returned; asked once something failed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ampsim.ir import State


def told(error: Exception) -> str:
    """Kind and text of an error, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def fault_of(sends: Any, port_count: int, state: State, in_flight: Collection[int]) -> str | None:
    """Return a sentence for the first thing that is wrong, or None.

    Args:
        sends: what was returned.
        port_count: how many ports there are to send to.
        state: what the step served.
        in_flight: instances that the controller waits for.
    """
    if not isinstance(sends, tuple | list):
        return f"expected a list of (port, state, payload), got {type(sends).__name__}"
    for send in sends:  # pyright: ignore[reportUnknownVariableType]  # it may hold anything
        if not isinstance(send, tuple) or len(send) != 3:  # pyright: ignore[reportUnknownArgumentType]  # likewise
            return f"expected (port, state, payload) in the list, got {send!r:.80}"
        port: Any = send[0]  # pyright: ignore[reportUnknownVariableType]  # likewise
        if port not in range(port_count):
            return f"expected a port below {port_count}, got {port!r}"
    if state[0] not in in_flight:
        return (
            f"no instance {state[0]!r} is in flight; a state's first field must stay the instance"
        )
    return None
