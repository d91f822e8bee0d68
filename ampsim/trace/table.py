"""A growing table of records: rows come in as tuples, leave as typed columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

CHUNK_ROWS: Final = 1 << 16
"""Rows that wait as Python objects before they become columns (chosen: 13 MB at most)."""

Columns: TypeAlias = "dict[str, np.ndarray]"
Schema: TypeAlias = "dict[str, Any]"
"""Columns of a table, in their order, with their types."""
Sink: TypeAlias = Callable[[Columns], None]
Coder: TypeAlias = Callable[[Iterable[Any]], Iterable[int]]


_TYPES: Final[dict[str, Any]] = {
    **dict.fromkeys(("direction", "lane", "kind", "sends", "waits_for"), np.int8),
    **dict.fromkeys(("worker", "source_worker", "target_worker", "rank", "server"), np.int32),
    **dict.fromkeys(("node", "source", "target", "state"), np.int32),
    **dict.fromkeys(("loss", "valid_loss", "accuracy", "train_accuracy"), np.float64),
    **dict.fromkeys(("error", "train_error", "distance"), np.float64),
}


def schema(names: str, **others: Any) -> Schema:
    """Columns with their types: codes are narrow, seconds floats, claims flags, counts 64 bits.

    Args:
        names: of the columns, in their order, with a space between any two.
        others: types of those that are otherwise in this table than in all others.
    """
    found: Schema = {}
    for name in names.split():
        usual = np.bool_ if name.startswith("is_") else np.int64
        found[name] = np.float64 if name.endswith("_s") else _TYPES.get(name, usual)
    return found | others


class Field(NamedTuple):
    """A rule that makes a column of rows: the place in a row, the type, and who codes values.

    `rough` takes the coder's place where that fails, so that the trace of a run that failed on a
    value that should not be there can still be read.
    """

    place: int
    kind: Any
    coder: Coder | None = None
    rough: Coder | None = None


class RecordTable:
    """Takes rows; hands full chunks of columns to its sinks, in order.

    Attributes:
        append: adds one row, a tuple in the order of the fields' places. It is a plain list's
            method, for it runs once a message; `flush_if_full` is called now and then. The list has
            the values of all rows one after the other: no tuple is kept.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        sinks: tuple[Sink, ...],
        spell_out: Callable[[Columns], Columns] | None = None,
    ) -> None:
        self._fields = fields
        self._width = 1 + max(one.place for one in fields.values())
        self._sinks = sinks
        self._spell_out = spell_out
        self._values: list[Any] = []
        self._flushed = 0
        self.append: Callable[[tuple[Any, ...]], None] = self._values.extend

    @property
    def count(self) -> int:
        """Rows that have come so far."""
        return self._flushed + len(self._values) // self._width

    def latest(self, count: int) -> list[tuple[Any, ...]]:
        """The last rows, at most so many, of those that are not columns yet."""
        values = self._values[-count * self._width :]
        return list(zip(*[iter(values)] * self._width, strict=True))

    def listen(self, sink: Sink) -> None:
        """Hand chunks to one more sink."""
        self._sinks = (*self._sinks, sink)

    def ignore(self, sink: Sink) -> None:
        """Hand no more chunks to a sink."""
        self._sinks = tuple(one for one in self._sinks if one != sink)

    def extend(self, columns: Columns) -> None:
        """Add rows that are columns already, as sinks take them, behind all that came."""
        self.flush()
        self._flushed += len(next(iter(columns.values())))
        for sink in self._sinks:
            sink(columns)

    def flush_if_full(self) -> None:
        """Hand a chunk on if one is full."""
        if len(self._values) >= CHUNK_ROWS * self._width:
            self.flush()

    def flush(self) -> None:
        """Hand on what there is."""
        values, width = self._values, self._width
        if not values:
            return
        assert len(values) % width == 0, f"{values[-width:]} does not fit {list(self._fields)}"
        columns = {
            name: _column(values[one.place :: width], one) for name, one in self._fields.items()
        }
        self._flushed += len(values) // width
        values.clear()
        if self._spell_out is not None:
            columns = self._spell_out(columns)
        for sink in self._sinks:
            sink(columns)


def _column(values: list[Any], field: Field) -> np.ndarray:
    coder = iter if field.coder is None else field.coder
    try:
        return np.fromiter(coder(values), field.kind, len(values))
    except (TypeError, ValueError, LookupError):
        if field.rough is None:
            raise
        return np.fromiter(field.rough(values), field.kind, len(values))


def plain_fields(schema: Mapping[str, Any]) -> dict[str, Field]:
    """The fields of rows that hold the columns of `schema`, in its order."""
    return {name: Field(place, kind) for place, (name, kind) in enumerate(schema.items())}


class KeptRows:
    """A sink that keeps the chunks in memory, the first `rows_max` rows of them."""

    def __init__(self, schema: dict[str, Any], rows_max: int | None = None) -> None:
        self._schema = schema
        self._chunks: list[Columns] = []
        self._room = rows_max

    def __call__(self, columns: Columns) -> None:
        """Take one chunk."""
        if self._room is None:
            self._chunks.append(columns)
        elif self._room > 0:
            kept = {name: column[: self._room] for name, column in columns.items()}
            self._room -= len(next(iter(kept.values())))
            self._chunks.append(kept)

    def columns(self) -> Columns:
        """Return everything kept, as whole columns."""
        return {
            name: np.concatenate([chunk[name] for chunk in self._chunks])
            if self._chunks
            else np.zeros(0, kind)
            for name, kind in self._schema.items()
        }
