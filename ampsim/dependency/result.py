"""The result of a program: operations, queues, and the path that took the time.

A push and an operation have a span each, in turn: those of operation n have the numbers 2n and
2n + 1. Spans of what was issued on a lane of its own come behind all these. A copy that crossed a
link is a transfer, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from ampsim.arguments import as_float
from ampsim.dependency.operation import OperationLog, variable_name
from ampsim.dependency.places import CATEGORIES, Places, Thread
from ampsim.dependency.policies import Policy
from ampsim.errors import OptionError
from ampsim.hardware import HOST
from ampsim.text import html_table, shown
from ampsim.trace import PATH_KINDS, START, CausalRecords, critical_path, read_only
from ampsim.trace.records import log_of
from ampsim.trace.table import Columns
from ampsim.units import format_percent, format_seconds


class Use(NamedTuple):
    """The variables that one operation reads and mutates, by their numbers."""

    reads: tuple[int, ...]
    mutates: tuple[int, ...]


class Waiter(NamedTuple):
    """An operation in a queue."""

    operation: int  # its number
    is_mutation: bool  # whether it mutates the variable
    is_running: bool  # whether it has started


TIMES: Final = ("pushed_s", "ready_s", "start_s", "end_s")
MEMORY_COLUMNS: Final = ("place", "time_s", "bytes", *CATEGORIES)
PUSH_ROW: Final = 0
"""The row of the host's thread that pushes."""


def dispatches_of(places: Places) -> Columns:
    """Columns of what was issued: operation, thread, start_s, end_s, in the order of the ends."""
    rows = np.array(places.dispatches).reshape(-1, 4)
    kinds = {"operation": np.int64, "thread": np.int64, "start_s": np.float64, "end_s": np.float64}
    return {name: rows[:, place].astype(kind) for place, (name, kind) in enumerate(kinds.items())}


def columns_of(log: OperationLog, names: Sequence[str | None], rows: Sequence[Thread]) -> Columns:
    """The columns of the operations' table, and those that the path needs."""
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


def behind_of(columns: Columns, dispatches: Columns) -> np.ndarray:
    """For each operation that waited for a thread: which had it until then; else `START`."""
    start_s, end_s = columns["start_s"], columns["end_s"]
    ready_s = columns["ready_s"].copy()
    ready_s[dispatches["operation"]] = dispatches["end_s"]
    behind = np.full(len(start_s), START)
    last: dict[int, int] = {}
    for one in np.lexsort((columns["number"], end_s, start_s)).tolist():
        thread = int(columns["thread"][one])
        before = last.get(thread, START)
        if start_s[one] > ready_s[one] and before != START and end_s[before] == start_s[one]:
            behind[one] = before
        if end_s[one] > start_s[one]:
            last[thread] = one
    return behind


def span_columns(columns: Columns, dispatches: Columns) -> Columns:
    """Times, causes, threads and operations of all spans: pushes, operations, what was issued."""
    count, number = len(columns["number"]), np.repeat(columns["number"], 2)
    issued = dispatches["operation"]
    cause = columns["ready_cause"].copy()
    cause[issued] = 2 * count + np.arange(len(issued))
    of_pushes = {
        "start_s": _in_turn(columns["push_start_s"], columns["start_s"]),
        "end_s": _in_turn(columns["pushed_s"], columns["end_s"]),
        "cause": _in_turn(columns["push_cause"], cause),
        "thread": _in_turn(np.full(count, PUSH_ROW), columns["thread"]),
        "operation": number,
    }
    dispatched = {**dispatches, "cause": columns["ready_cause"][issued]}
    return {name: np.concatenate([column, dispatched[name]]) for name, column in of_pushes.items()}


def records_of(columns: Columns, transfers: Columns, dispatches: Columns) -> CausalRecords:
    """Make spans and transfers of all, which a critical path is read off.

    The span of a copy that crossed a link is a moment at the transfer's end, and caused by that.
    """
    spans = span_columns(columns, dispatches)
    (sent,) = np.nonzero(columns["transfer"] != START)
    spans["start_s"][2 * sent + 1] = columns["end_s"][sent]
    spans["cause"][2 * sent + 1] = columns["transfer"][sent]
    spans["worker"], spans["node"] = spans["thread"], spans["operation"]
    spans["instance"] = spans["operation"]
    spans["direction"] = spans["lane"] = np.zeros(len(spans["operation"]), np.int8)
    nobody: Columns = {name: np.zeros(0) for name in ("time_s", "cause", "is_limited")}
    return CausalRecords(
        log_of(spans, "spans"),
        log_of(transfers, "transfers"),
        log_of(nobody, "admissions"),
        closures=(),
    )


