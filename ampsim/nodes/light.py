"""Light operations cost no FLOP (Appendix C), but bytes where a device counts them."""

from __future__ import annotations

import math
from typing import Final

from ampsim.ir import NO_WORK, Work

VIEW: Final = Work()
"""A step that sends parts of what it took, or all of it again and again, and moves no bytes."""


def elementwise_work(
    shape: tuple[int, ...] | None,
    element_bytes: int,
    operations: int = 1,
    *,
    passes: int = 2,
    functions: int = 0,
) -> Work:
    """Read a payload of `shape` once and write one of the same size, in so many operations.

    Args:
        shape: of the payload; None where there is none.
        element_bytes: of an element.
        operations: calls of a library.
        passes: payloads that they read and write, each by itself.
        functions: applied to each element.
    """
    if shape is None:
        return NO_WORK
    elements = math.prod(shape)
    moved, passed = 2 * element_bytes * elements, passes * element_bytes * elements
    return Work(0, moved, operations, 0, passed if passes != 2 else 0, functions * elements)


def joined_work(shape: tuple[int, ...] | None, element_bytes: int, operands: int) -> Work:
    """Read so many payloads of `shape` and write one, an operation for each pair of them."""
    if shape is None:
        return NO_WORK
    size_bytes, operations = element_bytes * math.prod(shape), operands - 1
    passed = 3 * operations * size_bytes if operations > 1 else 0
    return Work(0, (operands + 1) * size_bytes, operations, pass_bytes=passed)
