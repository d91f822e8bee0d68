"""Running policies: who runs an operation that may start, and where; tracking decides when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from annotated_types import Ge, Le

from ampsim.arguments import check_fields
from ampsim.clock import Clock
from ampsim.dependency.lane import Entry, Gated, entry
from ampsim.dependency.operation import Operation
from ampsim.machine import Begun, Instant, NothingFree, Processor

LaneKind: TypeAlias = Literal["compute", "copy-in", "copy-out"]

_Threads: TypeAlias = Annotated[int, Ge(1), Le(10_000)]


class Pool(NothingFree):
    """Threads that operations need beside a lane of their place, even those that take no time.

    It takes an operation up when an instant has settled, as every processor does. What takes no
    time may make others ready, so lanes start nothing before the pool `has_given`.
    """

    def __init__(self, threads: int, clock: Clock, instant: Instant) -> None:
        self._waiting: list[Entry] = []
        self._left, self._instant = threads, instant
        self._turned_away: dict[Processor, None] = {}
        self.queues: dict[Any, Any] = {0: Gated(self._waiting, lambda: self._left > 0)}
        self._processor = Processor(0, clock, instant)
        clock.start(self._processor.work(self), "pool")

    def has_given(self, processor: Processor) -> bool:
        """Whether nothing waits that may have a thread; where something does, `processor` waits."""
        if not (self._waiting and self._left):
            return True
        self._turned_away[processor] = None
        return False

    def ready(self, operation: Operation) -> None:
        """Let an operation wait for a thread; deletions and waits need none."""
        if operation.lane.kind == "engine":
            operation.lane.put(operation)
            return
        heappush(self._waiting, entry(operation))
        self._processor.wake()

    def ended(self, operation: Operation) -> None:
        """Its thread can take another one."""
        if operation.lane.kind != "engine":
            self._left += 1
            if self._waiting:
                self._processor.wake()

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Give threads to the most urgent operations, which go to their lanes and end there.

        To all at once, and to those that become ready by work that takes no time: a lane that
        looked in between would start one that is less urgent.
        """
        while queue:
            while queue:
                operation = heappop(self._waiting)[3]
                self._left -= 1
                operation.lane.put(operation)
            self._instant.settle()
        for processor in self._turned_away:
            processor.wake()
        self._turned_away.clear()
        return 0.0, None

    def end(self, task: Begun) -> None:
        """Do nothing: an operation ends on its lane."""


class Policy(ABC):
    """A policy says who runs an operation that may start, and where.

    Attributes:
        name: as tables call it.
        is_synchronous: whether a push returns only when its operation has ended.
    """

    name: ClassVar[str]
    is_synchronous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """Return how many operations of one kind one place runs at a time."""

    def dispatcher(self, clock: Clock, instant: Instant) -> Pool | None:
        """The pool that brings operations to lanes; None where they go there as soon as ready."""
        return None


@dataclass(frozen=True)
class Naive(Policy):
    """Run operations one by one in push order, copies too; the host waits for each.

    Source: MXNet's `NaiveEngine`, the one to debug with. Pushes cost what they cost elsewhere, and
    here nothing hides it.
    """

    name: ClassVar[str] = "naive"
    is_synchronous: ClassVar[bool] = True

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """Give one thread; more would have nothing to do."""
        return 1


@dataclass(frozen=True)
class PerDevice(Policy):
    """Run each operation at its own place, the most urgent first, beside the place's copies.

    Args:
        threads: operations that one place computes at a time. Each has the whole rate of the
            place's device, so that more than one is right where the file describes a core.
        copy_threads: copies that a worker sends at a time, and that it takes in at a time. Those
            of one link share its bandwidth; their latencies overlap.

    Source: MXNet's `ThreadedEnginePerDevice`.

    Raises:
        OptionError: a number is no whole number >= 1.
    """

    threads: _Threads = 1
    copy_threads: _Threads = 1
    name: ClassVar[str] = "per-device"

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """Give as many threads as the policy was made with."""
        return self.threads if kind == "compute" else self.copy_threads


@dataclass(frozen=True)
class Pooled(Policy):
    """Let any thread of one pool take the next operation, whatever its place, copies too.

    A thread has its operation until that ends: one whose device is occupied by another thread's
    operation waits for it, and meanwhile the thread does nothing else. A device does one operation
    at a time, and one copy in each direction; the host as many as there are threads, which are its.

    Args:
        threads: how many there are.

    Source: MXNet's `ThreadedEnginePooled`, whose copies have a second pool.

    Raises:
        OptionError: it is no whole number >= 1.
    """

    threads: _Threads = 4
    name: ClassVar[str] = "pooled"

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """Give one thread to each device, and all to the host."""
        return self.threads if is_host and kind == "compute" else 1

    def dispatcher(self, clock: Clock, instant: Instant) -> Pool:
        """Make the pool."""
        return Pool(self.threads, clock, instant)


POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy for policy in (Naive, Pooled, PerDevice)
}
"""The shipped policies by name; by being listed each gets every shared test."""
