"""Values that JSON knows."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The same value with None for numbers that JSON does not know, and text for keys.

    >>> finite({1: [float("nan"), 0.5, ("a", float("inf"))]})
    {'1': [None, 0.5, ['a', None]]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  # any JSON
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]  # pyright: ignore[reportUnknownVariableType]  # any JSON
    return value
