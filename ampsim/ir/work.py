"""How much a step costs, before any device says how long that takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What one step of one node does: arithmetic, and bytes read and written.

    Args:
        flop: floating-point operations, a count.
        bytes: bytes of activations, gradients and weights that the step reads and writes.
    """

    flop: int = 0
    bytes: int = 0

    def __add__(self, other: Work) -> Work:
        """Work done together is work added up."""
        return Work(self.flop + other.flop, self.bytes + other.bytes)


NO_WORK = Work()
