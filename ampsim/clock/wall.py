"""Wall-clock time over asyncio: the same workers, really waiting.

This is the method of the paper's Appendix C itself (sleep nodes), in one process, and the check on
the virtual clock. `stretch` wall seconds pass for each second of the clock, so that microseconds
become long enough for an operating system to tell apart.

Deadlines do not drift: whatever follows from an event is due so long after the time at which the
event was due, not after the time at which an event loop came to it. Events of one instant come in
the order of the virtual clock, and none begins before what the last one brought about is done. So a
trace has the same times on both clocks; how well the wall kept them is what `elapsed_s` and
`late_max_s` tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias, cast

from ampsim.arguments import checked
from ampsim.clock.protocol import Signal
from ampsim.clock.simulated import SECONDS_PER_TICK, TICKS_PER_SECOND
from ampsim.errors import OptionError

SPIN_S: Final = 0.003  # chosen: an event loop wakes up to 2 ms late, so the last 3 ms are polled

CLOSE_S: Final = 1.0
"""Wall seconds that a closing clock leaves its coroutines (chosen: all that they do is end)."""

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""What interrupts a program, by names on any system."""

_START, _TIMER, _FIRST_SIGNAL, _SIGNAL = range(4)
"""What comes first within an instant, as SimPy has it."""

_Event: TypeAlias = "tuple[int, int, int, Callable[[], None]]"
"""What is due: (tick, priority, place among those of equal priority, what to do)."""


