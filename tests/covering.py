"""Tables of cases in which every two values meet, instead of all products."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some of the products of `axes`: for every two values of two axes there is one that has both.

    Of the products the one that has the most new pairs comes next; of equals, the first.

    >>> len(pairwise("abc", "xy", range(3))), len(list(product("abc", "xy", range(3))))
    (9, 18)
    """
    tables = [tuple(values) for values in axes]
    places = list(product(*(range(len(table)) for table in tables)))
    missing = {pair for place in places for pair in _pairs(place)}
    found: list[tuple[int, ...]] = []
    while missing:
        best = max(places, key=lambda place: sum(pair in missing for pair in _pairs(place)))
        missing -= _pairs(best)
        found.append(best)
    return [
        tuple(table[one] for table, one in zip(tables, place, strict=True))
        for place in sorted(found)
    ]


def _pairs(place: Sequence[int]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return set(combinations(enumerate(place), 2))
