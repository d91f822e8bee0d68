"""Rows of many messages in one array: where each has its place, and how others find it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

CAPACITY: Final = 512
"""Rows that an array has at first; chosen."""

Columns: TypeAlias = "tuple[int, int] | None"
"""First column, and the one after the last; None for all."""


class Life:
    """How many items of an instance are still to be served; its rows are kept as long."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0


class Item:
    """A forward step of a node for one state, and the backward step that follows it.

    Attributes:
        operation: what serves it; None of what the controller pumps.
        life: of its instance.
        state: its message's.
        refs: what it reads, a `Ref` for each input.
        rows: of what it gives.
        pool, at: where these are, once it has been served.
        missing: inputs that are not there yet.
        readers: items that wait for what it gives.
        needs: whether any parameter lies upstream of what it gives.
        gradients: what its backward step sums: (reader, port, offset, rows, columns).
        owed: how many of these are not there yet.
        back: first row of each input's gradient, in the pools of the operation.
    """

    __slots__ = (
        "at", "back", "gradients", "life", "missing", "needs", "operation", "owed", "pool",
        "readers", "refs", "rows", "state", "update", "version",
    )  # fmt: skip

    def __init__(self, operation: Any, life: Life, state: Any, refs: list[Ref], rows: int) -> None:
        self.operation, self.life, self.state = operation, life, state
        self.refs, self.rows = refs, rows
        self.readers: list[Item] = []
        self.gradients: list[Gradient] = []
        self.pool: Pool | None = None
        self.at = self.missing = self.owed = self.version = self.update = 0
        self.needs = False
        self.back: list[int] = []


Ref: TypeAlias = "tuple[Item, int, int, Columns]"
"""A payload: rows of what an item gives, from which one on, how many, and which columns."""

Gradient: TypeAlias = "tuple[Item, int, int, int, Columns]"
"""A reader, its port, and the offset, rows and columns that it read there."""


