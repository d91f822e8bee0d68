"""What differs between two runs that were kept, in words and as JSON.

Traces are compared bit by bit, in the order in which they were recorded, until they first part;
memory does not grow with them. Weights are not kept with a run, so nothing is said of them but
what losses and accuracies say.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pandas as pd

from ampsim.runs.folder import TABLES
from ampsim.runs.loaded_run import LoadedRun
from ampsim.study.read_off import rate_of
from ampsim.text import mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Apart(Generic[T]):
    """Where two sequences first differ.

    Attributes:
        place: counted from 0.
        a: what the first has there; None where it has ended.
        b: likewise of the second.
    """

    place: int
    a: T | None
    b: T | None


def first_apart(
    a: Iterable[T], b: Iterable[T], is_same: Callable[[T, T], bool] = operator.eq
) -> Apart[T] | None:
    """Where two sequences first differ, or one of them ends; None where they are the same.

    >>> first_apart("same", "sane"), first_apart("as", "ass")
    (Apart(place=2, a='m', b='n'), Apart(place=2, a=None, b='s'))
    """
    for place, (one, other) in enumerate(zip_longest(a, b)):
        if one is None or other is None or not is_same(one, other):
            return Apart(place, one, other)
    return None


def is_close(a: Any, b: Any, tolerance: float) -> bool:
    """Whether two plain values are the same, numbers within a relative tolerance; NaN is NaN."""
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=tolerance)


_NOT_ORIGIN: Final = ("kind", "format", "files", "pages", "command")
"""Keys of a manifest that say nothing of where numbers come from; `command` has what follows."""

_PLAIN: Final = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key of the two manifests whose values differ; None where there is no such key."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Number:
    """A number of both runs; None where it is unknown.

    Attributes:
        name: with its unit last, such as ``makespan_s``.
        epoch: counted from 1; None for a number of the whole run.
    """

    name: str
    a: float | None
    b: float | None
    epoch: int | None = None

    @property
    def difference(self) -> float | None:
        """How much more it is in B."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def ratio(self) -> float | None:
        """How many times A's it is in B; None where A's is 0."""
        return None if self.a is None or self.b is None or not self.a else self.b / self.a


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two tables first differ.

    Attributes:
        index: of the row, from 0.
        a: that row of the first run; None where the first has no more.
        b: likewise of the second.
        columns: in which the two rows differ; none where one is missing.
    """

    index: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """One table of both traces: how many rows, and where they part; None where nowhere."""

    name: str
    rows_a: int
    rows_b: int
    parting: Parting | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs between two runs, and the numbers that do not."""

    origin: tuple[KeyDifference, ...]
    numbers: tuple[Number, ...]
    tables: tuple[TableComparison, ...]

    @property
    def is_identical(self) -> bool:
        """Whether the traces are identical to the bit."""
        return all(table.parting is None for table in self.tables)


def compare_runs(a: LoadedRun, b: LoadedRun) -> Comparison:
    """Compare two runs.

    Raises:
        FileFormatError: a table is missing or not the one that was written.
    """
    return Comparison(
        tuple(_origin(a.manifest, b.manifest)),
        (*_whole_run(a, b), *_epochs(a.table("epochs"), b.table("epochs"))),
        tuple(_compare_table(name, a, b) for name in TABLES),
    )


