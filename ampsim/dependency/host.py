"""The host's thread that pushes: what a push costs it, and whether it waits for what it pushed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ampsim.clock import Clock
from ampsim.dependency.lane import Gated
from ampsim.dependency.operation import Operation
from ampsim.machine import Begun, Processor
from ampsim.trace import START, Cause


class Host:
    """Pushes, one after the other: the `Tasks` of the host's processor.

    Args:
        processor: the thread.
        clock: whose time passes.
        push_s: what a push costs.
        enqueue: puts an operation into its queues.
        is_synchronous: whether a push returns only when its operation has ended.

    Attributes:
        is_immediate: whether pushes take no time and never wait.
        awaited: the operation whose end it waits for.
    """

    def __init__(
        self,
        processor: Processor,
        clock: Clock,
        push_s: float,
        enqueue: Callable[[Operation], None],
        *,
        is_synchronous: bool,
    ) -> None:
        self._processor, self._clock = processor, clock
        self._push_s, self._enqueue = push_s, enqueue
        self._is_synchronous = is_synchronous
        self.is_immediate = not push_s and not is_synchronous
        self._pushes: deque[Operation] = deque()
        self.awaited: Operation | None = None
        self._since_s = -1.0
        self._cause: Cause = START
        self.queues: dict[Any, Any] = {0: Gated(self._pushes, self._is_free)}

    def _is_free(self) -> bool:
        return self.awaited is None

    def put(self, operation: Operation) -> None:
        """Take an operation to push; not called where that `is_immediate`."""
        self._pushes.append(operation)
        self._processor.wake()

    def begin(self, kind: Any, queue: Any) -> Begun:
        """Push the first; a wait costs nothing but the time that it lasts."""
        operation = self._pushes.popleft()
        operation.push_start_s = now_s = self._clock.now
        if self._since_s == now_s:
            operation.push_cause = self._cause
        return (0.0 if operation.is_wait else self._push_s), operation

    def end(self, task: Begun) -> None:
        """The push has ended: the operation stands in its queues."""
        operation: Operation = task[1]
        operation.pushed_s = self._since_s = self._clock.now
        self._cause = operation.push_row
        if self._is_synchronous:
            self.awaited = operation
        self._enqueue(operation)

    def do_free(self, now_s: float) -> None:
        """Nothing: pushes wait for each other even where they cost nothing."""

    def go_on(self) -> None:
        """Push the next: the operation has ended that the host waits for."""
        assert self.awaited is not None, "the host waits for no operation"
        self._since_s, self._cause = self._clock.now, self.awaited.row
        self.awaited = None
        if self._pushes:
            self._processor.wake()
