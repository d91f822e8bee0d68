"""Tables of cases in which every two values meet, instead of all products."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some of the products of `axes`: for every two values of two axes there is one that has both.

    Of the products the one that has the most new pairs comes next; of equals, the first.

    >>> len(pairwise("abc", "xy", range(3)))  # of 18 products
    9
    """
    tables = [tuple(values) for values in axes]
    sizes = [len(table) for table in tables]
    places = np.indices(sizes).reshape(len(sizes), -1)
    pairs = list[np.ndarray]()  # a number for each pair of values, by two axes and product
    count = 0
    for one, other in combinations(range(len(sizes)), 2):
        pairs.append(count + places[one] * sizes[other] + places[other])
        count += sizes[one] * sizes[other]
    is_missing = np.ones(count, bool)
    found = list[int]()
    while is_missing.any():
        best = int(sum(is_missing[pair].astype(np.int64) for pair in pairs).argmax())
        for pair in pairs:
            is_missing[pair[best]] = False
        found.append(best)
    return [
        tuple(table[one] for table, one in zip(tables, places[:, best], strict=True))
        for best in sorted(found)
    ]
