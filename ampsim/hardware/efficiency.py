"""Efficiency: the fraction of its FLOP rate that a device reaches on few rows or a small matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ampsim.text import short

COUNT_MAX = 1_000_000_000
"""Most rows or elements that a point of a curve may name; chosen, to catch a slip."""


def fraction_at(curve: Sequence[tuple[int, float]], count: int) -> float:
    """Return the fraction of the FLOP rate that a step reaches on `count` rows or elements.

    Linear in the logarithm of the count between two points of the curve; below the first point and
    above the last it is theirs.

    >>> fraction_at([(1, 0.1), (100, 0.9)], 10)
    0.5
    >>> [fraction_at([(4, 0.25), (64, 1.0)], rows) for rows in (0, 1, 64, 10_000)]
    [0.25, 0.25, 1.0, 1.0]
    """
    below = [point for point in curve if point[0] <= count]
    above = [point for point in curve if point[0] >= count]
    if not below or not above:
        return curve[0][1] if above else curve[-1][1]
    (low, start), (high, end) = below[-1], above[0]
    if low == high:
        return start
    return start + (end - start) * math.log(count / low) / math.log(high / low)


def _curve_over(noun: str) -> Callable[[Any], tuple[tuple[int, float], ...] | None]:
    """Return what checks a curve over rows or elements, as a file or a caller gives it."""

    def checked(value: Any) -> tuple[tuple[int, float], ...] | None:
        if value is None:
            return None
        points = _parts(value)
        if not points:
            example = f"a list of [{noun}, fraction] such as [[1, 0.1], [64, 0.9]]"
            raise _wrong(example, short(value))
        curve = tuple(_point(point, noun) for point in points)
        for before, after in pairwise(curve):
            if before[0] >= after[0]:
                raise _wrong(f"{noun} that ascend", f"{after[0]} after {before[0]}")
        return curve

    return checked


def _point(value: Any, noun: str) -> tuple[int, float]:
    parts = _parts(value)
    if len(parts) != 2:
        raise _wrong(f"[{noun}, fraction] in each place", short(value))
    count, fraction = parts
    if type(count) is not int or not 1 <= count <= COUNT_MAX:
        raise _wrong(f"{noun} as a whole number, 1 to {COUNT_MAX}", short(count))
    if type(fraction) not in (int, float) or not 0 < fraction <= 1:
        raise _wrong("a fraction above 0 and at most 1", short(fraction))
    return (count, float(fraction))


def _parts(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _wrong(expected: str, got: str) -> PydanticCustomError:
    return PydanticCustomError(
        "efficiency", "expected {expected}, got {got}", {"expected": expected, "got": got}
    )


Efficiency: TypeAlias = Annotated[
    tuple[tuple[int, float], ...] | None, BeforeValidator(_curve_over("rows"))
]
"""Points (rows, fraction of the FLOP rate), rows ascending; None where the rate is always reached.
"""

MatrixEfficiency: TypeAlias = Annotated[
    tuple[tuple[int, float], ...] | None, BeforeValidator(_curve_over("elements"))
]
"""Points (elements of the weight matrix, fraction), elements ascending; None as `Efficiency`."""

CURVES = {"efficiency": "rows", "matrix_efficiency": "elements"}
"""The keys of a device that are curves, each with what its points count."""
