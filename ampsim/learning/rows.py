"""Rows of many messages in one array: where each has its place, and how others find it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

CAPACITY: Final = 512
"""Rows that an array has at first; chosen."""

FEW_ITEMS: Final = 2
"""Items up to which gradients are added one by one; measured: more of them by index."""

Columns: TypeAlias = "tuple[int, int] | None"
"""First column, and the one after the last; None for all."""


VALUE: Final = -1
"""Rows that are what items give."""

KEPT: Final = -2
"""Rows that are kept for their backward steps."""

EVERY: Final = -3
"""Rows that are the gradients of all inputs, one after the other."""


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
        kept: where what its backward step needs is.
        control: by which rows are gathered or summed; of some operations.
        version: of the weights that it reads; of a learner.
        update: after so many updates its backward step is taken; of a learner.
        missing: inputs that are not there yet.
        readers: items that wait for what it gives.
        needs: whether any parameter lies upstream of what it gives.
        gradients: what its backward step sums: (reader, port, offset, rows, columns).
        owed: how many of these are not there yet.
        back: first row of each input's gradient, in the pools of the operation.
    """

    __slots__ = (
        "at", "back", "control", "gradients", "kept", "life", "missing", "needs", "operation",
        "owed", "pool", "readers", "refs", "rows", "state", "update", "version",
    )  # fmt: skip

    def __init__(self, operation: Any, life: Life, state: Any, refs: list[Ref], rows: int) -> None:
        self.operation, self.life, self.state = operation, life, state
        self.refs, self.rows = refs, rows
        self.readers: list[Item] = []
        self.gradients: list[Gradient] = []
        self.pool: RowPool | None = None
        self.at = self.kept = self.missing = self.owed = self.version = self.update = 0
        self.needs = False
        self.back: list[int] = []
        self.control: Any = None


Ref: TypeAlias = "tuple[Item, int, int, Columns]"
"""A payload: rows of what an item gives, from which one on, how many, and which columns."""

Gradient: TypeAlias = "tuple[Item, int, int, int, Columns]"
"""A reader, its port, and the offset, rows and columns that it read there."""


class RowPool:
    """An array in which items have rows. Row 0 is nobody's.

    When it is full, rows of instances that are over are forgotten, and others move.

    Args:
        shape: of all, in which the extent of rows is of no matter.
        dtype: of it.
        axis: of rows; the first, or the last but one.

    Attributes:
        values: the rows.
    """

    __slots__ = ("_axis", "_capacity", "_places", "_used", "values")

    def __init__(self, shape: tuple[int, ...], dtype: Any, axis: int = 0) -> None:
        self._axis, self._capacity, self._used = axis, CAPACITY, 1
        self.values = np.empty(_with(shape, axis, CAPACITY), dtype)
        self._places: list[tuple[Item, int]] = []

    def put(self, rows: np.ndarray, items: Sequence[Item], place: int) -> None:
        """Give items rows, one after the other.

        Args:
            rows: of all.
            items: in the order of their rows.
            place: what they are to them: `VALUE`, `KEPT`, `EVERY` gradient, or that of a port.
        """
        count = rows.shape[self._axis]
        if self._used + count > self._capacity:
            rows = rows.copy()  # they may be some of those that move
            self._compact(count)
        at = self._used
        self._used += count
        if self._axis:
            self.values[..., at : at + count, :] = rows
        else:
            self.values[at : at + count] = rows
        if place == EVERY:
            self._note_every(items, at)
        elif place >= 0:
            for item in items:
                item.back[place] = at
                at += item.refs[place][2]
        elif place == KEPT:
            for item in items:
                item.kept = at
                at += item.rows
        else:
            for item in items:
                item.pool, item.at = self, at
                at += item.rows
        if place != EVERY:
            self._places += [(item, place) for item in items]

    def _note_every(self, items: Sequence[Item], at: int) -> None:
        for item in items:
            for port, ref in enumerate(item.refs):
                item.back[port] = at
                at += ref[2]
                self._places.append((item, port))

    def kept(self, items: Sequence[Item]) -> np.ndarray:
        """Give back what was kept of items."""
        if len(items) == 1:
            at = items[0].kept
            return self.values[..., at : at + items[0].rows, :]
        rows = _spans([item.kept for item in items], [item.rows for item in items])
        return self.values.take(rows, axis=self._axis)

    def _compact(self, more: int) -> None:
        self._places = [one for one in self._places if one[0].life.left]
        starts: list[int] = []
        counts: list[int] = []
        end = 1
        for item, place in self._places:
            start = item.back[place] if place >= 0 else item.at if place == VALUE else item.kept
            after = _moved_to(item, place, end)
            starts.append(start)
            counts.append(after - end)
            end = after
        while 2 * (end + more) > self._capacity:
            self._capacity *= 2
        self.values = _moved(self.values, spans(starts, counts), self._capacity, self._axis)
        self._used = end


