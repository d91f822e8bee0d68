"""Typed columns out of pandas frames: the one place where the report meets untyped data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd  # pyright: ignore[reportMissingTypeStubs] - pandas ships none
from numpy.typing import NDArray

DataFrame: TypeAlias = pd.DataFrame
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Row: TypeAlias = Mapping[str, Any]
_PANDAS: Any = pd
LABELS: Mapping[str, str] = {
    "max_active_keys": "{} in flight",
    "min_update_interval": "update interval {}",
    "replicas": "{} replicas",
}
"""What is said of a row beside its schedule's name, by column."""


def labelled(name: str, column: str, value: str) -> str:
    """A name with what sets its row apart.

    >>> labelled("amp", "replicas", "1"), labelled("amp", "max_active_keys", "8")
    ('amp, 1 replica', 'amp, 8 in flight')
    """
    said = LABELS[column].format(value)
    return f"{name}, {said.removesuffix('s') if value == '1' else said}"


def floats(frame: DataFrame, name: str) -> Floats:
    """Column `name` as float64, unknown values as NaN; all NaN where there is no such column."""
    if name not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(_PANDAS.to_numeric(_column(frame, name), errors="coerce"), dtype=np.float64)


def integers(frame: DataFrame, name: str) -> Integers:
    """Column `name` as int64; the column must be there and whole."""
    return np.asarray(_column(frame, name), dtype=np.int64)


def texts(frame: DataFrame, name: str) -> list[str]:
    """Column `name` as plain strings, in row order."""
    return [str(value) for value in _column(frame, name)]


def rows(frame: DataFrame) -> list[Row]:
    """The rows as mappings from column name to value, in order."""
    untyped: Any = frame
    return list(untyped.to_dict("records"))


def number(row: Row, name: str) -> float:
    """A row's value as a float, NaN where it is unknown or no number."""
    value = row.get(name)
    try:
        return math.nan if value is None or value is pd.NA else float(value)
    except (TypeError, ValueError):
        return math.nan


def text(row: Row, name: str) -> str:
    """A row's value as a string, empty where it is unknown."""
    value = row.get(name)
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value)


def row_labels(table: DataFrame) -> list[str]:
    """A name per row, no two alike: the schedule, and what sets it apart from its namesakes."""
    records = rows(table)
    names = [text(row, "schedule") for row in records]
    for column in LABELS:
        if len(set(names)) == len(names):
            break
        values = [number(row, column) for row in records]
        names = [
            labelled(name, column, f"{value:g}") if _differs(names, values, index) else name
            for index, (name, value) in enumerate(zip(names, values, strict=True))
        ]
    return distinct(names)


def labelled_rows(table: DataFrame) -> list[Row]:
    """The table's rows, each with its label (`row_labels`) as its schedule."""
    labels = row_labels(table)
    return [{**row, "schedule": name} for row, name in zip(rows(table), labels, strict=True)]


def distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered where one comes again.

    >>> distinct(["amp", "amp"])
    ['amp', 'amp (2)']
    """
    found: list[str] = []
    for name in names:
        turn, candidate = 1, name
        while candidate in found:
            turn += 1
            candidate = f"{name} ({turn})"
        found.append(candidate)
    return found


def joined(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all `frames`, which have the same columns, below each other."""
    return _PANDAS.concat(list(frames), ignore_index=True)


def _column(frame: DataFrame, name: str) -> Any:
    untyped: Any = frame
    return untyped[name]


def _differs(names: Sequence[str], values: Sequence[float], index: int) -> bool:
    """Whether a row of the same name has another value."""
    same = [values[i] for i, name in enumerate(names) if name == names[index]]
    return not math.isnan(values[index]) and len(set(same)) > 1
