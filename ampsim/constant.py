"""Numbers as arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache(maxsize=64)
def constant(value: float, dtype: np.dtype[Any]) -> np.ndarray:
    """`value` as an array of no axes, read-only; NumPy multiplies with it faster than with `value`.

    Of an array of 100 elements, a product with it takes 0.3 µs instead of 0.5.
    """
    array = np.full((), value, dtype)
    array.flags.writeable = False
    return array