def _moved_to(item: Item, place: int, at: int) -> int:
    """Let some of an item's rows begin at `at`; return where they end."""
    if place >= 0:
        item.back[place] = at
        return at + item.refs[place][2]
    if place == VALUE:
        item.at = at
    else:
        item.kept = at
    return at + item.rows


def _with(shape: tuple[int, ...], axis: int, extent: int) -> list[int]:
    extents = list(shape)
    extents[axis] = extent
    return extents


def _moved(array: np.ndarray, order: np.ndarray, capacity: int, axis: int) -> np.ndarray:
    """Rows of that order from 1 on; in place, if there is room enough."""
    kept = array.take(order, axis=axis)
    if array.shape[axis] < capacity:
        array = np.empty(_with(array.shape, axis, capacity), array.dtype)
    if axis:
        array[..., 1 : 1 + len(order), :] = kept
    else:
        array[1 : 1 + len(order)] = kept
    return array


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
    return np.repeat(first, count) + np.arange(int(ends[-1]))


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


def summed(items: Sequence[Item], like: np.ndarray) -> np.ndarray:
    """The gradients of what items gave, one below the other: the sums of what readers sent.

    Args:
        items: of which something is read that needs a gradient.
        like: an array with rows as they gave them.
    """
    if len(items) <= FEW_ITEMS:
        return _summed_one_by_one(items, like)
    groups: dict[tuple[RowPool, Columns], tuple[list[int], list[int], list[int]]] = {}
    base = 0
    for item in items:
        for reader, port, offset, rows, columns in item.gradients:
            key = (reader.operation.back_pool(port), columns)
            group = groups.get(key)
            if group is None:
                group = groups[key] = ([], [], [])
            group[0].append(reader.back[port])
            group[1].append(base + offset)
            group[2].append(rows)
        base += item.rows
    total: np.ndarray | None = None
    for (pool, columns), (starts, to, counts) in groups.items():
        part = pool.values.take(_spans(starts, counts), axis=0)
        places = _spans(to, counts)
        is_whole = len(places) == base and bool((places == np.arange(base)).all())
        if total is None and is_whole and columns is None:
            total = part
        else:
            if total is None:
                total = np.zeros((base, *like.shape[1:]), like.dtype)
            _add(total if columns is None else total[:, slice(*columns)], part, places, is_whole)
    assert total is not None, "no gradient came"
    return total


def _add(into: np.ndarray, part: np.ndarray, places: np.ndarray, is_whole: bool) -> None:
    if is_whole:
        into += part
    elif len(places) == len(set(places.tolist())):
        into[places] += part
    else:  # something was read twice
        np.add.at(into, places, part)


def _summed_one_by_one(items: Sequence[Item], like: np.ndarray) -> np.ndarray:
    total = np.zeros((sum([item.rows for item in items]), *like.shape[1:]), like.dtype)
    base = 0
    for item in items:
        for reader, port, offset, rows, columns in item.gradients:
            at, start = reader.back[port], base + offset
            into = total[start : start + rows]
            if columns is not None:
                into = into[:, columns[0] : columns[1]]
            into += reader.operation.back_pool(port).values[at : at + rows]
        base += item.rows
    return total
