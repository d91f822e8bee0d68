"""Witnesses: digests of tiny runs, by which a report knows that the code still does the same.

Two witnesses of one row tell whether code that has changed still does the same, and name the first
record that differs where it does not.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import pandas as pd
from pydantic import TypeAdapter

from ampsim.data import Dataset, Split
from ampsim.errors import FileFormatError
from ampsim.metric import Goal
from ampsim.runs.compare import first_apart, is_close
from ampsim.runs.rows import row_of
from ampsim.runs.run import Run, number_from_plain, number_to_plain, run_of
from ampsim.runs.task import Row, Task
from ampsim.study.model import Model
from ampsim.study.result import Result


@dataclass(frozen=True, slots=True)
class Leading:
    """The leading instances of each part of a data set."""

    whole: Dataset[Any]
    train: int
    valid: int

    def count(self, split: Split) -> int:
        """Items at most: those of as many instances of mean size."""
        batches = self.whole.batch_count(split)
        return self.whole.count(split) * self.batch_count(split) // max(batches, 1)

    def batch_count(self, split: Split) -> int:
        """Count the instances."""
        return min(self.whole.batch_count(split), self.train if split == "train" else self.valid)

    def batches(self, split: Split, *, epoch: int, seed: int) -> Iterator[Any]:
        """The leading instances, in the order of the whole."""
        every = self.whole.batches(split, epoch=epoch, seed=seed)
        return itertools.islice(every, self.batch_count(split))


def leading(model: Model, train: int, valid: int) -> Model:
    """The model with the leading instances of its data."""
    scale = model.error_scale

    def make_data(seed: int, count: int | None) -> Dataset[Any]:
        return Leading(model.make_data(seed, count), train, valid)

    def error_scale(few: Leading) -> float:
        return scale(few.whole) if callable(scale) else scale

    return replace(model, make_data=make_data, error_scale=error_scale)


TOLERANCE: Final = 1e-6
"""Relative difference of a number that is computed and not timed; chosen: far above the rounding of
double precision, and below whatever a reader of a report would notice."""

ROUNDING: Final = 1e-2
"""The same where other kernels of linear algebra computed it; chosen: seven times the most that a
tiny run of the reports was seen to differ by, 1.4e-3 of a loss, which stale gradients amplify."""

HEAD: Final = 8
"""Leading records that are kept in full (chosen: a changed cost shows within the first steps)."""

TAGS: Final = 1000
"""Tags of a table at most (chosen: some kilobytes a row of a report). In a table of no more records
the first that differs is named to the record, else to a few."""

TAG_DIGITS: Final = 3
"""Hexadecimal digits of a tag (chosen: one place in 4,096 is named one tag too late)."""


@dataclass(frozen=True, slots=True)
class Records:
    """One table of a run's trace, condensed."""

    columns: tuple[str, ...]  # their names
    count: int  # of records
    sha256: str  # over all records in order, with every bit of their times
    tags: str  # the first digits of that hash after every so many records, one after the other
    head: tuple[tuple[Any, ...], ...]  # the leading records in full


@dataclass(frozen=True, slots=True)
class Witness:
    """The record of a row's tiny run."""

    tables: Mapping[str, Records]  # records that must be the same to the bit, by table
    numbers: Mapping[str, Any] = field(repr=False)  # computed or learned, within `TOLERANCE`
    failure: str | None = None  # why the run ended early; None where it did not

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
        numbers = {name: number_to_plain(value) for name, value in self.numbers.items()}
        tables = {name: asdict(one) for name, one in self.tables.items()}
        return {"tables": tables, "numbers": numbers, "failure": self.failure}


_WITNESS: Final = TypeAdapter(Witness)


