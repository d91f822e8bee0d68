"""The spans, transfers and admissions of a run, which causes join; a few columns of each.

A run of millions of steps keeps the leading spans for charts; its critical path and what bounds it
need all of them, if only a few numbers of each. Those stay in memory while they are few, and then
go to a temporary file without a name, which ends with the process.
"""

from __future__ import annotations

import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np

from ampsim.files import appending
from ampsim.trace.kinds import COMPUTE_LANE
from ampsim.trace.table import Columns, Schema, schema

LOG_SCHEMAS: Final[dict[str, Schema]] = {
    "spans": schema("start_s end_s cause instance worker node direction lane"),
    "transfers": schema(
        "sent_s start_s held_s end_s cause target source_worker target_worker bytes"
    ),
    "admissions": schema("time_s cause is_limited"),
}
"""What is logged of each table: in a whole run as many rows as messages."""

BYTES_MAX: Final = 32 * 2**20
"""What stays in memory (chosen: most runs never need the file)."""

_RECENT_MAX: Final = 4  # chunks of the file that are kept: causes are seldom far back


class Log:
    """A sink that keeps some columns of every row, chunk by chunk.

    Args:
        schema: the columns and their types.
        bytes_max: how much of it stays in memory before it goes to a file.
    """

    def __init__(self, schema: Schema, bytes_max: int = BYTES_MAX) -> None:
        self._kind = np.dtype(list(schema.items()))
        self._bytes_max = bytes_max
        self._starts = [0]
        self._chunks: list[np.ndarray] = []
        self._file: IO[bytes] | None = None
        self._recent: dict[int, np.ndarray] = {}

    def __call__(self, columns: Columns) -> None:
        """Take one chunk."""
        rows = len(next(iter(columns.values())))
        chunk = np.empty(rows, self._kind)
        for name in self._kind.names or ():
            chunk[name] = columns[name]
        self._starts.append(len(self) + rows)
        self._chunks.append(chunk)
        if self._file is not None or len(self) * self._kind.itemsize > self._bytes_max:
            self._spill()

    def __len__(self) -> int:
        return self._starts[-1]

    def chunks(self) -> Iterator[np.ndarray]:
        """Iterate over all rows in order, as structured arrays."""
        for place in range(len(self._starts) - 1):
            yield self._chunk(place)

    def chunks_backward(self) -> Iterator[np.ndarray]:
        """Iterate over all rows as `chunks` gives them, the last chunk first."""
        for place in reversed(range(len(self._starts) - 1)):
            yield self._chunk(place)

    def row(self, number: int) -> tuple[Any, ...]:
        """Return one row, a tuple of Python's own numbers, by its number."""
        place = bisect_right(self._starts, number) - 1
        return self._chunk(place).item(number - self._starts[place])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything as in memory, for a file does not travel."""
        chunks = list(self.chunks())
        return {"kind": self._kind, "bytes_max": self._bytes_max, "chunks": chunks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._kind, self._bytes_max = state["kind"], state["bytes_max"]
        self._starts, self._chunks, self._file, self._recent = [0], [], None, {}
        for chunk in state["chunks"]:
            self({name: chunk[name] for name in self._kind.names or ()})

    def _chunk(self, place: int) -> np.ndarray:
        if self._file is None:
            return self._chunks[place]
        if place not in self._recent:
            while len(self._recent) >= _RECENT_MAX:
                del self._recent[next(iter(self._recent))]
            first, last = self._starts[place], self._starts[place + 1]
            self._file.seek(first * self._kind.itemsize)
            content = self._file.read((last - first) * self._kind.itemsize)
            self._recent[place] = np.frombuffer(content, self._kind)
        return self._recent[place]

    def _spill(self) -> None:
        with appending(Path(tempfile.gettempdir()), "keep a trace in TMPDIR,"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="ampsim-")  # noqa: SIM115 - it stays
                weakref.finalize(self, self._file.close)
            self._file.seek(0, 2)
            for chunk in self._chunks:
                self._file.write(chunk.tobytes())
            self._file.flush()
        self._chunks.clear()


class Collectives:
    """Transfers that each stand for a collective, whose messages cross other links than theirs.

    Attributes:
        ways: for each kind of collective the links that it crosses, (source, target), and the share
            of its transfers' time in which it holds each.
        numbers: of the transfers, ascending.
        kinds: of each, its kind's place in `ways`.
    """

    def __init__(self) -> None:
        self.ways: list[Mapping[tuple[int, int], float]] = []
        self.numbers: list[int] = []
        self.kinds: list[int] = []

    def add(self, number: int, kind: int) -> None:
        """Say that a transfer, numbered after all before, stands for a collective of a kind."""
        self.numbers.append(number)
        self.kinds.append(kind)


class CausalRecords(NamedTuple):
    """The records of a run.

    Attributes:
        spans, transfers, admissions: their columns are those of `LOG_SCHEMAS`.
        closures: (time in seconds, is_closed): from when on instances were kept out, or no more.
        collectives: which transfers stand for one.
    """

    spans: Log
    transfers: Log
    admissions: Log
    closures: tuple[tuple[float, bool], ...]
    collectives: Collectives = Collectives()

    def computed(self) -> Iterator[np.ndarray]:
        """Chunks of the spans of what is computed, without other lanes."""
        for chunk in self.spans.chunks():
            yield chunk[chunk["lane"] == COMPUTE_LANE]


def log_of(columns: Columns, table: str) -> Log:
    """Make a log of whole columns, which stays in memory."""
    log = Log(LOG_SCHEMAS[table], bytes_max=1 << 62)
    if len(next(iter(columns.values()))):
        log({name: columns[name] for name in LOG_SCHEMAS[table]})
    return log
