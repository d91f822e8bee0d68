"""A growing table of records: rows come in as tuples, leave as typed columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

CHUNK_ROWS: Final = 1 << 16
"""Rows that wait as Python tuples before they become columns (chosen: 13 MB at most)."""

Columns: TypeAlias = "dict[str, np.ndarray]"
Sink: TypeAlias = Callable[[Columns], None]
Coder: TypeAlias = Callable[[Iterable[Any]], Iterable[int]]


class Table:
    """Takes rows; hands full chunks of columns to its sinks, in order.

    Attributes:
        schema: column names and types.
        append: adds one row, a tuple in the schema's order. It is a plain list's method, for it
            runs once a message; `flush_if_full` is called now and then.
    """

    def __init__(
        self,
        schema: dict[str, Any],
        sinks: tuple[Sink, ...],
        coders: Mapping[str, Coder] | None = None,
    ) -> None:
        """Start empty; `coders` make numbers of what rows have in the columns of these names."""
        self.schema = schema
        self._sinks = sinks
        self._coders = coders or {}
        self._rows: list[tuple[Any, ...]] = []
        self.append: Callable[[tuple[Any, ...]], None] = self._rows.append

    def flush_if_full(self) -> None:
        """Hand a chunk on if one is full."""
        if len(self._rows) >= CHUNK_ROWS:
            self.flush()

    def flush(self) -> None:
        """Hand on what there is."""
        if not self._rows:
            return
        rows = self._rows
        assert len(rows[0]) == len(self.schema), f"{rows[0]} does not fit {list(self.schema)}"
        columns = {  # zip(*rows), which makes an iterator for each row, takes twice as long
            name: np.fromiter(self._values(rows, place, name), kind, len(rows))
            for place, (name, kind) in enumerate(self.schema.items())
        }
        rows.clear()
        for sink in self._sinks:
            sink(columns)

    def _values(self, rows: list[tuple[Any, ...]], place: int, name: str) -> Iterable[Any]:
        values = map(itemgetter(place), rows)
        return self._coders[name](values) if name in self._coders else values


class Kept:
    """A sink that keeps the chunks in memory, the first `rows_max` rows of them."""

    def __init__(self, schema: dict[str, Any], rows_max: int | None = None) -> None:
        """Keep all rows, or the first `rows_max`."""
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
