"""Batch efficiency: the fraction of its FLOP rate that a device reaches on few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ampsim.shown import short

ROWS_MAX = 1_000_000_000
"""Most rows that a point of a curve may name; chosen, to catch a slip."""


def fraction_at(curve: Sequence[tuple[int, float]], rows: int) -> float:
    """Return the fraction of the FLOP rate that a step on `rows` rows reaches.

    Linear in the logarithm of the rows between two points of the curve; below the first point and
    above the last it is theirs.

    >>> fraction_at([(1, 0.1), (100, 0.9)], 10)
    0.5
    >>> [fraction_at([(4, 0.25), (64, 1.0)], rows) for rows in (0, 1, 64, 10_000)]
    [0.25, 0.25, 1.0, 1.0]
    """
    below = [point for point in curve if point[0] <= rows]
    above = [point for point in curve if point[0] >= rows]
    if not below or not above:
        return curve[0][1] if above else curve[-1][1]
    (low, start), (high, end) = below[-1], above[0]
    if low == high:
        return start
    return start + (end - start) * math.log(rows / low) / math.log(high / low)


def _checked(value: Any) -> tuple[tuple[int, float], ...] | None:
    """A curve as a file or a caller gives it."""
    if value is None:
        return None
    points = _parts(value)
    if not points:
        raise _wrong("a list of [rows, fraction] such as [[1, 0.1], [64, 0.9]]", short(value))
    checked = tuple(_point(point) for point in points)
    for before, after in pairwise(checked):
        if before[0] >= after[0]:
            raise _wrong("rows that ascend", f"{after[0]} after {before[0]}")
    return checked


def _point(value: Any) -> tuple[int, float]:
    parts = _parts(value)
    if len(parts) != 2:
        raise _wrong("[rows, fraction] in each place", short(value))
    rows, fraction = parts
    if type(rows) is not int or not 1 <= rows <= ROWS_MAX:
        raise _wrong(f"rows as a whole number, 1 to {ROWS_MAX}", short(rows))
    if type(fraction) not in (int, float) or not 0 < fraction <= 1:
        raise _wrong("a fraction above 0 and at most 1", short(fraction))
    return (rows, float(fraction))


def _parts(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _wrong(expected: str, got: str) -> PydanticCustomError:
    return PydanticCustomError(
        "efficiency", "expected {expected}, got {got}", {"expected": expected, "got": got}
    )


Efficiency: TypeAlias = Annotated[tuple[tuple[int, float], ...] | None, BeforeValidator(_checked)]
"""Points (rows, fraction of the FLOP rate), rows ascending; None where the rate is always reached.
"""