class _Once:
    """A future of the loop that one coroutine may await, before or after it has come.

    Args:
        clock: told when the coroutine stops and goes on.
    """

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._future: asyncio.Future[None] = clock.loop.create_future()
        self._is_awaited = False

    @property
    def has_come(self) -> bool:
        """Tell whether it has come."""
        return self._future.done()

    def come(self) -> None:
        """Let the coroutine go on."""
        if self._is_awaited:
            self._clock.busy(+1)
        self._future.set_result(None)

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until it has come."""
        if self._future.done():
            return
        self._is_awaited = True
        self._clock.busy(-1)
        yield from self._future.__await__()


class WallSignal(_Once):
    """A signal that fires last in its instant."""

    def fire(self) -> None:
        """Wake whoever awaits this when the present instant has settled."""
        self._clock.put(0, _SIGNAL, self.come)

    def fire_first(self) -> None:
        """Wake them before whoever awaits other signals of the instant, even those fired before."""
        self._clock.put(0, _FIRST_SIGNAL, self.come)


class WallClock:
    """Real time, stretched; `run` returns when every coroutine awaits an unfired signal.

    Attributes:
        stretch: wall seconds for each second of this clock.
        elapsed_s: seconds of this clock that really passed in `run`, up to the last event.
        late_max_s: the most wall seconds by which an event came too late.

    Raises:
        OptionError: `stretch` is not a positive finite number.
    """

    @checked
    def __init__(self, stretch: float = 1.0) -> None:
        if not 0.0 < stretch < float("inf"):
            raise OptionError(f"stretch must be a positive finite number, got {stretch}")
        self.loop = asyncio.new_event_loop()
        self.elapsed_s = 0.0
        self.late_max_s = 0.0
        self._unawaited = 0
        self.stretch = stretch
        self._tick = 0
        self._events: list[_Event] = []
        self._places = itertools.count()
        self._busy = 0
        self._start_s = self._last_s = 0.0
        self._is_running = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._coming: set[Coroutine[Any, Any, None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def now(self) -> float:
        """Seconds of this clock at which the present event is due."""
        return self._tick * SECONDS_PER_TICK

    @property
    def is_settled(self) -> bool:
        """Tell whether the next event, if there is one, is due later."""
        return not self._events or self._events[0][0] > self._tick

    @property
    def passed_s(self) -> float:
        """Seconds of this clock that the wall has passed; in `run`, never much before `now`."""
        return (self.loop.time() - self._start_s) / self.stretch if self._is_running else self.now

    def sleep(self, delay_s: float) -> Awaitable[None]:
        """Really wait: `delay_s` seconds of this clock, `stretch` times as long on the wall."""
        once = _Once(self)
        self.put(delay_s, _TIMER, once.come)
        return once

    def signal(self) -> WallSignal:
        """Return a new signal that has not fired."""
        return WallSignal(self)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_s` seconds of this clock."""
        self.put(delay_s, _TIMER, callback)

    def set_alarm(self, delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `delay_s` seconds, unless what is returned is called first."""
        return partial(self._take_back, self.put(delay_s, _TIMER, callback))

    def disregard(self, change: int) -> None:
        """Let `run` not wait for so many more of the events to come, or for so many fewer."""
        self._unawaited += change

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Let `coroutine` run as a task of the loop, in the present context."""
        context = copy_context()
        self._coming.add(coroutine)

        def begin() -> None:
            self._coming.discard(coroutine)
            task = self.loop.create_task(coroutine, name=name, context=context)
            task.add_done_callback(self._ended)
            self._tasks.add(task)
            self.busy(+1)

        self.put(0, _START, begin)

    def put(self, delay_s: float, priority: int, what: Callable[[], None]) -> _Event:
        """Let something be done in `delay_s` seconds; for this module."""
        tick = self._tick + round(delay_s * TICKS_PER_SECOND)
        event = (tick, priority, next(self._places), what)
        heappush(self._events, event)
        return event

    def _take_back(self, event: _Event) -> None:
        self._events.remove(event)
        heapify(self._events)

    def run(self, until: Signal | None = None) -> None:
        """Run the loop until nothing is left to do; an exception of a coroutine is raised here.

        With `until`, at the latest until that signal has fired. Ctrl-C is raised here, too, after
        the step of a coroutine in whose middle it came; from then on no event comes any more.
        """
        passed_s = self.now
        self._last_s = self.loop.time()
        self._start_s = self._last_s - passed_s * self.stretch
        self._is_running = True
        events = self.loop.create_task(self._pass_events(cast("WallSignal | None", until)))
        self._tasks.add(events)
        interruptions: list[BaseException] = []
        try:
            with _held_back(interruptions, partial(self._call_off, events)):
                self._complete(events)
            self._tasks.discard(events)
        except asyncio.CancelledError:
            if not interruptions:
                raise
        finally:
            self._is_running = False
            self.elapsed_s += (self._last_s - self._start_s) / self.stretch - passed_s
        if interruptions:
            raise interruptions[0]
        if self._failure is not None:
            raise self._failure

    def _call_off(self, events: asyncio.Task[None]) -> None:
        """Let no event come any more; for a signal's handler."""
        self.loop.call_soon_threadsafe(events.cancel)

    async def _pass_events(self, until: WallSignal | None) -> None:
        """Do one event after the other, each when it is due and all before it have been served.

        With `until`, stop when that has come.
        """
        await self._quiet.wait()
        while len(self._events) > self._unawaited and self._failure is None:
            if until is not None and until.has_come:
                break
            due_s = self._start_s + self._events[0][0] * SECONDS_PER_TICK * self.stretch
            late_s = await self._wait(due_s)
            self._tick, _priority, _place, what = heappop(self._events)
            self._last_s = due_s + late_s
            self.late_max_s = max(self.late_max_s, late_s)
            what()
            await self._quiet.wait()
        self._last_s = self.loop.time()

    async def _wait(self, due_s: float) -> float:
        """Return when the loop's time is `due_s`; by how much it is later already."""
        left_s = due_s - self.loop.time()
        if left_s > SPIN_S:
            await asyncio.sleep(left_s - SPIN_S)
        while (now_s := self.loop.time()) < due_s:
            await asyncio.sleep(0)
        return now_s - due_s

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
        for coroutine in self._coming:
            coroutine.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks and not self.loop.is_closed():
            self._complete(asyncio.wait(self._tasks, timeout=CLOSE_S))
        self.loop.close()

    def busy(self, change: int) -> None:
        """Count how many coroutines have something to do; at none the next event may come."""
        self._busy += change
        if self._busy == 0:
            self._quiet.set()
        else:
            self._quiet.clear()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
        self.busy(-1)


AGAIN_S: Final = 10.0
"""Wall seconds after which a block that was to end is interrupted again (chosen: it winds up by
then, unless the interruption got lost in what Python calls by itself, such as a finaliser)."""


LATE_S: Final = 0.5
"""Wall seconds more until then (chosen: who asks what time it is ends between two steps first)."""


LONGEST_S: Final = 1e9
"""Wall seconds that timers of all systems can hold (chosen: 32 years)."""


@contextlib.contextmanager
def interrupted_after(seconds: float | None) -> Generator[None]:
    """Interrupt the block as Ctrl-C does, a moment after so many wall seconds; None is never.

    It is never, too, where no signal can: outside the main thread, and on Windows.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, min(max(seconds, 0.0), LONGEST_S) + LATE_S, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _held_back(interruptions: list[BaseException], call_off: Callable[[], None]) -> Generator[None]:
    """Hold back what handlers of signals raise, which could come in the middle of any line.

    The first is kept, and `call_off` is called; a second one comes through at once.
    """
    before: dict[int, Any] = {}

    def hold(handler: Callable[[int, Any], Any], number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            if interruptions:
                raise
            interruptions.append(error)
            call_off()

    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and callable(handler := signal.getsignal(number)):
                before[number] = signal.signal(number, partial(hold, handler))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
