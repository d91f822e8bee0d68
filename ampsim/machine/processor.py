"""A processor: one device at work, and what happens within one instant (decision 4).

A processor does one task at a time and is occupied for as long as the task takes. A task that takes
no time occupies nothing: an idle processor does it the moment it comes, a busy one as soon as it is
through. All free tasks of an instant are done before any processor takes up new work, so that what
it takes up never depends on which of two simultaneous arrivals was delivered first
(docs/decisions/0004-instants.md).
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, TypeAlias

from ampsim.clock import OVER, Clock
from ampsim.errors import OptionError
from ampsim.units import format_seconds

Begun: TypeAlias = tuple[float, Any]
"""A task in the middle: (the seconds that it takes, what its end needs to know). The second is None
where the processor only waits, and the device is not occupied."""


class Tasks(Protocol):
    """The tasks of a processor; a method of training says what these are.

    Attributes:
        queues: tasks that take time, by their kind, the most urgent kind first.
    """

    @property
    def queues(self) -> dict[Any, deque[Any]]:
        """One queue for each kind of task; the dictionary itself never changes."""
        ...

    @property
    def has_free(self) -> bool:
        """Whether a task waits that takes no time."""
        ...

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Take a task from a queue that is not empty; it then occupies the device."""
        ...

    def end(self, task: Begun) -> None:
        """Finish a task whose seconds have passed."""

    def do_free(self, now_s: float) -> None:
        """Do every task that takes no time, now."""


class Instant:
    """The present moment, one for all that runs on a clock.

    Attributes:
        waiting: processors to which free tasks have come, in that order.

    Raises:
        OptionError: time has passed on the clock.
    """

    __slots__ = ("_clock", "_is_settling", "waiting")

    def __init__(self, clock: Clock) -> None:
        if clock.now:
            passed = format_seconds(clock.now)
            raise OptionError(f"clock must be a new one for each run, got one at {passed}")
        self._clock = clock
        self.waiting: deque[Processor] = deque()
        self._is_settling = False

    def add(self, processor: Processor) -> None:
        """Let a processor to which a free task has come do it when this instant settles.

        A busy one does it after the task that occupies it.
        """
        if not processor.is_busy and not processor.is_listed:
            processor.is_listed = True
            self.waiting.append(processor)

    def settle(self) -> None:
        """Let all processors that wait do their free tasks, and those that these lead to."""
        if self._is_settling:
            return
        self._is_settling = True
        waiting, now_s = self.waiting, self._clock.now
        while waiting:
            processor = waiting.popleft()
            processor.is_listed = False
            processor.tasks.do_free(now_s)
        self._is_settling = False


class Processor:
    """One device.

    Attributes:
        is_busy: whether a task occupies the device.
        is_idle: whether it waits for `wake`.
        is_listed: whether it waits in `instant`.
        tasks: what it has to do.
    """

    __slots__ = (
        "_clock",
        "_signal",
        "index",
        "instant",
        "is_busy",
        "is_idle",
        "is_listed",
        "tasks",
    )

    def __init__(self, index: int, clock: Clock, instant: Instant) -> None:
        self.index = index
        self.instant = instant
        self.is_busy = False
        self.is_idle = False
        self.is_listed = False
        self.tasks: Tasks
        self._clock = clock
        self._signal = clock.signal()

    def wake(self) -> None:
        """Look for tasks when this instant has settled; for whoever has put one into a queue."""
        if self.is_idle:
            self.is_idle = False
            self._signal.fire()

    async def work(self, tasks: Tasks) -> None:
        """Do what `tasks` has, for ever, the most urgent first.

        Where its own signal would be the next thing to happen, it goes on without it.
        """
        self.tasks = tasks
        clock, instant, by_urgency = self._clock, self.instant, tuple(tasks.queues.items())
        queues, begin, end = tuple(tasks.queues.values()), tasks.begin, tasks.end
        while True:
            has_work = any(queues)
            if not has_work or not clock.is_settled:
                self._signal = clock.signal()
                self.is_idle = True
                if has_work:
                    self.wake()
                await self._signal
            for kind, queue in by_urgency:
                if queue:
                    task = begin(kind, queue)
                    if task[0]:
                        assert not self.is_busy, f"worker {self.index} begins two tasks at once"
                        self.is_busy = task[1] is not None
                        if (sleep := clock.sleep(task[0])) is not OVER:
                            await sleep
                        self.is_busy = False
                    end(task)
                    break
            tasks.do_free(clock.now)
            if instant.waiting:
                instant.settle()
