"""Wall-clock time over asyncio: the same workers, really waiting.

This is the method of the paper's Appendix C itself (sleep nodes), in one process, and the check on
the virtual clock. `stretch` wall seconds pass for each second of the clock, so that microseconds
become long enough for an operating system to tell apart.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, cast

from ampsim.arguments import checked
from ampsim.clock.protocol import Signal
from ampsim.errors import OptionError

SPIN_S: Final = 0.003  # chosen: an event loop wakes up to 2 ms late, so the last 3 ms are polled


class WallSignal:
    """A future of the loop, with the clock told when its waiter stops and goes on."""

    def __init__(self, clock: WallClock) -> None:
        """Belong to `clock`, not fired."""
        self._clock = clock
        self._future: asyncio.Future[None] = clock.loop.create_future()

    def fire(self) -> None:
        """Wake whoever awaits this in the loop's next turn but one."""
        self._clock.busy(+1)
        self._clock.loop.call_soon(self._clock.loop.call_soon, self._future.set_result, None)

    def call_when_fired(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the signal fires, in place of waking somebody who awaits it."""
        self._future.add_done_callback(lambda _future: callback())

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until the signal fires."""
        self._clock.busy(-1)
        yield from self._future.__await__()


class WallClock:
    """Real time, stretched; `run` returns when every coroutine awaits an unfired signal."""

    @checked
    def __init__(self, stretch: float = 1.0) -> None:
        """Let `stretch` wall seconds pass for each second of this clock.

        Raises:
            OptionError: `stretch` is not a positive finite number.
        """
        if not 0.0 < stretch < float("inf"):
            raise OptionError(f"stretch must be a positive finite number, got {stretch}")
        self.loop = asyncio.new_event_loop()
        self._stretch = stretch
        self._start = self.loop.time()
        self._waiting: list[tuple[float, int]] = []
        self._places = itertools.count()
        self._busy = 0
        self._idle = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    @property
    def now(self) -> float:
        """Seconds of this clock since it was made."""
        return (self.loop.time() - self._start) / self._stretch

    @property
    def is_settled(self) -> bool:
        """Never known: what ends in this instant may be a turn of the loop away."""
        return False

    async def _until(self, deadline: float) -> None:
        """Return at `deadline`, and never before someone with an earlier one."""
        place = (deadline, next(self._places))
        heapq.heappush(self._waiting, place)
        try:
            remaining = deadline - self.loop.time()
            if remaining > SPIN_S:
                await asyncio.sleep(remaining - SPIN_S)
            while self._waiting[0] != place or self.loop.time() < deadline:
                await asyncio.sleep(0)
        finally:  # also of an alarm that is taken back, for which nobody is to wait
            self._waiting.remove(place)
            heapq.heapify(self._waiting)

    def sleep(self, delay_s: float) -> Awaitable[None]:
        """Really wait: `delay_s` seconds of this clock, `stretch` times as long on the wall."""
        return self._until(self.loop.time() + delay_s * self._stretch)

    def signal(self) -> WallSignal:
        """Return a new signal that has not fired."""
        return WallSignal(self)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_s` seconds of this clock."""
        self.set_alarm(delay_s, callback)

    def set_alarm(self, delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `delay_s` seconds, unless what is returned is called first."""
        deadline = self.loop.time() + delay_s * self._stretch

        async def wait_and_call() -> None:
            await self._until(deadline)
            callback()

        task = self._task(wait_and_call(), "call_later")

        def take_back() -> None:
            task.cancel()

        return take_back

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Let `coroutine` run as a task of the loop."""
        self._task(coroutine, name)

    def _task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        self.busy(+1)
        task = self.loop.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def run(self, until: Signal | None = None) -> None:
        """Run the loop until nothing is left to do; an exception of a coroutine is raised here.

        With `until`, at the latest until that signal has fired.
        """
        if self._busy:
            self._idle.clear()
            if until is not None:
                cast("WallSignal", until).call_when_fired(self._stop)
            self._complete(self._idle.wait())
        if self._failure is not None:
            raise self._failure
        self._tasks = [task for task in self._tasks if not task.done()]

    def _complete(self, awaited: Awaitable[Any]) -> None:
        """Run the loop until `awaited` has ended.

        Where a loop runs already, as in a notebook, it does so in a thread of its own.
        What a context holds, such as NumPy's treatment of overflows, goes with it.
        """

        def run() -> None:
            self.loop.run_until_complete(awaited)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            run()
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, run).result()

    def close(self) -> None:
        """Cancel what still waits and close the loop."""
        for task in self._tasks:
            task.cancel()
        if self._tasks and not self.loop.is_closed():
            self._complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self.loop.close()

    def _stop(self) -> None:
        """Let `run` return, whatever is left to do; the signal that says so keeps nobody busy."""
        self.busy(-1)
        self._idle.set()

    def busy(self, change: int) -> None:
        """Count how many coroutines have something to do; `run` ends at none."""
        self._busy += change
        if self._busy == 0:
            self._idle.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._idle.set()
        self.busy(-1)
