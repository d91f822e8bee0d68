"""Tables of a run that was kept, as they are read back: whole, of the right columns and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.errors import FileFormatError
from ampsim.hardware import HOST
from ampsim.study.memory_tables import TIMELINE_SCHEMA
from ampsim.study.outages import LOSS_SCHEMA, OUTAGE_SCHEMA
from ampsim.trace.recorder import (
    ADMISSION_SCHEMA,
    COLLECTIVE_SCHEMA,
    EPOCH_SCHEMA,
    EXCHANGE_SCHEMA,
    NODE_COLUMNS,
    SPAN_SCHEMA,
    STASH_SCHEMA,
    TRANSFER_SCHEMA,
    UPDATE_SCHEMA,
)
from ampsim.trace.records import LANE

SCHEMAS: Final[Mapping[str, dict[str, Any]]] = {
    "spans": {**SPAN_SCHEMA, **LANE},
    "transfers": TRANSFER_SCHEMA,
    "admissions": ADMISSION_SCHEMA,
    "updates": UPDATE_SCHEMA,
    "stashes": STASH_SCHEMA,
    "epochs": EPOCH_SCHEMA,
    "memory": TIMELINE_SCHEMA,
    "outages": OUTAGE_SCHEMA | LOSS_SCHEMA,
    "exchanges": EXCHANGE_SCHEMA,
    "collectives": COLLECTIVE_SCHEMA,
}
_TEXTS: Final = (*NODE_COLUMNS, "direction", "state", "kind", "lane", "sends", "waits_for")
_LATER: Final = ("operations", "lane", *LOSS_SCHEMA)
"""Columns that folders of earlier versions, or runs without lanes or checkpoints, do not have."""

_INSTANCE_MAX: Final = 2**31 - 1
"""More than any run comes to; pages hold instances in 32 bits."""

_ARROW: Any = pyarrow
DAMAGED: Final[tuple[type[Exception], ...]] = (
    _ARROW.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
)
"""What a damaged Parquet file raises while it is read."""


def decoded(read: Callable[[], Any], name: str, path: Path, workers: int) -> pd.DataFrame:
    """The rows that `read` gives, if they are those of a table of that name.

    Raises:
        FileFormatError: they cannot be read, or a column or value is none that a run has.
    """
    try:
        frame: pd.DataFrame = read()
    except DAMAGED as error:
        raise refused(path, f"expected a Parquet file, got {type(error).__name__}") from error
    if not frame.columns.is_unique:
        raise refused(path, "expected each column once")
    for column, kind in SCHEMAS[name].items():
        if column in frame:
            _require_kind(frame[column], kind, path)
        elif column not in _LATER:
            raise refused(path, f"missing column {column!r}")
    _require_values(frame, path, workers, HOST if name == "spans" else 0)
    return frame


def without_rows(name: str) -> pd.DataFrame:
    """A table of this name that has no rows."""
    return pd.DataFrame({key: np.zeros(0, kind) for key, kind in SCHEMAS[name].items()})


def _require_kind(column: pd.Series[Any], kind: Any, path: Path) -> None:
    """Names are texts, numbers of the type in which they were recorded."""
    if column.name in _TEXTS:
        given: Any = column
        is_coded = isinstance(column.dtype, pd.CategoricalDtype)
        texts = given.cat.categories if is_coded else column
        if not all(isinstance(one, str) for one in texts) or bool(column.isna().any()):
            raise refused(path, f"{column.name} must hold texts")
    elif column.dtype != np.dtype(kind):
        expected = np.dtype(kind).name
        raise refused(path, f"{column.name} must be of type {expected}, got {column.dtype}")


def _require_values(frame: pd.DataFrame, path: Path, workers: int, first: int) -> None:
    """Workers, from `first`, are those that there are; times lie on the clock; counts count."""
    if "worker" in frame and not frame["worker"].between(first, workers - 1).all():
        raise refused(path, f"worker must be 0 to {workers - 1}")
    if "instance" in frame and not frame["instance"].between(-1, _INSTANCE_MAX).all():
        raise refused(path, f"instance must be -1 to {_INSTANCE_MAX:,}")
    for name in ("flop", "bytes", "operations", "gradient_count", "instances", "updates_lost"):
        if name in frame and not (frame[name] >= 0).all():
            raise refused(path, f"{name} must be >= 0")
    for name in ("start_s", "end_s", "time_s"):
        if name in frame and not (np.isfinite(frame[name]) & (frame[name] >= 0)).all():
            raise refused(path, f"{name} must be a finite time >= 0")
    if "end_s" in frame and not (frame["end_s"] >= frame["start_s"]).all():
        raise refused(path, "end_s must not come before start_s")


def refused(path: Path, what: str) -> FileFormatError:
    """The one line about a file that was changed on its way."""
    return FileFormatError(f"{path}: {what}; run again, or copy it again")
