"""What is wrong with what a step of a node, or a pump, returned; asked once something failed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from ampsim.ir import State


def told(error: Exception) -> str:
    """Kind and text of an error, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def fault_of(sends: Any, port_count: int) -> str | None:
    """Return a sentence for the first thing that is wrong, or None.

    Args:
        sends: what was returned.
        port_count: how many ports there are to send to.
    """
    if not isinstance(sends, tuple | list):
        return f"expected a list of (port, state, payload), got {type(sends).__name__}"
    for send in cast("list[Any]", sends):
        if not isinstance(send, tuple) or len(cast("tuple[Any, ...]", send)) != 3:
            shown = repr(cast("object", send))[:80]
            return f"expected (port, state, payload) in the list, got {shown}"
        port, _state, payload = cast("tuple[Any, Any, Any]", send)
        if port not in range(port_count):
            return f"expected a port below {port_count}, got {port!r}"
        if payload is not None and not hasattr(payload, "nbytes"):
            return f"expected an array or None at port {port}, got {type(payload).__name__}"
    return None


def stray_of(error: Exception, states: list[State], in_flight: Collection[int]) -> str | None:
    """Return a sentence if `error` is that the instance of one of `states` is not known, or None.

    Args:
        error: what counting messages raised.
        states: what the step served and sent.
        in_flight: instances that the controller waits for.
    """
    for state in states:
        if error.args == (state[0],) and isinstance(error, KeyError) and state[0] not in in_flight:
            return (
                f"no instance {state[0]!r} is in flight; "
                "a state's first field must stay the instance"
            )
    return None
