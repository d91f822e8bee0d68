"""Tables of a run that reports read: how much of it was kept, its lanes and hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ampsim.report.words import plain, told_apart
from ampsim.runs.run import Run, RunTable
from ampsim.study.bound_words import fitting
from ampsim.text import distinct, marked
from ampsim.trace import COMPUTE_LANE, COPY_OUT_LANE, LANES
from ampsim.units import format_count, format_seconds

if TYPE_CHECKING:
    from ampsim.runs.loaded_run import LoadedRun
    from ampsim.study.result import Result

DataFrame: TypeAlias = pd.DataFrame
Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Row: TypeAlias = Mapping[str, Any]
LABELS: Mapping[str, str] = {
    "max_active_keys": "{} in flight",
    "min_update_interval": "update interval {}",
    "replicas": "{} replicas",
}
"""What is said of a row beside its schedule's name, by column."""


def floats(frame: DataFrame, name: str) -> Floats:
    """Column `name` as float64, unknown values as NaN; all NaN where there is no such column."""
    if name not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(pd.to_numeric(frame[name], errors="coerce"), dtype=np.float64)


def integers(frame: DataFrame, name: str) -> Integers:
    """Column `name` as int64; the column must be there and whole."""
    return np.asarray(frame[name], dtype=np.int64)


def texts(frame: DataFrame, name: str) -> list[str]:
    """Column `name` as plain strings, in row order."""
    return [str(value) for value in frame[name]]


def rows(frame: DataFrame) -> list[Row]:
    """The rows as mappings from column name to value, in order."""
    records: list[Any] = frame.to_dict("records")
    return records


def number(row: Row, name: str) -> float:
    """A row's value as a float, NaN where it is unknown or no number."""
    try:
        return float(row[name])
    except (KeyError, TypeError, ValueError):
        return math.nan


def text(row: Row, name: str) -> str:
    """A row's value as a string, empty where it is unknown."""
    value = row.get(name)
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value)


def row_labels(table: DataFrame) -> list[str]:
    """A name per row, no two alike: the schedule, and what sets it apart from its namesakes."""
    records = rows(table[[name for name in ("schedule", *LABELS) if name in table]])
    names = [text(row, "schedule") for row in records]
    return distinct(marked_by(names, records, LABELS))


def marked_by(names: Sequence[str], records: Sequence[Row], columns: Iterable[str]) -> list[str]:
    """The names of rows, with the value of each column where rows of one name differ in it.

    An unknown value is not told.

    >>> marked_by(["amp", "amp"], [{"replicas": 1}, {"replicas": 8}], ["replicas"])
    ['amp, 1 replica', 'amp, 8 replicas']
    """
    for column in columns:
        values = [_said(column, number(row, column)) for row in records]
        names = marked(names, values, "{}, {}".format)
    return list(names)


def _said(column: str, value: float) -> str:
    if math.isnan(value):
        return ""
    said = LABELS.get(column, f"{{}} {column}").format(format_count(value))
    return said.removesuffix("s") if value == 1 else said


def labelled_rows(table: DataFrame, longest: int) -> list[Row]:
    """The table's rows, each with its label (`row_labels`), cut to a length, as its schedule."""
    labels = told_apart(row_labels(table), longest).values()
    return [{**row, "schedule": name} for row, name in zip(rows(table), labels, strict=True)]


