"""Rows of many messages in one array: where each has its place, and how others find it again."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
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
    """Counts the items of an instance that are still to be served; its rows are kept as long."""

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

    Rows are given out one after the other; where no more are free, those of instances that are over
    are given out again. None ever moves.

    Args:
        shape: of all, in which the extent of rows is of no matter.
        dtype: of it.
        axis: of rows; the first, or the last but one.

    Attributes:
        values: the rows.
    """

    __slots__ = ("_axis", "_stop", "_taken", "_used", "values")

    def __init__(self, shape: tuple[int, ...], dtype: Any, axis: int = 0) -> None:
        self._axis, self._used, self._stop = axis, 1, CAPACITY
        self.values = np.empty(_with(shape, axis, CAPACITY), dtype)
        self._taken: list[tuple[int, int, set[Life]]] = []

    def put(self, rows: np.ndarray, items: Sequence[Item], place: int) -> None:
        """Give items rows, one after the other.

        Args:
            rows: of all.
            items: in the order of their rows.
            place: what they are to them: `VALUE`, `KEPT`, `EVERY` gradient, or that of a port.
        """
        count = rows.shape[self._axis]
        if self._used + count > self._stop:
            self._make_room(count)
        at = self._used
        self._used += count
        self._taken.append((at, self._used, {item.life for item in items}))
        if self._axis:
            self.values[..., at : at + count, :] = rows
        else:
            self.values[at : at + count] = rows
        if place == EVERY:
            _note_every(items, at)
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

    def kept(self, items: Sequence[Item]) -> np.ndarray:
        """Give back what was kept of items."""
        if len(items) == 1:
            at = items[0].kept
            return self.values[..., at : at + items[0].rows, :]
        rows = _spans([item.kept for item in items], [item.rows for item in items])
        return self.values.take(rows, axis=self._axis)

    def _make_room(self, count: int) -> None:
        """Go on in the largest gap between rows of which an instance is under way, or behind all.

        The array grows where that would soon be full again.
        """
        taken = [one for one in self._taken if any(life.left for life in one[2])]
        taken.sort(key=itemgetter(0))
        self._taken, capacity = taken, self.values.shape[self._axis]
        starts = [1, *[end for _at, end, _lives in taken]]
        stops = [*[at for at, _end, _lives in taken], capacity]
        room, at = max([(stop - at, at) for at, stop in zip(starts, stops, strict=True)])
        if room < max(count, capacity // 4):
            at, room = starts[-1], max(count, 2 * capacity - starts[-1])
            values = np.empty(_with(self.values.shape, self._axis, at + room), self.values.dtype)
            whole = np.s_[..., :capacity, :] if self._axis else np.s_[:capacity]
            values[whole] = self.values
            self.values = values
        self._used, self._stop = at, at + room


def _note_every(items: Sequence[Item], at: int) -> None:
    for item in items:
        for port, ref in enumerate(item.refs):
            item.back[port] = at
            at += ref[2]


def _with(shape: tuple[int, ...], axis: int, extent: int) -> list[int]:
    extents = list(shape)
    extents[axis] = extent
    return extents


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
