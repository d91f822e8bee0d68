"""Columns of numbers in base 64, as a page carries them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ampsim.report.frames import DataFrame, Integers, texts
from ampsim.report.gantt.arrows import Arrows
from ampsim.report.gantt.boxes import Lanes


def sent_columns(sent: Arrows, lanes: Lanes, most: int) -> dict[str, str]:
    """Transfers in the order of their starts, as `_Packed.columns`; none if more than `most`."""
    order = np.argsort(sent.start_s, kind="stable")
    if len(order) > most:
        order = order[:0]
    place = {worker: row for row, worker in enumerate(lanes.workers)}
    columns: dict[str, Any] = {
        "start": (sent.start_s, "<f8"),
        "end": (sent.end_s, "<f8"),
        "bytes": (sent.size_bytes, "<f8"),
        "from": (np.array([place[int(w)] for w in sent.source], dtype=np.int64), "<u2"),
        "to": (np.array([place[int(w)] for w in sent.target], dtype=np.int64), "<u2"),
    }
    return {name: in_base64(values[order], kind) for name, (values, kind) in columns.items()}


def in_base64(values: NDArray[Any], kind: str) -> str:
    """Numbers as little-endian bytes of that kind, as text."""
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")


def names_in(spans_by_schedule: Mapping[str, DataFrame], column: str) -> list[str]:
    """The different texts of a column, sorted; one that is empty where there is no such column."""
    found: set[str] = set()
    for spans in spans_by_schedule.values():
        known = DataFrame({column: spans[column].unique()}) if column in spans else None
        found.update([""] if known is None else texts(known, column))
    return sorted(found)


def codes_of(spans: DataFrame, column: str, names: list[str]) -> Integers:
    """Place of each value in `names`."""
    if column not in spans:
        return np.full(len(spans), names.index(""))
    places = {name: index for index, name in enumerate(names)}
    return np.array([places[name] for name in texts(spans, column)], dtype=np.int64)
