"""The cost of a step, before any device says how long that takes."""

from __future__ import annotations

from dataclasses import dataclass


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
