"""Virtual time over SimPy: the clock jumps from event to event.

Time is counted in whole ticks of an attosecond, not in floating-point seconds. Two paths of equal
length through a pipeline then end at the same instant, in whatever order their parts were added up,
and no rounding error decides a tie. Only how long a message waits for bandwidth is worked
out in seconds (`ampsim.machine.first_come`, `fair_share`), so that ways of equal length over these
may be a tick apart. At 1 TFLOP/s one FLOP is a million ticks; on a device of 1 EFLOP/s it is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, cast

import simpy
from simpy.events import NORMAL, URGENT, Event, EventPriority

from ampsim.clock.protocol import OVER, Signal

TICKS_PER_SECOND: Final = 10**18
SECONDS_PER_TICK: Final = 1e-18
FIRST_SETTLED, SETTLED = (cast("EventPriority", priority) for priority in (2, 3))
"""Priorities of signals: after SimPy's own urgent (0) and normal (1) events of the same instant."""


class SimSignal(Event):
    """A SimPy event that a coroutine can await and that fires last in its instant."""

    _ok = True
    _value = None

    def fire(self) -> None:
        """Wake whoever awaits this when the present instant has settled."""
        # As `Event.succeed`, which has no priority: SimPy's own events are written like this.
        environment = self.env
        entry = (environment._now, SETTLED, next(environment._eid), self)  # pyright: ignore[reportPrivateUsage]  # see above
        heappush(environment._queue, entry)  # pyright: ignore[reportPrivateUsage]  # see above

    def fire_first(self) -> None:
        """Wake them before whoever awaits other signals of the instant, even those fired before."""
        self.env.schedule(self, FIRST_SETTLED)

    def __await__(self) -> Generator[Event, Any, None]:
        """Wait until the signal fires."""
        # as a generator that yields itself would, in half the time; SimPy sends nothing but None
        return iter((self,))  # pyright: ignore[reportReturnType]  # does what is asked of it


class SimSleep:
    """The awaitable that `sleep` returns: one for all, as each is awaited at once.

    It is no event of SimPy's: the one coroutine that awaits it is called itself when time is over.

    Attributes:
        due: the tick at which the coroutine goes on that awaits it now; None where none does.
    """

    due: int | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until the time is over."""
        return iter((self,))  # pyright: ignore[reportReturnType]  # as of `SimSignal`


class _Stop(Exception):
    """Raised by the event until which a clock runs."""


class SimClock:
    """The virtual clock: `run` returns when no event is left, however far away that is.

    Attributes:
        now: virtual seconds since the clock was made.
    """

    def __init__(self) -> None:
        self._environment: Any = simpy.Environment(initial_time=0)  # its private parts are used
        self._events, self._number = self._environment._queue, self._environment._eid.__next__
        self._sleep = SimSleep()
        self.now = 0.0
        self._unawaited = 0

    @property
    def ticks(self) -> int:
        """The time as a whole number of ticks."""
        return int(self._environment._now)

    def skip(self, ticks: int) -> None:
        """Let so many ticks pass in which nothing happens; no event may be to come."""
        assert not self._events, "there are events to come"
        self._environment._now += ticks
        self.now = self._environment._now * SECONDS_PER_TICK

    @property
    def is_settled(self) -> bool:
        """Tell whether the next event, if there is one, comes at a later tick."""
        # As `Environment.peek` and `now`, in half the time: this is asked once a message.
        events = self._events
        return not events or events[0][0] > self._environment._now

    def sleep(self, delay_s: float) -> Awaitable[None]:
        """Wait for `delay_s` virtual seconds, rounded to a tick; to be awaited at once.

        Where nothing happens until then, that moment is now, and there is nothing to wait for.
        """
        ticks, environment = round(delay_s * TICKS_PER_SECOND), self._environment
        assert ticks >= 0, f"time never goes back, as by {delay_s} s"
        due, events = environment._now + ticks, self._events
        if not events or events[0][0] > due:
            environment._now, self.now = due, due * SECONDS_PER_TICK
            return OVER
        assert self._sleep.due is None, "a sleep was not awaited at once"
        self._sleep.due = due
        return self._sleep

    def signal(self) -> SimSignal:
        """Return a new signal that has not fired."""
        signal = SimSignal.__new__(SimSignal)  # as in `sleep`
        signal.env, signal.callbacks = self._environment, []
        return signal

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_s` virtual seconds."""
        ticks = round(delay_s * TICKS_PER_SECOND)
        assert ticks >= 0, f"time never goes back, as by {delay_s} s"
        # no event of SimPy's: nobody awaits it, and `_process` makes the call itself
        entry = (self._environment._now + ticks, NORMAL, self._number(), callback)
        heappush(self._events, entry)

    def set_alarm(self, delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `delay_s` virtual seconds, unless what is returned is called first.

        Time does not pass on to an alarm that was taken back.
        """
        alarm = partial(callback)  # an object of its own, by which the entry is found
        self.call_later(delay_s, alarm)
        return partial(self._take_back, alarm)

    def disregard(self, change: int) -> None:
        """Let `run` not wait for so many more of the events to come, or for so many fewer."""
        self._unawaited += change

    def _take_back(self, alarm: Callable[[], None]) -> None:
        """Remove a call that is yet to come from SimPy's heap."""
        events = self._events
        place = next(place for place, entry in enumerate(events) if entry[3] is alarm)
        events[place] = events[-1]
        events.pop()
        heapify(events)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Let `coroutine` run; what it awaits are SimPy's events, or a sleep."""
        # As `simpy.Process`, in half the time, for nobody interrupts these or waits for their ends.
        coroutine.__name__ = name
        environment, send, sleep = self._environment, coroutine.send, self._sleep
        events, number = self._events, self._number

        def resume(_event: Event | None = None) -> None:
            try:
                awaited = send(None)
                while awaited is not sleep and awaited.callbacks is None:  # it has happened already
                    awaited = send(None)
            except StopIteration:
                return
            except BaseException as error:
                environment.event().fail(error)
                return
            if awaited is sleep:
                entry = (sleep.due, NORMAL, number(), resume)
                sleep.due = None
                heappush(events, entry)
            else:
                awaited.callbacks.append(resume)

        heappush(events, (environment._now, URGENT, number(), resume))

    def run(self, until: Signal | None = None) -> None:
        """Process events until none that is awaited is left; a process's exception is raised here.

        With `until`, at the latest until that signal has fired.
        """
        if until is None:
            self._process()
            return
        cast("SimSignal", until).callbacks.append(_stop)  # pyright: ignore  # a list until processed
        with contextlib.suppress(_Stop):
            self._process()

    def _process(self) -> None:
        # As `Environment.run`, which calls `step` for each event, and raises copies of exceptions.
        environment, events = self._environment, self._events
        while len(events) > self._unawaited:
            environment._now, _priority, _number, event = heappop(events)
            self.now = environment._now * SECONDS_PER_TICK
            if callable(event):  # what was to be called: SimPy's events cannot
                event()
                continue
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok:
                raise event._value


def _stop(_event: Event) -> None:
    raise _Stop
