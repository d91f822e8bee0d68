"""Issuing: what takes device time is first issued, on a lane of its own beside the device.

A device whose file names `dispatch_s` issues its operations one by one, each when all its variables
have given it its turn; so it never waits for that while it has work (docs/decisions/0014).
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Any

from ampsim.clock import Clock
from ampsim.dependency.lane import Entry, Lane, Runs, entry
from ampsim.dependency.operation import Operation
from ampsim.machine import Begun, Instant, Processor


class IssuedLane(Lane):
    """A lane that computes, whose operations are issued before they wait for a thread.

    Attributes:
        issuing: takes what is to be issued; set when the lane is wired.
    """

    __slots__ = ("issuing",)

    def __init__(self, place: int, kind: str, first_row: int, instant: Instant) -> None:
        super().__init__(place, kind, first_row, instant)
        self.issuing: Issuing

    def put(self, operation: Operation) -> None:
        """Take an operation that is ready; what takes no time needs not be issued."""
        if operation.cost.seconds:
            self.issuing.add(operation)
        else:
            super().put(operation)

    def put_issued(self, operation: Operation) -> None:
        """Take one that was issued."""
        super().put(operation)


class Issuing:
    """Issues the operations of one lane: the `Tasks` of one processor.

    Args:
        lane: whose operations.
        row: its number among all threads.
        dispatch_s: what it takes to issue one.
        runs: knows which will be skipped.
        processor: does it.
        clock: whose time passes.
        records: gets (operation, row, start in s, end in s) of each, one after the other.
    """

    __slots__ = (
        "_clock", "_dispatch_s", "_lane", "_processor", "_records", "_row", "_runs", "_waiting",
        "queues",
    )  # fmt: skip

    def __init__(
        self,
        lane: IssuedLane,
        row: int,
        dispatch_s: float,
        runs: Runs,
        *,
        processor: Processor,
        clock: Clock,
        records: array[float],
    ) -> None:
        self._lane, self._row, self._dispatch_s, self._runs = lane, row, dispatch_s, runs
        self._processor, self._clock, self._records = processor, clock, records
        self._waiting: list[Entry] = []
        self.queues: dict[Any, Any] = {0: self._waiting}

    def add(self, operation: Operation) -> None:
        """Let an operation wait until it is issued."""
        heappush(self._waiting, entry(operation))
        self._processor.wake()

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Issue the most urgent; one that will be skipped takes no time."""
        operation = heappop(self._waiting)[3]
        seconds = 0.0 if self._runs.will_skip(operation) else self._dispatch_s
        return seconds, (operation, self._clock.now)

    def end(self, task: Begun) -> None:
        """Hand it to the threads."""
        operation, start_s = task[1]
        if task[0]:
            self._records.extend((operation.number, self._row, start_s, self._clock.now))
        self._lane.put_issued(operation)

    def do_free(self, now_s: float) -> None:
        """Nothing: what takes no time is not issued."""