def condense(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Records:
    """Condense a table of a trace; all of its columns unless told."""
    names = tuple(map(str, frame.columns if columns is None else columns))
    digest, tags = _hashed(frame, names, len(frame))
    return Records(names, len(frame), digest, tags, tuple(_records(frame.iloc[:HEAD], names)))


def _hashed(frame: pd.DataFrame, columns: Sequence[str], count: int) -> tuple[str, str]:
    """Hash and tags of records, with as many tags as so many records have."""
    hasher, step = hashlib.sha256("\0".join(columns).encode()), _records_per_tag(count)
    tags: list[str] = []
    for number, record in enumerate(_records(frame, columns), 1):
        hasher.update(repr(record).encode())
        if number % step == 0:
            tags.append(hasher.hexdigest()[:TAG_DIGITS])
    return hasher.hexdigest(), "".join(tags)


def witness_from_plain(plain: Any) -> Witness:
    """The witness that `Witness.plain` gave.

    Raises:
        FileFormatError: it is none.
    """
    try:
        told = _WITNESS.validate_python(plain)
        tables = told.tables.values()
        if any(len(record) != len(one.columns) for one in tables for record in one.head):
            raise ValueError
    except ValueError as error:
        raise FileFormatError(f"expected a witness, got {str(plain)[:40]!r}") from error
    numbers = {key: number_from_plain(one) for key, one in told.numbers.items()}
    return replace(told, numbers=numbers)


def agree(first: Witness, second: Witness) -> bool:
    """Tell whether two witnesses of the same columns tell of the same run, by the same kernels."""
    return first.digest == second.digest and not list(
        _numbers(first.numbers, second.numbers, TOLERANCE)
    )


def _canonical(records: Records) -> str:
    """Records as JSON, in which NaN is itself."""
    return json.dumps(asdict(records))


def _record_that_differs(name: str, was: Records, frame: pd.DataFrame) -> str:
    """Say which record it is, what it was as far as that was kept, and what it is."""
    head = tuple(_records(frame.iloc[: len(was.head)], was.columns))
    apart = first_apart(_cells(was.head), _cells(head))
    if apart is not None and apart.a is not None and apart.b is not None:
        index, place = divmod(apart.place, len(was.columns))
        where = f"record {index + 1} of {name} ({_shown(was.columns, was.head[index])})"
        old, new = was.head[index][place], head[index][place]
        return f"{where}: {was.columns[place]} was {old} and is {new}"
    first, last = _where(was, frame)
    if len(frame) == was.count < first:
        return f"the hash of its {name} is another one, and none of them is"
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
    _digest, tags = _hashed(frame.iloc[: was.count], was.columns, was.count)
    apart = first_apart(was.tags, tags)
    if apart is not None and apart.b is not None:
        first = apart.place // TAG_DIGITS * step
        return first + 1, first + step
    if len(frame) != was.count:
        return min(len(frame), was.count) + 1, min(len(frame), was.count) + 1
    return was.count // step * step + 1, was.count


def _records_per_tag(count: int) -> int:
    return max(1, math.ceil(count / TAGS))


def _record(frame: pd.DataFrame, index: int, columns: Sequence[str]) -> tuple[Any, ...]:
    return next(_records(frame.iloc[index : index + 1], columns))


def _records(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as tuples of Python's own values, whose text is exact."""
    return zip(*[frame[name].tolist() for name in names], strict=True)


def _cells(records: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The values of records, one record after the other, as texts that are exact."""
    return (repr(value) for record in records for value in record)


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
        elif not is_close(was, now[name], tolerance):
            yield f"{name} was {was} and is {now[name]}"


TRAINED_MIN: Final = 24
"""Training instances of a tiny run at least (chosen: nodes update themselves several times)."""

TRAINED_MAX: Final = 40
"""And at most, twice as many as may be in flight (chosen: the witnesses of all shipped reports
are made in about two minutes of one core)."""

VALIDATED: Final = 4
"""Its validation instances (chosen: more than one is in flight)."""

_WORDS: Final = frozenset({"schedule", "note"})
"""Columns of a report's table that are sentences."""

_SELDOM: Final = frozenset({"energy_j", "energy_to_target_j", "cost_usd", "cost_to_target_usd"})
"""Columns that count only where they are known, as earlier witnesses have none."""


@dataclass(frozen=True, slots=True)
class TinyRun:
    """A tiny run of a row."""

    witness: Witness  # what is kept of it
    frames: Mapping[str, pd.DataFrame]  # its tables in full, to name a record that differs
    run: Run  # its numbers and tables, with all spans

    def difference(self, before: Witness, tolerance: float = TOLERANCE) -> str | None:
        """Name the first record in which the run differs from another; None where none does.

        Columns, tables and numbers that `before` does not have do not count.
        """
        for name, was in before.tables.items():
            if name not in self.frames:
                return f"there are no {name} any more"
            frame = self.frames[name]
            if gone := [column for column in was.columns if column not in frame]:
                return f"{name} have no column {gone[0]!r} any more"
            is_now = self.witness.tables[name]
            if is_now.columns != was.columns:
                is_now = condense(frame, was.columns)
            if is_now.sha256 != was.sha256 or is_now.count != was.count:
                return _record_that_differs(name, was, frame)
            if is_now != was and _canonical(is_now) != _canonical(was):
                return f"the witness of its {name} does not fit their hash"
        if before.failure != self.witness.failure:
            return f"it {_ended(before)}, and now {_ended(self.witness)}"
        return next(_numbers(before.numbers, self.witness.numbers, tolerance), None)


def tiny_run(row: Row, goal: Goal, seed: int) -> TinyRun:
    """Run a row as its report does, on the leading instances, for one epoch.

    Raises:
        MissingDataError: a data file that the model reads is not there.
    """
    return condensed(row.label, goal, *tiny_task(row, seed).run(None))


def tiny_task(row: Row, seed: int, times: int = 1) -> Task:
    """The tiny run of a row, to be made, or one of so many times its training instances.

    Of these as many as may be in flight are so, and what drains drains twice.
    """
    wanted = 2 * (row.schedule.admission.in_flight_max or 1)
    trained = times * min(TRAINED_MAX, max(TRAINED_MIN, wanted))
    plan = replace(row.plan, model=leading(row.plan.model, trained, VALIDATED))
    return replace(row, plan=plan).task(seed).having(epochs=1, target=None)


def condensed(label: str, goal: Goal, result: Result, failure: str | None) -> TinyRun:
    """Condense the result of a row's tiny run, or why it ended early, to a witness."""
    run = run_of(result, failure, schedule=label, seed=result.origin["seed"])
    recorded = ("spans", "transfers", "admissions", "updates")
    frames = {name: getattr(result, name) for name in recorded}
    tables = {
        name: condense(frame, tuple(result.recorder.columns(name)))
        for name, frame in frames.items()
    }
    frames["staleness"] = run.staleness
    tables["staleness"] = condense(run.staleness)
    numbers = _numbers_of(goal, run)
    return TinyRun(Witness(tables, numbers, failure), frames, run)


def _numbers_of(goal: Goal, run: Run) -> dict[str, Any]:
    """Everything of a report's table, and what of its figures is computed and not recorded."""
    made = row_of(run.schedule, goal, [run])
    numbers: dict[str, Any] = {
        f"{column} of epoch {place}": value
        for column in run.epochs
        for place, value in enumerate(run.epochs[column].tolist(), 1)
    }
    for column in run.utilisation_by_worker:
        values: list[Any] = run.utilisation_by_worker[column].tolist()
        numbers |= {f"{column} share of worker {place}": one for place, one in enumerate(values)}
    table: dict[str, Any] = {
        name: value
        for name, value in made.items()
        if name not in _WORDS and (value is not None or name not in _SELDOM)
    }
    return {
        name: value.item() if hasattr(value, "item") else value  # a NumPy scalar
        for name, value in {**numbers, **table}.items()
    }
