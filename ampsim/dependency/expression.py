"""Expressions: what an operation on arrays computes, before it is known where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ampsim.errors import OptionError
from ampsim.ir.work import NO_WORK, Work
from ampsim.text import shown

Shape: TypeAlias = tuple[int, ...]


class Operand(ABC):
    """What an expression can be made of: an array at a place.

    Attributes:
        name: what records call it.
    """

    name: str

    @property
    @abstractmethod
    def known_shape(self) -> Shape:
        """Its shape."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """What it takes in memory."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What an operation on arrays computes, before it is known where.

    Args:
        name: what it does, such as "forward".
        inputs: arrays that it reads.
        compute: gives the result from the inputs' values.
        shape: of the result.
        work: what its device is charged for.
        rows, matrix_elements: size of what it works on, as for `DependencyEngine.push`.
    """

    name: str
    inputs: tuple[Any, ...]
    compute: Callable[..., Any]
    shape: Shape
    work: Work = NO_WORK
    rows: int | None = None
    matrix_elements: int | None = None

    def __add__(self, other: Any) -> Expression:
        """The sum with one more array."""
        if self.name != "sum":
            return not_possible(self, "+", other)
        return summed(*self.inputs, other)


def summed(*inputs: Operand) -> Expression:
    """The sum of arrays of one shape, added from the first to the last.

    Raises:
        OptionError: their shapes differ, or there are none.
    """
    if not inputs:
        raise OptionError("summed must be given at least one array")
    first = inputs[0]
    for other in inputs:
        if not isinstance(other, Operand):  # pyright: ignore[reportUnnecessaryIsInstance]  # users' call
            raise OptionError(f"inputs must be arrays at a place, such as a[0], got {shown(other)}")
        if other.known_shape != first.known_shape:
            raise OptionError(
                f"{first.name} + {other.name} must be of one shape, got {first.known_shape} and "
                f"{other.known_shape}"
            )

    def compute(*values: np.ndarray) -> Any:
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    size = int(np.prod(first.known_shape))
    size_bytes = (len(inputs) + 1) * first.size_bytes
    work = Work(flop=(len(inputs) - 1) * size, bytes=size_bytes, operations=len(inputs) - 1)
    return Expression("sum", inputs, compute, first.known_shape, work)


def not_possible(one: Any, sign: str, other: Any) -> Any:
    """Refuse an expression.

    Raises:
        OptionError: always.
    """
    raise OptionError(
        f"{shown(one)} {sign} {shown(other)} is no expression of arrays; sums of arrays, and a "
        "number times an array, are"
    )
