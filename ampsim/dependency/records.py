"""What a program on the engine leaves behind: its operations, the path that bounds it, memory.

Times and causes are recorded while it runs; everything else is read off them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from ampsim.arguments import as_float
from ampsim.dependency.operation import Operation
from ampsim.dependency.places import CATEGORIES, Places, Row
from ampsim.dependency.policies import Policy
from ampsim.dependency.queues import Use, queues_at, text_of
from ampsim.errors import OptionError
from ampsim.hardware import HOST
from ampsim.html_table import html_table
from ampsim.shown import shown
from ampsim.trace import PATH_KINDS, START, Records, critical_path, read_only
from ampsim.trace.records import log_of
from ampsim.trace.table import Columns
from ampsim.units import format_percent, format_seconds

PATH_WORDS: Final = {"device queue": "queue", "link queue": "link queue"}
MEMORY_COLUMNS: Final = ("place", "time_s", "bytes", *CATEGORIES)

_PUSH_ROW: Final = 0


class Dependency(NamedTuple):
    """An arrow of a chart: the end of one operation gave another one its last turn.

    Args:
        source, target: numbers of the two.
        variable: through which variable.
    """

    source: int
    target: int
    variable: str


@dataclass(frozen=True)
class EngineResult:
    """What ran on a dependency engine, in virtual seconds.

    The tables are read-only; change a copy, such as ``result.operations.copy()``.

    Attributes:
        policy: who ran what.
        rows: every thread: place (-1 for the host), kind, number within its lane. The first is the
            host's that pushes.
        uses: for each operation, the numbers of the variables that it reads and mutates.
        variables: names of the variables that were used, by number.
    """

    policy: Policy
    rows: tuple[Row, ...] = field(repr=False)
    uses: tuple[Use, ...] = field(repr=False)
    variables: dict[int, str] = field(repr=False)
    _columns: dict[str, Any] = field(repr=False)
    _transfers: Columns = field(repr=False)
    _memory: pd.DataFrame = field(repr=False)

    @classmethod
    def of(cls, operations: Sequence[Operation], places: Places, policy: Policy) -> EngineResult:
        """Read off what has ended."""
        known = {one.number: one.name for op in operations for one in (*op.reads, *op.mutates)}
        uses = tuple(
            Use(tuple(v.number for v in one.reads), tuple(v.number for v in one.mutates))
            for one in operations
        )
        names = {number: known[number] for number in sorted(known)}
        columns = _columns_of(operations)
        transfers = places.recorder.columns("transfers")
        return cls(policy, tuple(places.rows), uses, names, columns, transfers, _memory_of(places))

    @property
    def operations(self) -> pd.DataFrame:
        """One row a push, in push order.

        number, name, kind ("compute", "copy-out", "copy-in"; "engine" for deletions and waits),
        place (the worker; -1 for the host; of a copy the one whose lane it took), thread (its row
        in `rows`), pushed_s, ready_s, start_s, end_s, waited_for (the operation whose end made it
        ready, -1 where its push did), variable (through which it waited, "" where its push made it
        ready), behind (the operation that had its thread until it started, -1 where it started as
        soon as it was ready), flop, bytes, state ("done", "failed", or "skipped": for want of a
        value that a failed operation was to give).
        """
        frame: dict[str, Any] = {
            name: self._columns[name]
            for name in ("number", "name", "kind", "place", "thread", *_TIMES, "waited_for")
        }
        frame["variable"] = self._columns["variable"]
        frame["behind"] = self._behind
        for name in ("flop", "bytes", "state"):
            frame[name] = self._columns[name]
        return _frozen(frame)

    @property
    def transfers(self) -> pd.DataFrame:
        """One row a copy that took a link: operation, source, target, bytes, sent_s, start_s, ...

        It was sent at `sent_s`, waited for the link until `start_s`, held it until `held_s` and
        arrived at `end_s`; places are workers, -1 is the host.
        """
        sent = self._transfers
        return _frozen(
            {
                "operation": sent["target"],
                "source": sent["source_worker"],
                "target": sent["target_worker"],
                **{name: sent[name] for name in ("bytes", "sent_s", "start_s", "held_s", "end_s")},
            }
        )

    @property
    def dependencies(self) -> list[Dependency]:
        """For each operation that another one made ready: which, and through which variable."""
        columns = zip(self._columns["waited_for"].tolist(), self._columns["variable"], strict=True)
        return [
            Dependency(source, target, str(variable))
            for target, (source, variable) in enumerate(columns)
            if source >= 0
        ]

    @property
    def makespan_s(self) -> float:
        """When the last operation ended; 0 where there was none."""
        return float(np.max(self._columns["end_s"], initial=0.0))

    @cached_property
    def _path(self) -> Columns:
        return critical_path(self._records)

    @property
    def critical_path(self) -> pd.DataFrame:
        """What the last operation waited for, back to time zero: a row each, the earliest first.

        start_s, end_s, kind, operation, name, place. Rows join, from 0 to `makespan_s`. A `kind` is
        "compute"; "push", the host's for pushing; "queue", an operation that is ready, or whose
        push is, and waits for a thread; "transfer", a copy on its way; "link queue", one that waits
        for its lane or its link.
        """
        path = self._path
        names = self._columns["name"]
        kinds = [PATH_WORDS.get(PATH_KINDS[kind], PATH_KINDS[kind]) for kind in path["kind"]]
        is_push = path["worker"] == _PUSH_ROW
        kinds = [
            "push" if push and kind == "compute" else kind
            for kind, push in zip(kinds, is_push.tolist(), strict=True)
        ]
        is_sent = np.isin(path["kind"], (PATH_KINDS.index("transfer"), _LINK_QUEUE))
        of_row = np.array([row.place for row in self.rows])
        places = np.where(is_sent, path["worker"], of_row[np.where(is_sent, 0, path["worker"])])
        return _frozen(
            {
                "start_s": path["start_s"],
                "end_s": path["end_s"],
                "kind": np.array(kinds, dtype=object),
                "operation": path["node"],
                "name": np.array([names[one] for one in path["node"]], dtype=object),
                "place": places,
            }
        )

    @property
    def memory(self) -> pd.DataFrame:
        """What lay in the places' memories: place, time_s, bytes, arrays, workspace.

        One row for the fullest moment of each stretch of time; -1 is the host.
        """
        return self._memory.copy(deep=False)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in each place's memory at once, by place."""
        return self._memory.groupby("place")["bytes"].max().rename("peak_bytes")

    @property
    def busy(self) -> pd.DataFrame:
        """How long each thread was occupied: place, kind, thread, busy_s, share (of makespan)."""
        spent_s = np.zeros(len(self.rows))
        np.add.at(
            spent_s, self._columns["thread"], self._columns["end_s"] - self._columns["start_s"]
        )
        pushing = self._columns["pushed_s"] - self._columns["push_start_s"]
        spent_s[_PUSH_ROW] += float(np.sum(pushing))
        share = spent_s / (self.makespan_s or np.nan)
        place, kind, thread = zip(*self.rows, strict=True)
        return pd.DataFrame(
            {"place": place, "kind": kind, "thread": thread, "busy_s": spent_s, "share": share}
        )

    def queues_at(self, time_s: float) -> str:
        """The queues of all variables at an instant, as text: a line each, its head on the left.

        An operation that mutates stands in [ ], one that reads in ( ); one that runs has a "*".

        Raises:
            OptionError: the time is no number.
        """
        names, columns = self._columns["name"], self._columns
        if not np.isfinite(as_float(time_s)):
            raise OptionError(f"time_s must be a finite number, got {shown(time_s)}")
        times = [columns[name] for name in ("pushed_s", "start_s", "end_s")]
        return text_of(queues_at(self.uses, times, time_s), names, self.variables)

    @property
    def digest(self) -> str:
        """SHA-256 over operations and transfers: equal runs, equal digest."""
        hasher = hashlib.sha256()
        for name in ("thread", "push_start_s", *_TIMES, "waited_for", "flop", "bytes"):
            hasher.update(np.ascontiguousarray(self._columns[name]).tobytes())
        hasher.update("\n".join(self._columns["name"]).encode())
        for name, column in self._transfers.items():
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(column).tobytes())
        return hasher.hexdigest()

    @cached_property
    def _behind(self) -> np.ndarray:
        """For each operation that waited for a thread: which had it before."""
        columns = self._columns
        behind = np.full(len(columns["number"]), START)
        last: dict[int, int] = {}
        for one in np.lexsort((columns["number"], columns["end_s"], columns["start_s"])).tolist():
            thread = int(columns["thread"][one])
            if columns["start_s"][one] > columns["ready_s"][one]:
                behind[one] = last.get(thread, START)
            if columns["end_s"][one] > columns["start_s"][one]:
                last[thread] = one
        return behind

    @property
    def _records(self) -> Records:
        """All as spans and transfers: a push and an operation have a row each, in turn."""
        c = self._columns
        count = len(c["number"])
        is_sent = c["transfer"] != START
        start_s = np.where(is_sent, c["end_s"], c["start_s"])
        cause = np.where(is_sent, c["transfer"], c["ready_cause"])
        number = np.repeat(c["number"], 2)
        spans = {
            "start_s": _in_turn(c["push_start_s"], start_s),
            "end_s": _in_turn(c["pushed_s"], c["end_s"]),
            "cause": _in_turn(c["push_cause"], cause),
            "instance": number,
            "worker": _in_turn(np.full(count, _PUSH_ROW), c["thread"]),
            "node": number,
            "direction": np.zeros(2 * count, np.int8),
        }
        nobody = {"time_s": np.zeros(0), "cause": np.zeros(0), "is_limited": np.zeros(0)}
        return Records(
            log_of(spans, "spans"),
            log_of(self._transfers, "transfers"),
            log_of(nobody, "admissions"),
            closures=(),
        )

    def __repr__(self) -> str:
        """Say how much ran, and how long it took."""
        return (
            f"EngineResult({len(self.uses)} operations, {self.policy.name}, "
            f"makespan_s={self.makespan_s:.6g})"
        )

    def _repr_html_(self) -> str:
        """The run in a few numbers."""
        busy = self.busy[self.busy["busy_s"] > 0]
        rows = [["operations", f"{len(self.uses):,}"], ["time", format_seconds(self.makespan_s)]]
        rows += [
            [row_name(self.rows[index]), format_percent(share)]
            for index, share in busy["share"].items()
        ]
        note = "tables: operations, transfers, critical_path, memory"
        return html_table(f"dependency engine, {self.policy.name}", rows, note=note)