def path_kinds_of(path: Columns, rows: Sequence[Thread]) -> np.ndarray:
    """Name the kind of each part of a path."""
    words = ["queue" if kind == "device queue" else kind for kind in PATH_KINDS]
    kinds = np.array(words, dtype=object)[path["kind"]]
    by_row = [row.kind if row.kind in ("push", "dispatch") else "compute" for row in rows]
    spent = np.array(by_row, dtype=object)[np.where(kinds == "compute", path["worker"], 0)]
    return np.where(kinds == "compute", spent, kinds)


def _in_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.stack([first, second], axis=1).ravel()


_ON_LINKS: Final = (PATH_KINDS.index("transfer"), PATH_KINDS.index("link queue"))


class Dependency(NamedTuple):
    """An arrow of a chart: the end of one operation gave another one its last turn.

    Args:
        source, target: numbers of the two.
        variable: through which variable.
    """

    source: int
    target: int
    variable: str


@dataclass(frozen=True, eq=False)
class EngineResult:
    """The result of a program on a dependency engine, in virtual seconds.

    The tables are read-only; change a copy, such as ``result.operations.copy()``.

    Attributes:
        policy: who ran what.
        rows: every thread: place (-1 for the host), kind, number within its lane. The first is the
            host's that pushes.
    """

    policy: Policy
    rows: tuple[Thread, ...] = field(repr=False)
    _columns: dict[str, Any] = field(repr=False)
    _transfers: Columns = field(repr=False)
    _memory: pd.DataFrame = field(repr=False)
    _dispatches: Columns = field(repr=False)
    _used: np.ndarray = field(repr=False)
    _names: Sequence[str | None] = field(repr=False)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """For each operation, the numbers of the variables that it reads and mutates."""
        left: Iterator[int] = iter(self._used.tolist())
        counts = zip(self._columns["reads"], self._columns["mutates"], strict=True)
        return tuple(Use(*(tuple(islice(left, count)) for count in pair)) for pair in counts)

    @cached_property
    def variables(self) -> dict[int, str]:
        """Names of the variables that were used, by number."""
        used: list[int] = np.unique(self._used).tolist()
        return {number: self._names[number] or variable_name(number) for number in used}

    @property
    def operations(self) -> pd.DataFrame:
        """One row a push, in push order.

        number, name, kind ("compute", "copy-out", "copy-in"; "engine" for deletions and waits),
        place (the worker; -1 for the host; of a copy the one whose lane it took), thread (its row
        in `rows`), pushed_s, ready_s, start_s, end_s, waited_for (the operation whose end made it
        ready, -1 where its push did), variable (through which it waited, "" where its push made it
        ready), behind (the operation that had its thread until it started, -1 where none had: it
        started as soon as it was ready, or waited for a pool's thread or for its device to be up),
        flop, bytes, state ("done"; or with 0 of both "failed", or "skipped": for want of a value
        that a failed operation was to give).
        """
        known = {**self._columns, "behind": behind_of(self._columns, self._dispatches)}
        first = ("number", "name", "kind", "place", "thread", *TIMES, "waited_for", "variable")
        return read_only(
            {name: known[name] for name in (*first, "behind", "flop", "bytes", "state")}
        )

    @property
    def spans(self) -> pd.DataFrame:
        """Pushes, operations and what was issued, in the columns that all runs' spans have.

        `node` is the operation's name and `operation` its number; `worker` is the place, -1 for the
        host; `lane` is the thread, "compute", or "compute 1" of a second one; `direction` is the
        kind: "push", "dispatch", or that of the operation. `cause` is the number of the span that
        made this one possible, -1 where nothing did.
        """
        found = span_columns(self._columns, self._dispatches)
        count, number, thread = len(self._columns["number"]), found["operation"], found["thread"]
        kinds = np.array([row.kind for row in self.rows], dtype=object)[thread]
        is_push = np.zeros(len(number), np.bool_)
        is_push[0 : 2 * count : 2] = True
        is_operation = ~is_push
        is_operation[2 * count :] = False
        nothing = np.full(len(number), -1)
        return read_only(
            {
                "worker": np.array([row.place for row in self.rows])[thread],
                "node": pd.Categorical(self._columns["name"][number]),
                "direction": pd.Categorical(kinds),
                "instance": nothing,
                "start_s": found["start_s"],
                "end_s": found["end_s"],
                "flop": np.where(is_operation, self._columns["flop"][number], 0),
                "bytes": np.where(is_operation, self._columns["bytes"][number], 0),
                "staleness": nothing.copy(),
                "state": pd.Categorical(np.where(is_operation, self._columns["state"][number], "")),
                "operations": is_operation.astype(np.int64),
                "cause": found["cause"],
                "lane": pd.Categorical(np.array(list(map(_lane_name, self.rows)))[thread]),
                "operation": number,
            }
        )

    @property
    def transfers(self) -> pd.DataFrame:
        """One row a copy that took a link: operation, source, target, bytes, sent_s, start_s, ...

        It was sent at `sent_s`, waited for the link until `start_s`, held it until `held_s` and
        arrived at `end_s`; places are workers, -1 is the host. `node`, `source_worker`,
        `target_worker` and `cause` are as in the transfers of any run.
        """
        sent = self._transfers
        names = {"source": "source_worker", "target": "target_worker", "operation": "target"}
        known = {**sent, "node": self._columns["name"][sent["target"]]}
        times = ("bytes", "sent_s", "start_s", "held_s", "end_s")
        order = ("operation", "source", "target", *times, "node", "source_worker", "target_worker")
        return read_only({name: known[names.get(name, name)] for name in (*order, "cause")})

    @property
    def pushes(self) -> pd.DataFrame:
        """One row a push: operation, start_s, end_s, the time that it took the host."""
        names = {"operation": "number", "start_s": "push_start_s", "end_s": "pushed_s"}
        return read_only({name: self._columns[own] for name, own in names.items()})

    @property
    def dispatches(self) -> pd.DataFrame:
        """One row an operation that was issued first: operation, thread, start_s, end_s.

        Those are on devices whose file names `dispatch_s`.
        """
        return read_only(dict(self._dispatches))

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
        """The time at which the last operation ended; 0 where there was none."""
        return float(np.max(self._columns["end_s"], initial=0.0))

    @cached_property
    def _path(self) -> Columns:
        records = records_of(self._columns, self._transfers, self._dispatches)
        return critical_path(records).columns()

    @property
    def critical_path(self) -> pd.DataFrame:
        """The waits and operations that led to the last end, one row each, the earliest first.

        start_s, end_s, kind, operation, name, place (of a copy on its way, to where). Rows join,
        from 0 to `makespan_s`. A `kind` is "compute"; "push", the host's for pushing; "dispatch", a
        device's for issuing; "queue", an operation that is ready, or whose push is, and waits for a
        thread; "transfer", a copy on its way; "link queue", one that waits for its lane or its
        link.
        """
        path, names = self._path, self._columns["name"]
        kinds = path_kinds_of(path, self.rows)
        is_sent = np.isin(path["kind"], _ON_LINKS)
        of_row = np.array([row.place for row in self.rows])
        places = np.where(is_sent, path["worker"], of_row[np.where(is_sent, 0, path["worker"])])
        return read_only(
            {
                "start_s": path["start_s"],
                "end_s": path["end_s"],
                "kind": kinds,
                "operation": path["node"],
                "name": names[path["node"]],
                "place": places,
            }
        )

    @property
    def memory(self) -> pd.DataFrame:
        """The bytes in the places' memories: place, time_s, bytes, arrays, workspace.

        One row for the fullest moment of each stretch of time; -1 is the host.
        """
        return self._memory.copy(deep=False)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in each place's memory at once, by place."""
        return self._memory.groupby("place")["bytes"].max().rename("peak_bytes")

    @property
    def busy(self) -> pd.DataFrame:
        """The time each thread was occupied: place, kind, thread, busy_s, share (of makespan)."""
        columns, issued, spent_s = self._columns, self._dispatches, np.zeros(len(self.rows))
        for of in (columns, issued):
            np.add.at(spent_s, of["thread"], of["end_s"] - of["start_s"])
        spent_s[PUSH_ROW] += float(np.sum(columns["pushed_s"] - columns["push_start_s"]))
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
        queues, names = self.waiters_at(time_s), self._columns["name"]
        if not queues:
            return "no operation waits or runs"
        width = max(len(self.variables[one]) for one in queues)
        lines: list[str] = []
        for variable, waiters in queues.items():
            signs = [("[]" if one.is_mutation else "()", one) for one in waiters]
            words = [
                f"{sign[0]}{names[one.operation]}{'*' * one.is_running}{sign[1]}"
                for sign, one in signs
            ]
            lines.append(f"{self.variables[variable]:{width}} | {' '.join(words)}")
        return "\n".join(lines)

    def waiters_at(self, time_s: float) -> dict[int, list[Waiter]]:
        """For each variable the operations that wait for it or use it, in push order.

        The instant is after what is pushed and starts in it, and before what ends.

        Raises:
            OptionError: the time is no number.
        """
        if not np.isfinite(as_float(time_s)):
            raise OptionError(f"time_s must be a finite number, got {shown(time_s)}")
        pushed_s, start_s, end_s = (
            self._columns[name] for name in ("pushed_s", "start_s", "end_s")
        )
        found: dict[int, list[Waiter]] = {}
        for number in np.flatnonzero((pushed_s <= time_s) & (time_s < end_s)).tolist():
            is_running = bool(start_s[number] <= time_s)
            for is_mutation, variables in enumerate(self.uses[number]):
                for variable in variables:
                    waiter = Waiter(number, bool(is_mutation), is_running)
                    found.setdefault(variable, []).append(waiter)
        return {variable: found[variable] for variable in sorted(found)}

    @property
    def digest(self) -> str:
        """SHA-256 over operations and transfers: equal runs, equal digest."""
        hasher = hashlib.sha256()
        for name in ("thread", "push_start_s", *TIMES, "waited_for", "flop", "bytes"):
            hasher.update(np.ascontiguousarray(self._columns[name]).tobytes())
        hasher.update("\n".join(self._columns["name"]).encode())
        issued = self._dispatches if len(self._dispatches["operation"]) else {}
        for name, column in {**self._transfers, **issued}.items():
            hasher.update(name.encode())
            hasher.update(np.ascontiguousarray(column).tobytes())
        return hasher.hexdigest()

    def __repr__(self) -> str:
        """Say how much ran, and how long it took."""
        return (
            f"EngineResult({len(self._columns['number'])} operations, {self.policy.name}, "
            f"makespan_s={self.makespan_s:.6g})"
        )

    def _repr_html_(self) -> str:
        busy = (self.busy["busy_s"] > 0).tolist()
        rows = [
            ["operations", f"{len(self._columns['number']):,}"],
            ["time", format_seconds(self.makespan_s)],
        ]
        names = [row_name(row) for row, is_busy in zip(self.rows, busy, strict=True) if is_busy]
        shares = self.busy["share"][busy]
        rows += [[name, format_percent(share)] for name, share in zip(names, shares, strict=True)]
        note = "tables: operations, transfers, critical_path, memory"
        return html_table(f"dependency engine, {self.policy.name}", rows, note=note)


def row_name(row: Thread) -> str:
    """Return the name of a thread in charts and tables."""
    place = "host" if row.place == HOST else f"worker {row.place}"
    return f"{place}: {_lane_name(row)}"


def _lane_name(row: Thread) -> str:
    return f"{row.kind} {row.thread}" if row.thread else row.kind


def result_of(
    log: OperationLog, names: Sequence[str | None], places: Places, policy: Policy
) -> EngineResult:
    """Read off what has ended."""
    columns = columns_of(log, names, places.rows)
    transfers = places.recorder.columns("transfers")
    rows, memory = tuple(places.rows), memory_of(places)
    return EngineResult(
        policy, rows, columns, transfers, memory, dispatches_of(places), log.used(), names
    )
