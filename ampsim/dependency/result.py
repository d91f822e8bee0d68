"""What a program on the engine leaves behind: its operations, the path that bounds it, memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from ampsim.arguments import as_float
from ampsim.dependency.log import OperationLog, Uses, variable_name
from ampsim.dependency.places import Places, Row
from ampsim.dependency.policies import Policy
from ampsim.dependency.queues import Use, Waiter, queues_at, text_of, uses_of
from ampsim.dependency.records import (
    TIMES,
    behind_of,
    busy_s_of,
    columns_of,
    dispatches_of,
    memory_of,
    path_kinds_of,
    records_of,
)
from ampsim.errors import OptionError
from ampsim.hardware import HOST
from ampsim.html_table import html_table
from ampsim.shown import shown
from ampsim.trace import PATH_KINDS, critical_path, read_only
from ampsim.trace.table import Columns
from ampsim.units import format_percent, format_seconds

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


@dataclass(frozen=True)
class EngineResult:
    """What ran on a dependency engine, in virtual seconds.

    The tables are read-only; change a copy, such as ``result.operations.copy()``.

    Attributes:
        policy: who ran what.
        rows: every thread: place (-1 for the host), kind, number within its lane. The first is the
            host's that pushes.
    """

    policy: Policy
    rows: tuple[Row, ...] = field(repr=False)
    _columns: dict[str, Any] = field(repr=False)
    _transfers: Columns = field(repr=False)
    _memory: pd.DataFrame = field(repr=False)
    _dispatches: Columns = field(repr=False)
    _uses: Uses = field(repr=False)
    _names: Sequence[str | None] = field(repr=False)

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """For each operation, the numbers of the variables that it reads and mutates."""
        return uses_of(self._uses)

    @cached_property
    def variables(self) -> dict[int, str]:
        """Names of the variables that were used, by number."""
        used: list[int] = np.unique(self._uses.variables).tolist()
        return {number: self._names[number] or variable_name(number) for number in used}

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
            for name in ("number", "name", "kind", "place", "thread", *TIMES, "waited_for")
        }
        frame["variable"] = self._columns["variable"]
        frame["behind"] = behind_of(self._columns, self._dispatches)
        for name in ("flop", "bytes", "state"):
            frame[name] = self._columns[name]
        return read_only(frame)

    @property
    def transfers(self) -> pd.DataFrame:
        """One row a copy that took a link: operation, source, target, bytes, sent_s, start_s, ...

        It was sent at `sent_s`, waited for the link until `start_s`, held it until `held_s` and
        arrived at `end_s`; places are workers, -1 is the host.
        """
        sent = self._transfers
        return read_only(
            {
                "operation": sent["target"],
                "source": sent["source_worker"],
                "target": sent["target_worker"],
                **{name: sent[name] for name in ("bytes", "sent_s", "start_s", "held_s", "end_s")},
            }
        )

    @property
    def pushes(self) -> pd.DataFrame:
        """One row a push: operation, start_s, end_s, the time that it took the host."""
        columns = self._columns
        return read_only(
            {
                "operation": columns["number"],
                "start_s": columns["push_start_s"],
                "end_s": columns["pushed_s"],
            }
        )

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
        """When the last operation ended; 0 where there was none."""
        return float(np.max(self._columns["end_s"], initial=0.0))

    @cached_property
    def _path(self) -> Columns:
        return critical_path(records_of(self._columns, self._transfers, self._dispatches))

    @property
    def critical_path(self) -> pd.DataFrame:
        """What the last operation waited for, back to time zero: a row each, the earliest first.

        start_s, end_s, kind, operation, name, place. Rows join, from 0 to `makespan_s`. A `kind` is
        "compute"; "push", the host's for pushing; "dispatch", a device's for issuing; "queue", an
        operation that is ready, or whose push is, and waits for a thread; "transfer", a copy on its
        way; "link queue", one that waits for its lane or its link.
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
        spent_s = busy_s_of(self._columns, self._dispatches, len(self.rows))
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
        return text_of(self.waiters_at(time_s), self._columns["name"], self.variables)

    def waiters_at(self, time_s: float) -> dict[int, list[Waiter]]:
        """The same as numbers: for each variable those that wait for it or use it, in push order.

        Raises:
            OptionError: the time is no number.
        """
        if not np.isfinite(as_float(time_s)):
            raise OptionError(f"time_s must be a finite number, got {shown(time_s)}")
        times = [self._columns[name] for name in ("pushed_s", "start_s", "end_s")]
        return queues_at(self.uses, times, time_s)

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
        """The run in a few numbers."""
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


def row_name(row: Row) -> str:
    """What charts and tables call a thread."""
    place = "host" if row.place == HOST else f"worker {row.place}"
    thread = f" {row.thread}" if row.thread else ""
    return f"{place}: {row.kind.replace('-', ' ')}{thread}"


def result_of(
    log: OperationLog, names: Sequence[str | None], places: Places, policy: Policy
) -> EngineResult:
    """Read off what has ended.

    Args:
        log: what was kept of the operations.
        names: of the variables, by number; None of those without one.
        places: where they ran.
        policy: who ran them.
    """
    columns = columns_of(log, names, places.rows)
    transfers = places.recorder.columns("transfers")
    rows, memory = tuple(places.rows), memory_of(places)
    return EngineResult(
        policy, rows, columns, transfers, memory, dispatches_of(places), log.uses(), names
    )