_TIMES: Final = ("pushed_s", "ready_s", "start_s", "end_s")
_LINK_QUEUE: Final = PATH_KINDS.index("link queue")


def row_name(row: Row) -> str:
    """What charts and tables call a thread."""
    place = "host" if row.place == HOST else f"worker {row.place}"
    thread = f" {row.thread}" if row.thread else ""
    return f"{place}: {row.kind.replace('-', ' ')}{thread}"


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The elements of both, in turn."""
    return np.stack([first, second], axis=1).ravel()


def _columns_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """The columns of the operations' table, and those that the path needs."""
    whole: dict[str, list[int]] = {
        "number": [one.number for one in operations],
        "place": [one.lane.place for one in operations],
        "thread": [one.thread for one in operations],
        "waited_for": [_number(one.waited_for) for one in operations],
        "push_cause": [one.push_cause for one in operations],
        "ready_cause": [one.ready_cause for one in operations],
        "transfer": [START if one.transfer is None else one.transfer for one in operations],
        "flop": [int(one.work.flop) for one in operations],
        "bytes": [int(one.copy.size_bytes if one.copy else one.work.bytes) for one in operations],
    }
    words = {
        "name": [one.name for one in operations],
        "kind": [one.lane.kind for one in operations],
        "variable": [one.waited_variable.name if one.waited_variable else "" for one in operations],
        "state": [_state(one) for one in operations],
    }
    times = {
        name: np.array([getattr(one, name) for one in operations], np.float64)
        for name in ("push_start_s", *_TIMES)
    }
    counts = {name: np.array(values, np.int64) for name, values in whole.items()}
    texts = {name: np.array(values, dtype=object) for name, values in words.items()}
    return {**counts, **texts, **times}


def _number(operation: Operation | None) -> int:
    return START if operation is None else operation.number


def _state(operation: Operation) -> str:
    if operation.failure is None:
        return "done"
    return "failed" if operation.failure.operation is operation else "skipped"


def _memory_of(places: Places) -> pd.DataFrame:
    """The timelines of all places in which anything lay."""
    rows = [
        (place, sample.time_s, sum(sample.bytes), *sample.bytes)
        for place, memory in places.memories.items()
        for sample in memory.timeline
        if any(sample.bytes)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(MEMORY_COLUMNS)
    kinds = [np.float64 if name == "time_s" else np.int64 for name in MEMORY_COLUMNS]
    return _frozen(
        {
            name: np.array(values, kind)
            for name, values, kind in zip(MEMORY_COLUMNS, columns, kinds, strict=True)
        }
    )


def _frozen(columns: dict[str, Any]) -> pd.DataFrame:
    """A frame in which no value can be replaced."""
    return read_only(columns)
