"""The cost of a step, before any device says how long that takes.

Light operations cost no FLOP (Appendix C), but bytes where a device counts them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one step of one node: arithmetic, bytes moved, and operations one by one.

    Args:
        flop: floating-point operations, a count.
        bytes: bytes of activations, gradients and weights that the step reads and writes.
        operations: elementary operations that the step issues one after the other, each a call of
            a library or a kernel; views and what a node computes in Python are none.
        weight_bytes: those of `bytes` that are weights which every step of the node reads.
        pass_bytes: bytes that operations other than products read and write if each makes a pass
            of its own over its arrays, as a call of NumPy does; 0 where `bytes` are all of them.
        functions: elements that go through a function of more than one instruction, such as exp,
            tanh, a root or a maximum.
    """

    flop: int = 0
    bytes: int = 0
    operations: int = 1
    weight_bytes: int = 0
    pass_bytes: int = 0
    functions: int = 0

    def __add__(self, other: Work) -> Work:
        """Work done together is work added up."""
        return Work(
            self.flop + other.flop,
            self.bytes + other.bytes,
            self.operations + other.operations,
            self.weight_bytes + other.weight_bytes,
            self.pass_bytes + other.pass_bytes,
            self.functions + other.functions,
        )


NO_WORK = Work()


class Calls(NamedTuple):
    """Calls of a library by which an optimizer steps a vector of parameters.

    Args:
        operations: how many there are.
        passes: arrays of the vector's size that they read and write, each for itself.
        functions: how many take a root of every element.
    """

    operations: int
    passes: int
    functions: int = 0


DESCENT: Final = Calls(2, 5)
"""Plain gradient descent: the gradient times the rate, and the weights less that."""

VIEW: Final = Work()
"""A step that sends parts of what it took, or all of it again and again, and moves no bytes."""


def elementwise_work(
    shape: tuple[int, ...] | None,
    element_bytes: int,
    operations: int = 1,
    *,
    passes: int = 2,
    functions: int = 0,
    arrays: int = 2,
) -> Work:
    """Read a payload of `shape` once and write one of the same size, in so many operations.

    Args:
        shape: of the payload; None where there is none.
        element_bytes: of an element.
        operations: calls of a library.
        passes: payloads that they read and write, each by itself.
        functions: applied to each element.
        arrays: payloads that are read or written at least.
    """
    if shape is None:
        return NO_WORK
    elements = math.prod(shape)
    moved, passed = arrays * element_bytes * elements, passes * element_bytes * elements
    return Work(0, moved, operations, 0, passed if passes != arrays else 0, functions * elements)


def placed_work(part: int, whole: int, element_bytes: int) -> Work:
    """Write a part of so many elements among the zeros of a whole."""
    moved, passed = (part + whole) * element_bytes, (2 * part + whole) * element_bytes
    return Work(0, moved, 2, pass_bytes=passed)


def joined_work(
    shape: tuple[int, ...] | None, element_bytes: int, operands: int, small: int = 0
) -> Work:
    """Read so many payloads of `shape` and write one, an operation for each pair of them.

    Of these, `small` are spread over the others, and as good as nothing to read.
    """
    if shape is None:
        return NO_WORK
    size_bytes, operations = element_bytes * math.prod(shape), operands - 1
    passed = (3 * operations - small) * size_bytes if operations > 1 else 0
    return Work(0, (operands + 1 - small) * size_bytes, operations, pass_bytes=passed)
