"""Processors whose task can be cut short, for work that somebody calls off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampsim.clock import Clock
from ampsim.machine.processor import Begun, Instant, Processor, Tasks


class StoppableProcessor(Processor):
    """A device that does what any does, and lets go of its task when it is told.

    The end of a task is an alarm, which can be taken back, where that of another processor is a
    sleep, which cannot. It comes at the same place in its instant.
    """

    __slots__ = ("_take_back", "_task")

    def __init__(self, index: int, clock: Clock, instant: Instant) -> None:
        super().__init__(index, clock, instant)
        self._task: Begun | None = None
        self._take_back: Callable[[], None] = _nothing

    def cut_short(self) -> None:
        """Let the task that occupies the device end now; nothing, where none does."""
        if self.is_busy:
            self._take_back()
            self._over()

    async def work(self, tasks: Tasks) -> None:
        """See `Processor`."""
        self.tasks = tasks
        queues: dict[Any, Any] = tasks.queues
        while True:
            has_work = any(queues.values())
            if not has_work or not self._clock.is_settled:
                self._signal = self._clock.signal()
                self.is_idle = True
                if has_work:
                    self.wake()
                await self._signal
            for kind, queue in queues.items():
                if queue:
                    task = tasks.begin(kind, queue)
                    if task[0]:
                        await self._occupied(task)
                    else:
                        self._end(task)
                    break
            else:
                self._settle()

    def _occupied(self, task: Begun) -> Any:
        """Return the signal that fires when a task has ended."""
        assert not self.is_busy, f"worker {self.index} begins two tasks at once"
        self.is_busy = task[1] is not None
        self._task, self._signal = task, self._clock.signal()
        self._take_back = self._clock.set_alarm(task[0], self._over)
        return self._signal

    def _over(self) -> None:
        task, self._task = self._task, None
        assert task is not None
        self.is_busy = False
        self._end(task)
        self._signal.fire()

    def _end(self, task: Begun) -> None:
        self.tasks.end(task)
        self._settle()

    def _settle(self) -> None:
        self.tasks.do_free(self._clock.now)
        if self.instant.waiting:
            self.instant.settle()


class UnawaitedProcessor(StoppableProcessor):
    """One for whose work nobody waits: a clock's run ends when nothing else is left to do."""

    __slots__ = ("_unawaited",)

    def require(self) -> None:
        """Let the clock's run wait for the present task after all."""
        self._clock.disregard(-self._unawaited)
        self._unawaited = 0

    def _occupied(self, task: Begun) -> Any:
        self._unawaited = 1
        self._clock.disregard(1)
        return super()._occupied(task)

    def _over(self) -> None:
        self.require()
        super()._over()


def _nothing() -> None:
    """Nothing has been set."""