class Pool:
    """An array in which items have rows, and others beside it with what is kept of each row.

    Row 0 is nobody's. When it is full, rows of instances that are over are forgotten.

    Args:
        shape: of a row.
        dtype: of it.

    Attributes:
        values: the rows.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.values = np.empty((CAPACITY, *shape), dtype)
        self._used = 1
        self._beside: dict[tuple[int, int], np.ndarray] = {}
        self._places: list[tuple[Item, int]] = []

    def reserve(self, rows: int) -> int:
        """Make room for so many rows; return the place of the first. Others may move."""
        if self._used + rows > len(self.values):
            self._compact(rows)
        return self._used

    def give(self, items: Sequence[Item], ports: int | None = None) -> None:
        """Give items the rows that were reserved, one after the other.

        Args:
            items: in the order of their rows.
            ports: the input of which it is the gradient; None for values.
        """
        at = self._used
        if ports is None:
            for item in items:
                item.pool, item.at = self, at
                at += item.rows
                self._places.append((item, -1))
        else:
            for item in items:
                item.back[ports] = at
                at += item.refs[ports][2]
                self._places.append((item, ports))
        self._used = at

    def keep(self, place: int, arrays: Sequence[np.ndarray], at: int) -> None:
        """Keep arrays of rows, which are in their last axis but one, beside the rows from `at`."""
        for number, array in enumerate(arrays):
            whole = self._beside.get((place, number))
            if whole is None:
                shape = (*array.shape[:-2], len(self.values), array.shape[-1])
                whole = self._beside[place, number] = np.empty(shape, array.dtype)
            whole[..., at : at + array.shape[-2], :] = array

    def kept(self, place: int, count: int, rows: np.ndarray | slice) -> list[np.ndarray]:
        """Give back those of some rows."""
        return [_taken(self._beside[place, number], rows, -2) for number in range(count)]

    def _compact(self, rows: int) -> None:
        places = [one for one in self._places if one[0].life.left]
        starts = [item.at if port < 0 else item.back[port] for item, port in places]
        counts = [item.rows if port < 0 else item.refs[port][2] for item, port in places]
        order = spans(starts, counts)
        capacity = len(self.values)
        while 2 * (1 + len(order) + rows) > capacity:
            capacity *= 2
        self.values = _moved(self.values, order, capacity, 0)
        self._beside = {
            name: _moved(array, order, capacity, -2) for name, array in self._beside.items()
        }
        at = 1
        for (item, port), count in zip(places, counts, strict=True):
            if port < 0:
                item.at = at
            else:
                item.back[port] = at
            at += count
        self._used, self._places = at, places


def _moved(array: np.ndarray, order: np.ndarray, capacity: int, axis: int) -> np.ndarray:
    """Rows of that order from 1 on; in place, if there is room enough."""
    kept = array.take(order, axis=axis)
    if array.shape[axis] < capacity:
        shape = list(array.shape)
        shape[axis] = capacity
        array = np.empty(shape, array.dtype)
    if axis:
        array[..., 1 : 1 + len(order), :] = kept
    else:
        array[1 : 1 + len(order)] = kept
    return array


def _taken(array: np.ndarray, rows: np.ndarray | slice, axis: int) -> np.ndarray:
    if isinstance(rows, slice):
        return array[..., rows, :] if axis else array[rows]
    return array.take(rows, axis=axis)


def spans(starts: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """The numbers from each start on, so many of each.

    >>> spans([5, 1], [2, 3])
    array([5, 6, 1, 2, 3])
    """
    if len(starts) < 8:
        parts = [np.arange(s, s + n) for s, n in zip(starts, counts, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)
    count = np.array(counts, np.intp)
    ends = count.cumsum()
    first = np.array(starts, np.intp)
    first[1:] -= ends[:-1]
    return first.repeat(count) + np.arange(ends[-1])


def rows_of(items: Sequence[Item]) -> np.ndarray | slice:
    """Where the values of items are, which are in one pool."""
    if len(items) == 1:
        at = items[0].at
        return slice(at, at + items[0].rows)
    return _spans([item.at for item in items], [item.rows for item in items])


def _spans(starts: list[int], counts: list[int]) -> np.ndarray:
    if max(counts) == 1 == min(counts):
        return np.array(starts, np.intp)
    return spans(starts, counts)


def gathered(refs: Sequence[Ref]) -> np.ndarray:
    """The rows of payloads, one below the other; one nobody may write to."""
    item, offset, rows, columns = refs[0]
    pool = item.pool
    assert pool is not None
    if len(refs) == 1:
        at = item.at + offset
        part = pool.values[at : at + rows]
        return part if columns is None else part[:, columns[0] : columns[1]]
    for ref in refs:
        if ref[0].pool is not pool or ref[3] != columns:
            return _gathered_apart(refs)
    values = pool.values if columns is None else pool.values[:, columns[0] : columns[1]]
    places = _spans([ref[0].at + ref[1] for ref in refs], [ref[2] for ref in refs])
    return values.take(places, axis=0) if columns is None else values[places]


def _gathered_apart(refs: Sequence[Ref]) -> np.ndarray:
    return np.concatenate([gathered([ref]) for ref in refs])


def summed(items: Sequence[Item], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The gradients of what items gave, one below the other: the sums of what readers sent."""
    groups: dict[tuple[Pool, Columns], tuple[list[int], list[int], list[int]]] = {}
    base = 0
    for item in items:
        for reader, port, offset, rows, columns in item.gradients:
            key = (reader.operation.backs[port], columns)
            group = groups.get(key)
            if group is None:
                group = groups[key] = ([], [], [])
            group[0].append(reader.back[port])
            group[1].append(base + offset)
            group[2].append(rows)
        base += item.rows
    total: np.ndarray | None = None
    for (pool, columns), (starts, to, counts) in groups.items():
        sources = _spans(starts, counts)
        places = _spans(to, counts)
        part = pool.values.take(sources, axis=0)
        is_whole = len(places) == base and bool((places == np.arange(base)).all())
        if total is None and is_whole and columns is None:
            total = part
            continue
        if total is None:
            total = np.zeros((base, *shape), dtype)
        into = total if columns is None else total[:, columns[0] : columns[1]]
        if is_whole:
            into += part
        elif len(places) == len(set(places.tolist())):
            into[places] += part
        else:
            np.add.at(into, places, part)
    assert total is not None
    return total