def joined(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all `frames`, which have the same columns, below each other."""
    return pd.concat(list(frames), ignore_index=True)


@dataclass(frozen=True, slots=True)
class KeptPart:
    """The part of a run whose steps were kept."""

    until_s: float  # end of the last step that was kept; steps under way at that time were not
    end_s: float  # end of the run; NaN where it is unknown
    steps: int  # how many steps were kept
    steps_all: int  # how many steps the run had

    @property
    def words(self) -> str:
        """Seconds and steps that were kept, of all.

        >>> KeptPart(0.5, 2.0, 20_000, 81_000).words
        'first 500 ms of 2.00 s kept (20,000 of 81,000 steps)'
        """
        of = "" if math.isnan(self.end_s) else f" of {format_seconds(self.end_s)}"
        counts = f"{self.steps:,} of {self.steps_all:,} steps"
        return f"first {format_seconds(self.until_s)}{of} kept ({counts})"

    def gap_s(self, window_s: tuple[float, float]) -> tuple[float, float] | None:
        """Start and end of the time in a window whose steps were not kept; None where all were.

        >>> KeptPart(0.5, 2.0, 1, 2).gap_s((0.0, 1.0)), KeptPart(0.5, 2.0, 1, 2).gap_s((0.0, 0.5))
        ((0.5, 1.0), None)
        """
        end_s = window_s[1] if math.isnan(self.end_s) else min(self.end_s, window_s[1])
        start_s = max(self.until_s, window_s[0])
        return (start_s, end_s) if start_s < end_s else None


AnyRun: TypeAlias = "Run | Result | LoadedRun"


def kept_of(run: AnyRun) -> KeptPart | None:
    """Return how much of a run its spans are; None for all, or where their count is unknown."""
    spans, steps = run.spans, len(_computed(run.spans))  # of lanes and the host are no messages
    if not len(spans) or steps >= run.messages:
        return None
    until_s = float(np.max(floats(spans, "end_s")))
    return KeptPart(until_s, float(run.makespan_s), steps, int(run.messages))


def runs_by_row(forecast: RunTable) -> dict[str, list[Run]]:
    """The runs of each row of the table under the row's label (`row_labels`)."""
    groups: list[list[Run]] = []
    for run in forecast.runs:
        last = groups[-1][-1] if groups else run  # of a row others may be lost than of the next
        is_same = (last.schedule, last.label) == (run.schedule, run.label)
        if not is_same or last.repeat >= run.repeat:
            groups.append([])
        groups[-1].append(run)
    labels = row_labels(forecast.table)
    if len(labels) != len(groups):
        labels = distinct([runs[0].schedule for runs in groups])
    return dict(zip(labels, groups, strict=True))


LANE_STEP: Final = 10_000_000
"""More than there are workers. A row is that of worker + `LANE_STEP` x lane: the worker's number
where it computes; the host's is -1."""

_THREADS: Final = 1 << 20
"""More threads than a lane has; a lane's number is that of its kind x this + that of the thread."""

_LANE_KINDS: Final = (*LANES, "push", "engine")


def row_numbers(spans: DataFrame) -> Integers:
    """The row of each span."""
    worker = integers(spans, "worker")
    if "lane" not in spans:
        return worker
    names = texts(spans, "lane")
    numbers = {name: _lane_number(name) for name in set(names)}
    return worker + LANE_STEP * np.array([numbers[name] for name in names], np.int64)


def _lane_number(name: str) -> int:
    kind, _, thread = name.partition(" ")
    return _LANE_KINDS.index(kind) * _THREADS + int(thread or 0)


def lane_of(row: int) -> str:
    """The lane of a row, with the number of its thread where it has several."""
    kind, thread = divmod((row + 1) // LANE_STEP, _THREADS)
    return f"{_LANE_KINDS[kind]} {thread}" if thread else _LANE_KINDS[kind]


def owner_of(row: int) -> int:
    """The worker of a row; -1 where it is the host's."""
    return (row + 1) % LANE_STEP - 1


def is_worker(row: int) -> bool:
    """Tell whether a row is where a worker computes."""
    return 0 <= row < LANE_STEP - 1


_NODES_LONGEST: Final = 28  # characters of a row's nodes; of others it has the count


def row_name(row: int, hosts: Hosts | None = None) -> str:
    """Name a row: the host, another lane, or a worker with the nodes that it hosts."""
    if not is_worker(row):
        return "host" if row < 0 else thread_name(row)
    names = [plain(node, _NODES_LONGEST) for node in (hosts or {}).get(row, ())]
    return f"worker {row} ({fitting(names, _NODES_LONGEST)})" if names else f"worker {row}"


def thread_name(row: int) -> str:
    """Name a row whose lane is told in any case.

    >>> thread_name(-1), thread_name(2)
    ('host: compute', 'worker 2: compute')
    """
    worker = owner_of(row)
    return f"{'host' if worker < 0 else f'worker {worker}'}: {lane_of(row)}"


def short_name(row: int) -> int | str:
    """Name a row where there is little room."""
    if is_worker(row):
        return row
    return "host" if row < 0 else f"{owner_of(row)} {lane_of(row)}"


Hosts: TypeAlias = Mapping[int, Sequence[str]]
"""The nodes of each worker, those that work for longest first."""


def hosts_in(frames: Iterable[DataFrame]) -> Hosts:
    """The nodes of each worker that has a span in any of these frames; ranks have the same ones.

    The mapping is empty where two frames place a node on different workers, as no name then fits
    all rows, and for operations, which belong to no worker.
    """
    busy_s: dict[tuple[int, str], float] = {}
    places: dict[str, list[int]] = {}
    for spans in map(_computed, frames):
        if "operation" in spans:
            return {}
        pairs = spans.groupby(["worker", spans["node"].astype(str)])
        seconds = np.bincount(pairs.ngroup(), floats(spans, "end_s") - floats(spans, "start_s"))
        here: dict[str, list[int]] = {}
        for own, its_s in zip(pairs.size().index, seconds.tolist(), strict=True):
            here.setdefault(own[1], []).append(own[0])
            busy_s[own] = busy_s.get(own, 0.0) + its_s
        if any(places.setdefault(name, where) != where for name, where in here.items()):
            return {}
    found: dict[int, list[str]] = {}
    for worker, node in sorted(busy_s, key=lambda one: -busy_s[one]):
        found.setdefault(worker, []).append(node)
    return found


def under_way(spans: Any) -> DataFrame:
    """The spans that have an instance under way: no update or copy out, which may outlast it."""
    is_own = (spans["instance"] >= 0) & (spans["direction"] != "update")
    return spans[is_own & (spans["lane"] != LANES[COPY_OUT_LANE]) if "lane" in spans else is_own]


def _computed(spans: DataFrame) -> DataFrame:
    is_host = spans["worker"] < 0
    if "lane" in spans:
        return spans[~is_host & (spans["lane"] == LANES[COMPUTE_LANE])]
    return spans[~is_host] if bool(is_host.any()) else spans
