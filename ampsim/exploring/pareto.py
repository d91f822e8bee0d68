"""Which of several points are dominated, and how much the others dominate; all is minimised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Values: TypeAlias = tuple[float, ...]
"""A value of each objective."""


def dominates(one: Values, other: Values) -> bool:
    """Whether one is nowhere worse, and somewhere better.

    >>> dominates((1.0, 2.0), (1.0, 3.0)), dominates((1.0, 2.0), (1.0, 2.0))
    (True, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def pareto(points: Sequence[Values]) -> list[int]:
    """The places of the points that no other one dominates; equal ones are all among them.

    >>> pareto([(1.0, 3.0), (2.0, 2.0), (2.0, 4.0), (1.0, 3.0)])
    [0, 1, 3]
    """
    return [
        place
        for place, one in enumerate(points)
        if not any(dominates(other, one) for other in points)
    ]


def hypervolume(points: Sequence[Values], reference: Values) -> float:
    """The volume that points dominate, up to a reference that none of them may exceed to count.

    Slices along the last objective, each the hypervolume of what lies below it in the others.
    Source: While, Hingston, Barone and Huband, "A faster algorithm for calculating hypervolume",
    2006, Section II (hypervolume by slicing objectives).

    >>> hypervolume([(1.0, 2.0), (2.0, 1.0)], (3.0, 3.0))
    3.0
    """
    inside = [one for one in points if all(a < b for a, b in zip(one, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(one[0] for one in inside)
    ordered = sorted(inside, key=lambda one: one[-1])
    ends = [*(one[-1] for one in ordered[1:]), reference[-1]]
    volume = 0.0
    for count, (one, end) in enumerate(zip(ordered, ends, strict=True), 1):
        if end > one[-1]:
            below = [other[:-1] for other in ordered[:count]]
            volume += (end - one[-1]) * hypervolume(below, reference[:-1])
    return volume


def reference_of(points: Sequence[Values]) -> Values:
    """Where volumes end: a tenth beyond the largest value of each objective (chosen: as usual)."""
    return tuple(
        high + 0.1 * (high - min(column) or abs(high) or 1.0)
        for column in zip(*points, strict=True)
        if math.isfinite(high := max(column))
    )