def _origin(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[KeyDifference]:
    """Keys with different values, in the order of the first manifest, then of the second."""
    flat_a, flat_b = (
        dict(_flat({key: value for key, value in one.items() if key not in _NOT_ORIGIN}))
        for one in (a, b)
    )
    for key in dict.fromkeys([*flat_a, *flat_b]):
        values = flat_a.get(key), flat_b.get(key)
        if values[0] != values[1]:
            yield KeyDifference(key, *values)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each plain value in nested tables and lists with its dotted key."""
    if isinstance(value, Mapping):
        for key, item in mapping(value).items():
            yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        items: list[Any] = [*value]  # pyright: ignore[reportUnknownVariableType]  # any TOML
        for index, item in enumerate(items):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, _PLAIN) else str(value)


def _whole_run(a: LoadedRun, b: LoadedRun) -> Iterator[Number]:
    of_a, of_b = _numbers(a), _numbers(b)
    for name, value in of_a.items():
        yield Number(name, _known(value), _known(of_b[name]))


def _numbers(run: LoadedRun) -> dict[str, float]:
    """Numbers of a whole run, read off its trace chunk by chunk; unknown is NaN."""
    end_s = busy_s = 0.0
    messages = gradients = stale = 0
    stale_max = math.nan
    for spans in run.chunks("spans"):
        end_s = max(end_s, float(spans["end_s"].max()))
        busy_s += float((spans["end_s"] - spans["start_s"]).sum())
        messages += len(spans)
        staleness = spans["staleness"].to_numpy()[spans["staleness"].to_numpy() >= 0]
        gradients, stale = gradients + len(staleness), stale + int(staleness.sum())
        if len(staleness):
            stale_max = float(np.fmax(stale_max, staleness.max()))
    epochs = run.table("epochs")
    available_s = run.workers * end_s
    return {
        "train_per_s": rate_of(epochs["instances"], epochs["train_s"]),
        "valid_per_s": rate_of(epochs["valid_instances"], epochs["valid_s"]),
        "makespan_s": end_s,
        "utilisation": busy_s / available_s if available_s else math.nan,
        "staleness_mean": stale / gradients if gradients else math.nan,
        "staleness_max": stale_max,
        "messages": messages,
        "updates": sum(len(chunk) for chunk in run.chunks("updates")),
        "epochs": len(epochs),
    }


_OF_EPOCHS: Final = (
    "time_s", "loss", "valid_loss", "train_accuracy", "accuracy", "train_error", "error",
)  # fmt: skip


def _epochs(a: pd.DataFrame, b: pd.DataFrame) -> Iterator[Number]:
    """Times, losses and scores of each epoch that either run has; not those unknown in both."""
    for index in range(max(len(a), len(b))):
        for name in _OF_EPOCHS:
            values = [_known(one[name].iloc[index]) if index < len(one) else None for one in (a, b)]
            if values != [None, None]:
                yield Number(name, *values, epoch=index + 1)


def _known(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _compare_table(name: str, a: LoadedRun, b: LoadedRun) -> TableComparison:
    """One table; files of one hash need not be compared row by row."""
    files_a, files_b = a.manifest["files"][name], b.manifest["files"][name]
    parting = None
    if files_a["sha256"] != files_b["sha256"]:
        parting = _parting(a.chunks(name), b.chunks(name))
    else:
        for run in (a, b):
            run.verified(name)
    return TableComparison(name, int(files_a["rows"]), int(files_b["rows"]), parting)


def _parting(a: Iterator[pd.DataFrame], b: Iterator[pd.DataFrame]) -> Parting | None:
    """Where two streams of rows first differ."""
    index = 0
    for one, other in _paired(a, b):
        if len(one) != len(other):  # only when one of the two has ended
            return Parting(index, _row(one, 0), _row(other, 0), ())
        names = [name for name in one.columns if name in other]  # earlier versions wrote fewer
        is_same = {str(name): _is_same(one[name], other[name]) for name in names}
        rows = np.flatnonzero(~np.logical_and.reduce(list(is_same.values())))
        if len(rows):
            row = int(rows[0])
            unlike = tuple(name for name, same in is_same.items() if not same[row])
            return Parting(index + row, _row(one, row), _row(other, row), unlike)
        index += len(one)
    return None


def _paired(
    a: Iterator[pd.DataFrame], b: Iterator[pd.DataFrame]
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Frames of the same rows of both streams, then what one has more, if so, and an empty one."""
    one, other = next(a, pd.DataFrame()), next(b, pd.DataFrame())
    while len(one) and len(other):
        count = min(len(one), len(other))
        yield one[:count], other[:count]
        one, other = one[count:], other[count:]
        one = one if len(one) else next(a, one)
        other = other if len(other) else next(b, other)
    if len(one) or len(other):
        yield one, other


def _is_same(one: pd.Series[Any], other: pd.Series[Any]) -> np.ndarray:
    """Whether each value is the same, names as texts and numbers to the bit."""
    values = [np.asarray(column) for column in (one, other)]
    if all(each.dtype.kind == "f" for each in values):
        values = [each.view(np.int64) for each in values]  # NaN is NaN, and 0 is not -0
    return values[0] == values[1]


def _row(frame: pd.DataFrame, index: int) -> dict[str, Any] | None:
    """A row as plain values, unknown ones as None; None where there is no such row."""
    if index >= len(frame):
        return None
    return {str(name): _plain(np.asarray(frame[name])[index]) for name in frame.columns}


def _plain(cell: Any) -> Any:
    value = cell.item() if hasattr(cell, "item") else str(cell)
    return None if value != value else value  # NaN is the one that is not itself


def to_plain(a: LoadedRun, b: LoadedRun, comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON can hold it."""
    return {
        "a": _run(a),
        "b": _run(b),
        "is_identical": comparison.is_identical,
        "origin": [dataclasses.asdict(one) for one in comparison.origin],
        "numbers": [
            {**dataclasses.asdict(one), "difference": one.difference, "ratio": one.ratio}
            for one in comparison.numbers
        ],
        "tables": [dataclasses.asdict(one) for one in comparison.tables],
    }


def _run(run: LoadedRun) -> dict[str, Any]:
    names = {"folder": str(run.folder), "model": run.model, "cluster": run.cluster}
    return {**names, "schedule": run.schedule, "ended": run.manifest.get("ended")}
