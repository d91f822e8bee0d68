"""Differences between two kept runs, as JSON can hold them.

Traces are compared bit by bit, in the order in which they were recorded, until they first part.
Weights are not kept with a run, so nothing is said of them but what losses and accuracies say.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pandas as pd

from ampsim.runs.folder import SELDOM, TABLES
from ampsim.runs.loaded_run import LoadedRun
from ampsim.text import mapping

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Apart(Generic[T]):
    """The first place where two sequences differ."""

    place: int  # counted from 0
    a: T | None  # what the first has there; None where it has ended
    b: T | None  # likewise of the second


def first_apart(
    a: Iterable[T], b: Iterable[T], is_same: Callable[[T, T], bool] = operator.eq
) -> Apart[T] | None:
    """Find the first place where two sequences differ, or one ends; None where there is none.

    >>> first_apart("same", "sane"), first_apart("as", "ass")
    (Apart(place=2, a='m', b='n'), Apart(place=2, a=None, b='s'))
    """
    for place, (one, other) in enumerate(zip_longest(a, b)):
        if one is None or other is None or not is_same(one, other):
            return Apart(place, one, other)
    return None


def is_close(a: Any, b: Any, tolerance: float) -> bool:
    """Tell if two plain values are the same, numbers within a relative tolerance; NaN is NaN."""
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=tolerance)


_NOT_ORIGIN: Final = ("kind", "format", "files", "pages", "command")
"""Keys of a manifest that say nothing of where numbers come from; `command` has what follows."""

_OF_RUN: Final = (
    "train_per_s", "valid_per_s", "makespan_s", "utilisation", "staleness_mean", "staleness_max",
    "messages",
)  # fmt: skip
_OF_EPOCHS: Final = (
    "time_s", "loss", "valid_loss", "train_accuracy", "accuracy", "train_error", "error",
)  # fmt: skip

_PLAIN: Final = (str, int, float, bool)


def compare_runs(a: LoadedRun, b: LoadedRun) -> dict[str, Any]:
    """Compare two runs.

    Returns:
        `a` and `b`: what ran, and how it ended. `is_identical`: whether the traces are, to the bit.
        `origin`: keys of the manifests whose values differ, each with `a` and `b`, None where there
        is no such key. `numbers`: as of `number`, those of epochs behind those of the whole run.
        `tables`: each with `name`, `rows_a`, `rows_b` and `parting`, where they first differ:
        `index` of the row, the rows `a` and `b`, and `columns` in which these differ; None where
        nowhere.

    Raises:
        FileFormatError: a table is missing or not the one that was written.
    """
    tables = [_compared(name, a.table(name), b.table(name)) for name in (*TABLES, *SELDOM)]
    return {
        "a": _about(a),
        "b": _about(b),
        "is_identical": all(table["parting"] is None for table in tables),
        "origin": list(_origin(a.manifest, b.manifest)),
        "numbers": [*_whole_run(a, b), *_epochs(a.epochs, b.epochs)],
        "tables": tables,
    }


def _about(run: LoadedRun) -> dict[str, Any]:
    names = {"folder": str(run.folder), "model": run.model, "cluster": run.cluster}
    return {**names, "schedule": run.schedule, "ended": run.manifest.get("ended")}


def _origin(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Keys with different values, in the order of the first manifest, then of the second."""
    flat_a, flat_b = (
        dict(_flat({key: value for key, value in one.items() if key not in _NOT_ORIGIN}))
        for one in (a, b)
    )
    for key in dict.fromkeys([*flat_a, *flat_b]):
        values = {"a": flat_a.get(key), "b": flat_b.get(key)}
        if values["a"] != values["b"]:
            yield {"key": key, **values}


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


def _whole_run(a: LoadedRun, b: LoadedRun) -> Iterator[dict[str, Any]]:
    for name in _OF_RUN:
        yield number(name, getattr(a, name), getattr(b, name))
    yield number("updates", len(a.updates), len(b.updates))
    yield number("epochs", len(a.epochs), len(b.epochs))


def _epochs(a: pd.DataFrame, b: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Times, losses and scores of each epoch that either run has; not those unknown in both."""
    for index in range(max(len(a), len(b))):
        for name in _OF_EPOCHS:
            values = [one[name].iloc[index] if index < len(one) else None for one in (a, b)]
            made = number(name, *values, epoch=index + 1)
            if made["a"] is not None or made["b"] is not None:
                yield made


def number(name: str, a: float | None, b: float | None, epoch: int | None = None) -> dict[str, Any]:
    """A number of both runs, their difference B - A and ratio B / A; None where unknown.

    `name` has its unit last; `epoch` counts from 1, and is None of a whole run.
    """
    a, b = (float(one) if one is not None and math.isfinite(one) else None for one in (a, b))
    difference = None if a is None or b is None else b - a
    ratio = None if not a or b is None else b / a
    return {"name": name, "a": a, "b": b, "epoch": epoch, "difference": difference, "ratio": ratio}


def _compared(name: str, a: pd.DataFrame, b: pd.DataFrame) -> dict[str, Any]:
    """Compare a table of two runs: their rows, and where they part."""
    both = min(len(a), len(b))
    columns = [name for name in a.columns if name in b]  # earlier versions wrote fewer
    is_same = {str(one): _is_same(a[one][:both], b[one][:both]) for one in columns}
    apart = np.flatnonzero(~np.logical_and.reduce(list(is_same.values())))
    index, parting = int(apart[0]) if len(apart) else both, None
    if index < max(len(a), len(b)):
        unlike = [one for one, same in is_same.items() if index < both and not same[index]]
        parting = {"index": index, "a": _row(a, index), "b": _row(b, index), "columns": unlike}
    return {"name": name, "rows_a": len(a), "rows_b": len(b), "parting": parting}


def _is_same(one: pd.Series[Any], other: pd.Series[Any]) -> np.ndarray:
    """Tell whether each value is the same, names as texts and numbers to the bit."""
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
