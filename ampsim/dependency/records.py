"""The records of what ran as columns, and as the spans and transfers of a critical path.

A push and an operation have a span each, in turn: those of operation n have the numbers 2n and
2n + 1. A copy that crossed a link is a transfer, and its span a moment, at the transfer's end.
Spans of what was issued on a lane of its own come behind all these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pandas as pd

from ampsim.dependency.log import OperationLog, variable_name
from ampsim.dependency.places import CATEGORIES, Places, Row
from ampsim.trace import PATH_KINDS, START, Records, read_only
from ampsim.trace.records import log_of
from ampsim.trace.table import Columns

TIMES: Final = ("pushed_s", "ready_s", "start_s", "end_s")
MEMORY_COLUMNS: Final = ("place", "time_s", "bytes", *CATEGORIES)
PUSH_ROW: Final = 0
"""The row of the host's thread that pushes."""

Known: TypeAlias = "dict[str, np.ndarray]"


def dispatches_of(places: Places) -> Known:
    """What was issued: operation, thread, start_s, end_s, in the order of the ends."""
    rows = np.array(places.dispatches).reshape(-1, 4)
    kinds = {"operation": np.int64, "thread": np.int64, "start_s": np.float64, "end_s": np.float64}
    return {name: rows[:, place].astype(kind) for place, (name, kind) in enumerate(kinds.items())}


def columns_of(log: OperationLog, names: Sequence[str | None], rows: Sequence[Row]) -> Known:
    """The columns of the operations' table, and those that the path needs.

    Args:
        log: what was kept of the operations.
        names: of the variables, by number; None of those without one.
        rows: every thread.
    """
    columns = log.columns()
    number, waited_for = np.arange(log.count), columns["waited_for"]
    places, kinds, _threads = zip(*rows, strict=True)
    is_waiting = waited_for != START
    variables = columns["variable"].tolist()
    columns["number"] = number
    columns["ready_cause"] = np.where(is_waiting, 2 * waited_for + 1, 2 * number)
    columns["place"] = np.array(places, np.int64)[columns["thread"]]
    columns["kind"] = np.array(kinds, dtype=object)[columns["thread"]]
    columns["variable"] = np.array(
        ["" if one == START else names[one] or variable_name(one) for one in variables],
        dtype=object,
    )
    return columns


def memory_of(places: Places) -> pd.DataFrame:
    """The timelines of all places in which anything lay."""
    rows = [
        (place, sample.time_s, sum(sample.bytes), *sample.bytes)
        for place, memory in places.memories.items()
        for sample in memory.timeline
        if any(sample.bytes)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(MEMORY_COLUMNS)
    kinds = [np.float64 if name == "time_s" else np.int64 for name in MEMORY_COLUMNS]
    return read_only(
        {
            name: np.array(values, kind)
            for name, values, kind in zip(MEMORY_COLUMNS, columns, kinds, strict=True)
        }
    )


def behind_of(columns: Known, dispatches: Known) -> np.ndarray:
    """For each operation that waited for a thread: which had it before; else `START`."""
    start_s, end_s = columns["start_s"], columns["end_s"]
    ready_s = columns["ready_s"].copy()
    ready_s[dispatches["operation"]] = dispatches["end_s"]
    behind = np.full(len(start_s), START)
    last: dict[int, int] = {}
    for one in np.lexsort((columns["number"], end_s, start_s)).tolist():
        thread = int(columns["thread"][one])
        if start_s[one] > ready_s[one]:
            behind[one] = last.get(thread, START)
        if end_s[one] > start_s[one]:
            last[thread] = one
    return behind


def records_of(columns: Known, transfers: Columns, dispatches: Known) -> Records:
    """All as the spans and transfers that a critical path is read off."""
    count, number = len(columns["number"]), np.repeat(columns["number"], 2)
    is_sent = columns["transfer"] != START
    start_s: np.ndarray = np.where(is_sent, columns["end_s"], columns["start_s"])
    cause: np.ndarray = np.where(is_sent, columns["transfer"], columns["ready_cause"])
    issued, issues = dispatches["operation"], len(dispatches["operation"])
    before = cause[issued]
    cause[issued] = 2 * count + np.arange(issues)
    spans = {
        "start_s": _in_turn(columns["push_start_s"], start_s),
        "end_s": _in_turn(columns["pushed_s"], columns["end_s"]),
        "cause": _in_turn(columns["push_cause"], cause),
        "instance": number,
        "worker": _in_turn(np.full(count, PUSH_ROW), columns["thread"]),
        "node": number,
        "direction": np.zeros(2 * count, np.int8),
    }
    also = {
        "start_s": dispatches["start_s"],
        "end_s": dispatches["end_s"],
        "cause": before,
        "instance": issued,
        "worker": dispatches["thread"],
        "node": issued,
        "direction": np.zeros(issues, np.int8),
    }
    spans = {name: np.concatenate([column, also[name]]) for name, column in spans.items()}
    nobody: Columns = {name: np.zeros(0) for name in ("time_s", "cause", "is_limited")}
    return Records(
        log_of(spans, "spans"),
        log_of(transfers, "transfers"),
        log_of(nobody, "admissions"),
        closures=(),
    )


def busy_s_of(columns: Known, dispatches: Known, rows: int) -> np.ndarray:
    """For how long each thread was occupied, in seconds."""
    spent_s = np.zeros(rows)
    np.add.at(spent_s, columns["thread"], columns["end_s"] - columns["start_s"])
    np.add.at(spent_s, dispatches["thread"], dispatches["end_s"] - dispatches["start_s"])
    spent_s[PUSH_ROW] += float(np.sum(columns["pushed_s"] - columns["push_start_s"]))
    return spent_s


def path_kinds_of(path: Columns, rows: Sequence[Row]) -> np.ndarray:
    """What each part of a path is, in words."""
    words = [_WORDS.get(kind, kind) for kind in PATH_KINDS]
    kinds = np.array(words, dtype=object)[path["kind"]]
    is_push = (path["worker"] == PUSH_ROW) & (kinds == "compute")
    kinds = np.where(is_push, "push", kinds)
    issues = [number for number, row in enumerate(rows) if row.kind == "dispatch"]
    is_issue = np.isin(path["worker"], issues) & (kinds == "compute")
    return np.where(is_issue, "dispatch", kinds).astype(object)


_WORDS: Final = {"device queue": "queue"}


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The elements of both, in turn."""
    return np.stack([first, second], axis=1).ravel()
