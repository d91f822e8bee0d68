"""What light operations cost: no FLOP (Appendix C), but bytes where a device counts them."""

from __future__ import annotations

import math
from typing import Final

from ampsim.ir import NO_WORK, Work

VIEW: Final = Work()
"""A step that sends parts of what it took, or all of it again and again, and moves no bytes."""


def elementwise_work(
    shape: tuple[int, ...] | None, element_bytes: int, operations: int = 1
) -> Work:
    """Read a payload of `shape` once and write one of the same size, in so many operations."""
    if shape is None:
        return NO_WORK
    return Work(0, 2 * element_bytes * math.prod(shape), operations)


def joined_work(shape: tuple[int, ...] | None, element_bytes: int, operands: int) -> Work:
    """Read so many payloads of `shape` and write one, an operation for each pair of them."""
    if shape is None:
        return NO_WORK
    return Work(0, (operands + 1) * element_bytes * math.prod(shape), operands - 1)
