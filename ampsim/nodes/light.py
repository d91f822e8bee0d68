"""What light operations cost: no FLOP (Appendix C), but bytes where a device counts them."""

from __future__ import annotations

import math
from typing import Final

from ampsim.ir import NO_WORK, Work

ELEMENT_BYTES: Final = 4  # chosen: payloads are charged as single precision, the devices' format

VIEW: Final = Work()
"""A step that sends parts of what it took, or all of it again and again, and moves no bytes."""


def elementwise_work(shape: tuple[int, ...] | None, operations: int = 1) -> Work:
    """Read a payload of `shape` once and write one of the same size, in so many operations."""
    if shape is None:
        return NO_WORK
    return Work(0, 2 * ELEMENT_BYTES * math.prod(shape), operations)


def joined_work(shape: tuple[int, ...] | None, operands: int) -> Work:
    """Read so many payloads of `shape` and write one, an operation for each pair of them."""
    if shape is None:
        return NO_WORK
    return Work(0, (operands + 1) * ELEMENT_BYTES * math.prod(shape), operands - 1)
