"""Pooled: one pool of threads for the operations of all places."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le

from ampsim.arguments import check_fields
from ampsim.clock import Clock
from ampsim.dependency.lane import Entry, Gated, entry
from ampsim.dependency.operation import Operation
from ampsim.dependency.policies.base import Dispatcher, LaneKind, Policy
from ampsim.dependency.policies.per_device import THREADS_MAX
from ampsim.machine import Begun, Instant, Processor


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

    threads: Annotated[int, Ge(1), Le(THREADS_MAX)] = 4
    name: ClassVar[str] = "pooled"

    def __post_init__(self) -> None:
        """Check the number."""
        check_fields(self)

    def threads_of(self, kind: LaneKind, *, is_host: bool) -> int:
        """One of each device; of the host all."""
        return self.threads if is_host and kind == "compute" else 1

    def dispatcher(self, clock: Clock, instant: Instant) -> Dispatcher:
        """The pool."""
        return Pool(self.threads, clock, instant)


class Pool:
    """Threads that operations need beside a lane of their place.

    It takes an operation up when an instant has settled, as every processor does.

    Args:
        threads: how many there are.
        clock: whose time passes.
        instant: shared by all processors.
    """

    def __init__(self, threads: int, clock: Clock, instant: Instant) -> None:
        self._waiting: list[Entry] = []
        self._left = threads
        self.queues: dict[Any, Any] = {0: Gated(self._waiting, self._has_thread)}
        self._processor = Processor(0, clock, instant)
        clock.start(self._processor.work(self), "pool")

    def _has_thread(self) -> bool:
        return self._left > 0

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
        """Give a thread to the most urgent operation, which goes to its lane."""
        operation = heappop(self._waiting)[3]
        self._left -= 1
        operation.lane.put(operation)
        return 0.0, None

    def end(self, task: Begun) -> None:
        """Nothing: an operation ends on its lane."""

    @property
    def has_free(self) -> bool:
        """Never."""
        return False

    def do_free(self, now_s: float) -> None:
        """Nothing: what takes no time needs a thread too."""
