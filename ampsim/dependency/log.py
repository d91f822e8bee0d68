"""What is kept of the operations of a run: rows of numbers, a few dozen bytes each.

An operation is an object while it waits and runs, of which a row is written when it has ended; then
nothing refers to the object any more. The rows lie in push order.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, Final, NamedTuple

import numpy as np

from ampsim.dependency.operation import Operation, default_name

STATES: Final = ("done", "failed", "skipped")
"""Names of the codes of how an operation ended."""

UNNAMED: Final = -1
"""In place of the number of a name: the operation has the name that its number gives it."""

_TIME, _LONG, _INT, _CODE = ("d", "<f8"), ("q", "<i8"), ("i", "<i4"), ("b", "i1")
_FIELDS: Final[dict[str, tuple[str, str]]] = {
    "push_start_s": _TIME,
    "pushed_s": _TIME,
    "ready_s": _TIME,
    "start_s": _TIME,
    "end_s": _TIME,
    "push_cause": _LONG,
    "waited_for": _LONG,
    "transfer": _LONG,
    "flop": _LONG,
    "bytes": _LONG,
    "variable": _INT,
    "thread": _INT,
    "reads": _INT,
    "mutates": _INT,
    "name": _INT,
    "state": _CODE,
}
ROW: Final = np.dtype([(name, kind) for name, (_letter, kind) in _FIELDS.items()])
"""A row: times in seconds; causes; numbers of an operation, a variable, a thread and a name; how
many variables the operation reads and mutates; a code of `STATES`."""

_STRUCT: Final = struct.Struct("<" + "".join(letter for letter, _kind in _FIELDS.values()))
assert _STRUCT.size == ROW.itemsize
_pack_into = _STRUCT.pack_into

_ROW_BYTES: Final = ROW.itemsize
_FIRST_ROWS, _GROWTH = 64, 8
"""Room for so many rows at first, and for an eighth more where it ends (chosen)."""


class Uses(NamedTuple):
    """Which variables operations use.

    Args:
        variables: numbers of those that the first operation reads, then of those that it mutates,
            then the same of the next.
        reads, mutates: how many there are of each operation.
    """

    variables: np.ndarray
    reads: np.ndarray
    mutates: np.ndarray


class OperationLog:
    """The rows of the operations of one engine."""

    def __init__(self) -> None:
        self.count = 0
        self._rows = bytearray()
        self._variables = array("i")
        self._append_variable = self._variables.append
        self._names: dict[str, int] = {}

    def number(self, operation: Operation) -> None:
        """Give an operation the next number, and keep which variables it uses."""
        operation.number = self.count
        self.count += 1
        if self.count * _ROW_BYTES > len(self._rows):
            self._rows += bytes(_ROW_BYTES * (self.count // _GROWTH + _FIRST_ROWS))
        append = self._append_variable
        for variable in operation.used:
            append(variable.number)

    def end(self, operation: Operation, end_s: float) -> None:
        """Write the row of an operation that has ended."""
        number, name, failure = operation.number, operation.given_name, operation.failure
        _seconds, flop, size_bytes = operation.cost
        _pack_into(
            self._rows,
            number * _ROW_BYTES,
            operation.push_start_s,
            operation.pushed_s,
            operation.ready_s,
            operation.start_s,
            end_s,
            operation.push_cause,
            operation.waited_for,
            operation.transfer,
            flop,
            size_bytes,
            operation.waited_variable,
            operation.thread,
            operation.read_count,
            len(operation.used) - operation.read_count,
            UNNAMED if name is None else self._names.setdefault(name, len(self._names)),
            0 if failure is None else 1 if failure.operation is operation else 2,
        )

    def columns(self) -> dict[str, Any]:
        """A copy of the rows as columns; `name` and `state` are words."""
        rows = np.frombuffer(self._rows, ROW)[: self.count]
        columns: dict[str, Any] = {
            name: rows[name].astype(np.float64 if letter == "d" else np.int64)
            for name, (letter, _kind) in _FIELDS.items()
        }
        names = list(self._names)
        columns["name"] = _texts(
            default_name(number) if code == UNNAMED else names[code]
            for number, code in enumerate(columns["name"].tolist())
        )
        columns["state"] = _texts(STATES[code] for code in columns["state"].tolist())
        return columns

    def uses(self) -> Uses:
        """A copy of which variables are used."""
        rows = np.frombuffer(self._rows, ROW)[: self.count]
        variables = np.array(self._variables, np.int64)
        return Uses(variables, rows["reads"].astype(np.int64), rows["mutates"].astype(np.int64))


def variable_name(number: int) -> str:
    """What a variable is called that was made without a name."""
    return f"variable {number}"


def _texts(words: Any) -> np.ndarray:
    return np.array(list(words), dtype=object)
