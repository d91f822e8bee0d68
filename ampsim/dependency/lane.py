"""Lanes: the queues in which ready operations wait for a thread of a place.

A thread is a `Processor` of the machine: it does one operation at a time, the most urgent first,
and what takes no time occupies it for none (docs/decisions/0004-instants.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias

from ampsim.dependency.operation import Operation
from ampsim.machine import Begun, Instant, Processor
from ampsim.trace import Cause

Entry: TypeAlias = tuple[float, float, int, Operation]
"""(priority, negative; when it became ready, in s; number; operation)."""


Gate: TypeAlias = Callable[[], bool]
"""Whether a thread may look into its queue now."""


def entry(operation: Operation) -> Entry:
    """An operation as a heap of `Entry` has it: the most urgent first, then the first ready."""
    return (-operation.priority, operation.ready_s, operation.number, operation)


class Runner(Protocol):
    """The engine, which starts and ends operations."""

    def start(self, operation: Operation) -> bool:
        """Run the function of an operation now; tell whether it did what it should."""
        ...

    def will_skip(self, operation: Operation) -> bool:
        """Tell whether a value is missing that an operation uses."""
        ...

    def finish(self, operation: Operation) -> None:
        """Note that an operation has ended now."""


class ThreadLane:
    """One kind of work of one place, with its threads.

    Args:
        place: the worker's index; -1 for the host.
        kind: "compute", "copy-in", "copy-out", or "engine" for what needs no thread.
        first_row: number of its first thread among all threads.

    Attributes:
        waiting: what is ready and takes time, a heap.
        free: what is ready and takes none.
        processors: those that serve it.
    """

    __slots__ = ("_instant", "first_row", "free", "kind", "place", "processors", "waiting")

    def __init__(self, place: int, kind: str, first_row: int, instant: Instant) -> None:
        self.place = place
        self.kind = kind
        self.first_row = first_row
        self.waiting: list[Entry] = []
        self.free: deque[Operation] = deque()
        self.processors: list[Processor] = []
        self._instant = instant

    def put(self, operation: Operation) -> None:
        """Take an operation that is ready and may have a thread."""
        if operation.cost.seconds or operation.channel is not None:
            # as `entry`, without the call
            place = (-operation.priority, operation.ready_s, operation.number, operation)
            heappush(self.waiting, place)
            for processor in self.processors:
                if processor.is_idle:
                    processor.wake()
                    return
            return
        self.free.append(operation)
        for processor in self.processors:
            if not processor.is_busy:
                self._instant.add(processor)
                return


class _Thread:
    """The `Tasks` of one processor of a lane; it starts something only where its gate is open."""

    __slots__ = ("_lane", "_row", "_runs", "queues")

    def __init__(self, lane: ThreadLane, row: int, runs: Runner, gate: Gate | None) -> None:
        self.queues: dict[Any, Any] = {0: gated(lane.waiting, gate)}
        self._lane, self._row, self._runs = lane, row, runs

    @property
    def has_free(self) -> bool:
        """Tell whether a ready operation waits that takes no time."""
        return bool(self._lane.free)

    def do_free(self, now_s: float) -> None:
        """Do what takes no time, in the order in which it became ready."""
        free = self._lane.free
        while free:
            operation = free.popleft()
            operation.thread = self._row
            self._runs.start(operation)
            self._runs.finish(operation)


class Computing(_Thread):
    """The tasks of a thread of a lane that computes."""

    __slots__ = ()

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Start the most urgent operation; one that fails occupies nothing."""
        operation = heappop(self._lane.waiting)[3]
        operation.thread = self._row
        return (operation.cost.seconds if self._runs.start(operation) else 0.0), operation

    def end(self, task: Begun) -> None:
        """Finish the operation."""
        self._runs.finish(task[1])


class Copying(_Thread):
    """The tasks of a copy lane: each thread sends, and waits until all of it has arrived."""

    __slots__ = ("_processor", "_rows")

    def __init__(
        self, lane: ThreadLane, threads: int, runs: Runner, processor: Processor, gate: Gate | None
    ) -> None:
        super().__init__(lane, lane.first_row, runs, gate)
        rows = self._rows = list(range(lane.first_row, lane.first_row + threads))
        self.queues = {0: gated(Gated(lane.waiting, lambda: bool(rows)), gate)}
        self._processor = processor

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Let a thread start the most urgent copy."""
        operation = heappop(self._lane.waiting)[3]
        operation.thread = self._rows[0]
        channel = operation.channel
        assert channel is not None, f"{operation.name} crosses no link"
        if not self._runs.start(operation):
            self._runs.finish(operation)
            return 0.0, None
        heappop(self._rows)
        nodes = (operation.number, operation.number)
        arrive = partial(self._arrive, operation)
        channel.send(operation.cost.bytes, nodes, operation.ready_cause, arrive)
        return 0.0, None

    def _arrive(self, operation: Operation, transfer: Cause) -> None:
        heappush(self._rows, operation.thread)
        operation.transfer = transfer
        self._runs.finish(operation)
        if self._lane.waiting:
            self._processor.wake()

    def end(self, task: Begun) -> None:
        """Do nothing: a copy ends when it has arrived."""


class Gated:
    """A queue that looks empty while its gate is closed."""

    __slots__ = ("_is_open", "_queue")

    def __init__(self, queue: Any, is_open: Gate) -> None:
        self._queue, self._is_open = queue, is_open

    def __bool__(self) -> bool:
        return bool(self._queue) and self._is_open()


def gated(queue: Any, gate: Gate | None) -> Any:
    """A queue behind a gate; itself where there is none."""
    return queue if gate is None else Gated(queue, gate)
