"""Pumps: how a model brings an instance into its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from ampsim.ir import Pumped, Standin

Pump: TypeAlias = Callable[[int, Any], "Sequence[Pumped]"]
"""``pump(instance, batch)`` gives the messages that bring one instance into the graph; each names
the controller's port that it goes to."""


def by_number(pumped: Sequence[Pumped], places: Mapping[Any, Any]) -> Any:
    """The messages with ports by their places; as they are where they are not what they should be.

    Args:
        pumped: what a pump gave.
        places: of the controller's ports, by their names.
    """
    try:
        return [(places.get(port, port), *rest) for port, *rest in pumped]
    except (TypeError, ValueError):
        return pumped


def without_numbers(pump: Pump) -> Pump:
    """Return a pump whose float payloads are stand-ins; integers, which are control, stay."""

    def pump_standins(instance: int, batch: Any) -> list[Pumped]:
        return [(port, state, _standin(payload)) for port, state, payload in pump(instance, batch)]

    return pump_standins


def _standin(payload: Any) -> Any:
    if not isinstance(payload, np.ndarray):
        return payload
    array = cast("np.ndarray[Any, np.dtype[Any]]", payload)
    return Standin(array.shape, array.itemsize) if array.dtype.kind == "f" else array
