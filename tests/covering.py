"""Tables of cases in which every two values meet, instead of all products."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from itertools import combinations
from typing import Any

import numpy as np
import pytest


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some of the products of `axes`: for every two values of two axes there is one that has both.

    Of the products the one that has the most new pairs comes next; of equals, the first.

    >>> len(pairwise("abc", "xy", range(3)))  # of 18 products
    9
    """
    tables = [tuple(values) for values in axes]
    places = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
    return [
        tuple(table[one] for table, one in zip(tables, places[:, case], strict=True))
        for case in _chosen(places)
    ]


def among(cases: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Some of `cases`, if not all products are any: every two values that meet in one meet here.

    >>> among([(1, "a", "x"), (1, "a", "y"), (2, "b", "x"), (1, "b", "y"), (1, "b", "x")])
    [(1, 'a', 'x'), (1, 'a', 'y'), (2, 'b', 'x'), (1, 'b', 'y')]
    """
    columns = list(zip(*cases, strict=True))
    codes = [{value: code for code, value in enumerate(dict.fromkeys(one))} for one in columns]
    places = [[code[one] for one in column] for code, column in zip(codes, columns, strict=True)]
    return [cases[case] for case in _chosen(np.array(places))]


def together(names: str, cases: Iterable[tuple[Any, ...]]) -> Callable[[Callable[..., None]], Any]:
    """As `pytest.mark.parametrize`, but all cases that begin alike are one test.

    A hundred cases of a few milliseconds take less time than a hundred tests; which of them fails
    stands in a note of the error.
    """
    first, *others = names.split(", ")
    by_first: dict[Any, list[tuple[Any, ...]]] = {}
    for case in cases:
        by_first.setdefault(case[0], []).append(case[1:])

    def of(test: Callable[..., None]) -> Any:
        def each(**given: Any) -> None:
            for rest in by_first[given[first]]:
                with _noted(names, given[first], *rest):
                    test(**given, **dict(zip(others, rest, strict=True)))

        asked = signature(test)
        kept = [one for name, one in asked.parameters.items() if name not in others]
        each.__doc__ = test.__doc__
        each.__signature__ = asked.replace(parameters=kept)  # pyright: ignore  # as PEP 362 says
        return pytest.mark.parametrize(first, by_first)(each)

    return of


def of_each(fixture: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One test of all that `fixture` lists, each of which has a name: `test` gets one of them."""

    def of(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def each(**given: Any) -> None:
            for one in given[fixture]:
                with _noted(fixture, one.name):
                    test(**given | {fixture: one})

        return each

    return of


@contextmanager
def _noted(names: str, *values: Any) -> Iterator[None]:
    """Errors and failures from here have a note of the case."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        error.add_note(f"{names}: {', '.join(map(str, values))}")
        raise


def _chosen(places: np.ndarray) -> list[int]:
    """Columns of `places` in which every two numbers of two rows meet that meet in any."""
    found = list[np.ndarray]()  # of two rows, a number for the pair in each column
    count = 0
    for one, other in combinations(places, 2):
        size = int(other.max(initial=0)) + 1
        found.append(count + one * size + other)
        count += (int(one.max(initial=0)) + 1) * size
    pairs = np.array(found, int)
    is_missing = np.zeros(count, bool)
    is_missing[pairs] = True
    best = list[int]()
    while is_missing.any():
        best.append(int(is_missing[pairs].sum(axis=0).argmax()))
        is_missing[pairs[:, best[-1]]] = False
    return sorted(best)
