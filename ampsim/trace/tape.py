"""A tape of what a recorder took down, to be played again at a later time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.trace.kinds import START, Cause, of_admission, of_transfer
from ampsim.trace.recorder import Recorder
from ampsim.trace.table import Columns, RecordTable

TABLES: Final = ("spans", "transfers", "updates", "stashes", "admissions")
"""What a pass over data leaves; causes name rows of three of them."""


@dataclass(frozen=True, slots=True)
class Later:
    """The time and numbers by which what is on a tape happens later."""

    seconds: float  # virtual time between the two
    instances: int  # between the numbers of their first instances
    cause: Cause  # what the second began after


class Tape:
    """Listens to a recorder from now on until `stop`.

    Attributes:
        rows: how many rows it has, once it has stopped.
    """

    def __init__(self, recorder: Recorder) -> None:
        recorder.flush()
        self._recorder = recorder
        self._first = {name: table.count for name, table in _tables(recorder).items()}
        self._closures = len(recorder.closures)
        self._chunks: dict[str, list[Columns]] = {name: [] for name in TABLES}
        for name, table in _tables(recorder).items():
            table.listen(self._chunks[name].append)

    def stop(self) -> None:
        """Keep what was taken down since the beginning."""
        recorder = self._recorder
        recorder.flush()
        for name, table in _tables(recorder).items():
            table.ignore(self._chunks[name].append)
        self._columns = {name: _whole(chunks) for name, chunks in self._chunks.items()}
        self._late = recorder.closures[self._closures :]
        self.rows = sum(_length(columns) for columns in self._columns.values())

    def play(self, later: Later) -> None:
        """Take the same down again, as having happened `later`."""
        recorder = self._recorder
        recorder.flush()
        now = {name: table.count for name, table in _tables(recorder).items()}
        for name, table in _tables(recorder).items():
            columns = self._columns[name]
            if _length(columns):
                table.extend(_moved(columns, later, self._first, now))
        for _row in range(_length(self._columns["spans"])):
            recorder.span_number()
        recorder.closures += [(time_s + later.seconds, one) for time_s, one in self._late]

    def cause_later(self, cause: Cause, later: Later) -> Cause:
        """Return the cause that one on the tape became when the tape was played last."""
        now = {
            name: table.count - _length(self._columns[name])
            for name, table in _tables(self._recorder).items()
        }
        return int(_causes(np.array([cause]), later, self._first, now)[0])


def _tables(recorder: Recorder) -> dict[str, RecordTable]:
    return {name: getattr(recorder, name) for name in TABLES}


def _whole(chunks: Sequence[Columns]) -> Columns:
    names = chunks[0] if chunks else ()
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values()))) if columns else 0


def _moved(
    columns: Columns, later: Later, first: Mapping[str, int], now: Mapping[str, int]
) -> Columns:
    """Columns of a table, as they are where all of it happens later."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if name.endswith("_s"):
            found[name] = column + later.seconds
        elif name == "instance":
            found[name] = np.where(column >= 0, column + later.instances, column)
        elif name == "cause":
            found[name] = _causes(column, later, first, now)
        else:
            found[name] = column
    return found


def _causes(
    causes: np.ndarray, later: Later, first: Mapping[str, int], now: Mapping[str, int]
) -> np.ndarray:
    """Causes by the numbers that their rows have now; those from before the tape are one."""
    moved = np.full(len(causes), later.cause, causes.dtype)
    is_transfer = (causes < START) & (causes % 2 == 0)
    is_admission = (causes < START) & (causes % 2 != 0)
    own = (causes >= 0) & (causes >= first["spans"])
    moved[own] = causes[own] + now["spans"] - first["spans"]
    own = is_transfer & (causes <= of_transfer(first["transfers"]))
    moved[own] = causes[own] - 2 * (now["transfers"] - first["transfers"])
    own = is_admission & (causes <= of_admission(first["admissions"]))
    moved[own] = causes[own] - 2 * (now["admissions"] - first["admissions"])
    return moved
