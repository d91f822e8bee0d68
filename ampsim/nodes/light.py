"""What light operations cost: no FLOP (Appendix C), but bytes where a device counts them."""

from __future__ import annotations

import math
from typing import Final

from ampsim.ir import NO_WORK, Work

ELEMENT_BYTES: Final = 4  # chosen: payloads are charged as single precision, the devices' format


def elementwise_work(shape: tuple[int, ...] | None) -> Work:
    """Read a payload of `shape` once and write one of the same size."""
    if shape is None:
        return NO_WORK
    return Work(0, 2 * ELEMENT_BYTES * math.prod(shape))
