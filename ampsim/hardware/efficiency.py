"""Efficiency: the fraction of its FLOP rate that a device reaches on few rows or a small matrix.

Two curves that are multiplied, one over rows and one over the matrix, cannot say that a library has
a fast way for products that are small in both. A table can, between whose points time is
interpolated. A product of k rows first brings its matrix into the form that the kernel reads, which
does not depend on k, and then works on each row (Goto and van de Geijn, "Anatomy of
high-performance matrix multiplication", 2008), so seconds are linear in rows: at a point's rows and
those of the next there are other kernels, not other laws.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ampsim.text import sequence, short

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


def _points_over(*nouns: str, example: str) -> Callable[[Any], tuple[Any, ...] | None]:
    """Return what checks points over rows, elements or both, as a file or a caller gives them."""

    def checked(value: Any) -> tuple[Any, ...] | None:
        if value is None:
            return None
        given = sequence(value)
        if not given:
            form = f"[{', '.join(nouns)}, fraction]"
            raise _wrong(f"a list of {form} such as {example}", short(value))
        points = tuple(_point(point, nouns) for point in given)
        (_require_ascending if len(nouns) == 1 else _require_grid)(points, nouns[0])
        return points

    return checked


def _point(value: Any, nouns: tuple[str, ...]) -> tuple[Any, ...]:
    parts = sequence(value)
    if len(parts) != len(nouns) + 1:
        raise _wrong(f"[{', '.join(nouns)}, fraction] in each place", short(value))
    *counts, fraction = parts
    for noun, count in zip(nouns, counts, strict=True):
        if type(count) is not int or not 1 <= count <= COUNT_MAX:
            raise _wrong(f"{noun} as a whole number, 1 to {COUNT_MAX}", short(count))
    if type(fraction) not in (int, float) or not 0 < fraction <= 1:
        raise _wrong("a fraction above 0 and at most 1", short(fraction))
    return (*counts, float(fraction))


def _require_ascending(curve: tuple[Any, ...], noun: str) -> None:
    for before, after in pairwise(curve):
        if before[0] >= after[0]:
            raise _wrong(f"{noun} that ascend", f"{after[0]} after {before[0]}")


def _require_grid(surface: tuple[Any, ...], _noun: str) -> None:
    all_rows, all_elements = (sorted({one[place] for one in surface}) for place in (0, 1))
    if [one[:2] for one in surface] != list(product(all_rows, all_elements)):
        raise _wrong(
            f"each of {len(all_rows)} rows with each of {len(all_elements)} elements once, rows "
            "ascending, and elements within them",
            f"{len(surface)} points",
        )


def _wrong(expected: str, got: str) -> PydanticCustomError:
    return PydanticCustomError(
        "efficiency", "expected {expected}, got {got}", {"expected": expected, "got": got}
    )


Curve: TypeAlias = tuple[tuple[int, float], ...]
_LIKE_A_CURVE: Final = "[[1, 0.1], [64, 0.9]]"
Efficiency: TypeAlias = Annotated[
    Curve | None, BeforeValidator(_points_over("rows", example=_LIKE_A_CURVE))
]
"""Points (rows, fraction of the FLOP rate), rows ascending; None where the rate is always reached.
"""

MatrixEfficiency: TypeAlias = Annotated[
    Curve | None, BeforeValidator(_points_over("elements", example=_LIKE_A_CURVE))
]
"""Points (elements of the weight matrix, fraction), elements ascending; None as `Efficiency`."""

CURVES = {"efficiency": "rows", "matrix_efficiency": "elements"}
"""The keys of a device that are curves, each with what its points count."""

Points: TypeAlias = tuple[tuple[int, int, float], ...]
Parts: TypeAlias = list[tuple[int, float]]


def fraction_on(surface: Sequence[tuple[int, int, float]], rows: int, elements: int) -> float:
    """Return the fraction of the FLOP rate that a step with so many rows and elements reaches.

    Between two points seconds are linear in rows, so the fraction's inverse is linear in 1 / rows;
    and it is linear in the logarithm of elements. Outside, the fraction is that of the nearest
    edge.

    >>> table = [(1, 100, 0.1), (1, 10_000, 0.2), (100, 100, 0.5), (100, 10_000, 1.0)]
    >>> fraction_on(table, 100, 100), fraction_on(table, 10_000, 1)
    (0.5, 0.5)
    >>> round(1 / fraction_on(table, 2, 100), 12)  # (1 row: 10; 100 rows: 200; 2 rows: 11.92) / 2
    5.959595959596
    """
    heights = {(row, element): fraction for row, element, fraction in surface}
    by_rows = row_parts({row for row, _element in heights}, rows)
    by_elements = element_parts({element for _row, element in heights}, elements)
    return 1 / sum(
        row_part * element_part / heights[row, element]
        for (row, row_part), (element, element_part) in product(by_rows, by_elements)
    )


def row_parts(places: set[int], rows: int) -> Parts:
    """The places around `rows` and their parts in the inverse of the fraction there."""
    return _parts_of(places, rows, lambda count: -1 / count)


def element_parts(places: set[int], elements: int) -> Parts:
    """Return the places around `elements` and their parts in the fraction there."""
    return _parts_of(places, elements, math.log)


def _parts_of(places: set[int], count: int, scale: Callable[[int], float]) -> Parts:
    ascending = sorted(places)
    after = bisect_right(ascending, count)
    if after == 0 or after == len(ascending):
        return [(ascending[-1] if after else ascending[0], 1.0)]
    low, high = ascending[after - 1], ascending[after]
    part = (scale(count) - scale(low)) / (scale(high) - scale(low))
    return [(low, 1.0 - part), (high, part)]


Surface: TypeAlias = Annotated[
    Points | None,
    BeforeValidator(_points_over("rows", "elements", example="[[1, 1000, 0.1], [64, 1000, 0.9]]")),
]
"""Points (rows, elements of the weight matrix, fraction of the FLOP rate), a full grid; or None."""

SURFACES = ("forward_efficiency", "backward_efficiency")
"""The keys of a device that are surfaces."""
