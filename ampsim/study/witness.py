"""A witness: what a tiny run did, in so few bytes that it can lie beside a report.

Two witnesses of one row tell whether code that has changed still does the same, and name the first
record that differs where it does not.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError

TOLERANCE: Final = 1e-6
"""Relative difference of a number that is computed and not timed; chosen: far above the rounding of
double precision, and below whatever a reader of a report would notice."""

ROUNDING: Final = 1e-3
"""The same where other kernels of linear algebra computed it; chosen: a hundred times what a tiny
run of the reports was seen to differ by, 8e-6 of a loss."""

HEAD: Final = 8
"""Leading records that are kept in full (chosen: a changed cost shows within the first steps)."""

TAGS: Final = 1000
"""Tags of a table at most (chosen: some kilobytes a row of a report). In a table of no more records
the first that differs is named to the record, else to a few."""

TAG_DIGITS: Final = 3
"""Hexadecimal digits of a tag (chosen: one place in 4,096 is named one tag too late)."""


@dataclass(frozen=True, slots=True)
class Records:
    """One table of a run's trace, condensed.

    Args:
        columns: their names.
        count: of records.
        sha256: over all records in order, with every bit of their times.
        tags: the first digits of that hash after every so many records, one after the other.
        head: the leading records in full.
    """

    columns: tuple[str, ...]
    count: int
    sha256: str
    tags: str
    head: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """What a tiny run of a row did.

    Args:
        tables: records that must be the same to the bit, by table.
        numbers: what was computed from them or learned, the same within `TOLERANCE`, by name.
        failure: why the run ended early; None where it did not.
    """

    tables: Mapping[str, Records]
    numbers: Mapping[str, Any] = field(repr=False)
    failure: str | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over what must be the same to the bit."""
        exact = [
            (name, one.columns, one.count, one.sha256) for name, one in sorted(self.tables.items())
        ]
        text = json.dumps([exact, sorted(self.numbers), self.failure])
        return hashlib.sha256(text.encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """The witness as JSON has it; NaN is the text "nan"."""
        numbers = {name: _text(value) for name, value in self.numbers.items()}
        tables = {name: asdict(one) for name, one in self.tables.items()}
        return {"tables": tables, "numbers": numbers, "failure": self.failure}


def condense(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Records:
    """Condense a table of a trace.

    Args:
        frame: one record a row.
        columns: those that count; all of them unless given.
    """
    names = tuple(map(str, frame.columns if columns is None else columns))
    hasher = hashlib.sha256("\0".join(names).encode())
    tags: list[str] = []
    step = _records_per_tag(len(frame))
    for number, record in enumerate(_records(frame, names), 1):
        hasher.update(repr(record).encode())
        if number % step == 0:
            tags.append(hasher.hexdigest()[:TAG_DIGITS])
    head = tuple(_records(frame.iloc[:HEAD], names))
    return Records(names, len(frame), hasher.hexdigest(), "".join(tags), head)


def from_plain(plain: Any) -> Witness:
    """The witness that `Witness.plain` gave.

    Raises:
        FileFormatError: it is none.
    """
    try:
        tables = {
            str(name): Records(
                tuple(map(str, one["columns"])),
                int(one["count"]),
                str(one["sha256"]),
                str(one["tags"]),
                tuple(tuple(record) for record in one["head"]),
            )
            for name, one in plain["tables"].items()
        }
        numbers = {str(name): _number(value) for name, value in plain["numbers"].items()}
        return Witness(tables, numbers, plain["failure"])
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise FileFormatError(f"expected a witness, got {str(plain)[:40]!r}") from error


def agree(first: Witness, second: Witness) -> bool:
    """Whether two witnesses of the same columns tell of the same run, by the same kernels."""
    return first.digest == second.digest and not list(
        _numbers(first.numbers, second.numbers, TOLERANCE)
    )


def difference(
    before: Witness,
    frames: Mapping[str, pd.DataFrame],
    now: Witness,
    tolerance: float = TOLERANCE,
) -> str | None:
    """Name the first record that differs; None where none does.

    Columns, tables and numbers that `before` does not have do not count.

    Args:
        before: the witness that was kept.
        frames: the tables of the run that `now` tells of.
        now: the witness of now.
        tolerance: relative difference of numbers that is none.
    """
    for name, was in before.tables.items():
        if name not in frames:
            return f"there are no {name} any more"
        frame = frames[name]
        if gone := [column for column in was.columns if column not in frame]:
            return f"{name} have no column {gone[0]!r} any more"
        is_now = condense(frame, was.columns)
        if is_now.sha256 != was.sha256 or is_now.count != was.count:
            return _record_that_differs(name, was, frame)
    if before.failure != now.failure:
        return f"it {_ended(before)}, and now {_ended(now)}"
    return next(_numbers(before.numbers, now.numbers, tolerance), None)


def _record_that_differs(name: str, was: Records, frame: pd.DataFrame) -> str:
    """Say which record it is, what it was as far as that was kept, and what it is."""
    for index, (before, record) in enumerate(
        zip(was.head, _records(frame.iloc[: len(was.head)], was.columns), strict=False)
    ):
        for column, old, new in zip(was.columns, before, record, strict=True):
            if repr(old) != repr(new):
                where = f"record {index + 1} of {name} ({_shown(was.columns, before)})"
                return f"{where}: {column} was {old} and is {new}"
    first, last = _where(was, frame)
    if last > len(frame):
        return f"there are {len(frame)} records of {name}, and were {was.count}"
    if last > was.count:
        what = f"record {was.count + 1} of {name} is new"
        return f"{what}: {_shown(was.columns, _record(frame, was.count, was.columns))}"
    if first < last:
        return f"one of the records {first} to {last} of {name} is another one"
    record = _record(frame, first - 1, was.columns)
    return f"record {first} of {name} is another one, now {_shown(was.columns, record)}"


def _where(was: Records, frame: pd.DataFrame) -> tuple[int, int]:
    """Numbers of the first record, and the last, among which is the first that differs."""
    step = _records_per_tag(was.count)
    hasher = hashlib.sha256("\0".join(was.columns).encode())
    for number, record in enumerate(_records(frame.iloc[: was.count], was.columns), 1):
        hasher.update(repr(record).encode())
        if number % step == 0:
            end = number // step * TAG_DIGITS
            if was.tags[end - TAG_DIGITS : end] != hasher.hexdigest()[:TAG_DIGITS]:
                return number - step + 1, number
    if len(frame) != was.count:
        return min(len(frame), was.count) + 1, min(len(frame), was.count) + 1
    return was.count // step * step + 1, was.count


def _records_per_tag(count: int) -> int:
    return max(1, math.ceil(count / TAGS))


def _record(frame: pd.DataFrame, index: int, columns: Sequence[str]) -> tuple[Any, ...]:
    return next(_records(frame.iloc[index : index + 1], columns))


def _records(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples of Python's own values, whose text is exact."""
    columns = [frame[name].tolist() for name in names]
    return zip(*columns, strict=True)


def _shown(columns: Sequence[str], record: Sequence[Any]) -> str:
    pairs = zip(columns, record, strict=True)
    return ", ".join(f"{column} {value}" for column, value in pairs if value != "")


def _ended(witness: Witness) -> str:
    return f"failed ({witness.failure})" if witness.failure else "did not fail"


def _numbers(before: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    """Numbers that are not what they were, a few words each."""
    for name, was in before.items():
        if name not in now:
            yield f"there is no {name} any more"
        elif not _is_close(was, now[name], tolerance):
            yield f"{name} was {was} and is {now[name]}"


def _is_close(before: Any, now: Any, tolerance: float) -> bool:
    if not isinstance(before, int | float) or not isinstance(now, int | float):
        return before == now
    if math.isnan(before) or math.isnan(now):
        return math.isnan(before) and math.isnan(now)
    return math.isclose(before, now, rel_tol=tolerance)


def _text(value: Any) -> Any:
    """A number as JSON has it; what is not finite is its text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
