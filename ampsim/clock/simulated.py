"""Virtual time over SimPy: the clock jumps from event to event.

Time is counted in whole ticks of an attosecond, not in floating-point seconds. Two paths of equal
length through a pipeline then end at the same instant, in whatever order their parts were added up,
and a tie is never decided by a rounding error. At 1 TFLOP/s one FLOP
is a million ticks; on a device of 1 EFLOP/s it is still one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from heapq import heapify, heappush
from typing import Any, Final, cast

import simpy
from simpy.core import EmptySchedule, StopSimulation
from simpy.events import NORMAL, Event, EventPriority

from ampsim.clock.protocol import Signal

TICKS_PER_SECOND: Final = 10**18
SECONDS_PER_TICK: Final = 1e-18
SETTLED: Final = cast("EventPriority", 2)
"""Priority of signals: after SimPy's own urgent (0) and normal (1) events of the same instant."""


def _once(event: Event) -> Generator[Event, Any, None]:
    """Yield `event`, as a generator would, in half the time; SimPy sends nothing but None."""
    return iter((event,))  # pyright: ignore[reportReturnType]  # does what is asked of it


class SimSignal(Event):
    """A SimPy event that a coroutine can await and that fires last in its instant."""

    def fire(self) -> None:
        """Wake whoever awaits this when the present instant has settled."""
        # As `Event.succeed`, which has no priority: SimPy's own events are written like this.
        self._ok = True
        self._value = None
        environment = self.env
        entry = (environment._now, SETTLED, next(environment._eid), self)  # pyright: ignore[reportPrivateUsage]  # see above
        heappush(environment._queue, entry)  # pyright: ignore[reportPrivateUsage]  # see above

    def __await__(self) -> Generator[Event, Any, None]:
        """Wait until the signal fires."""
        return _once(self)


class SimSleep(Event):
    """A SimPy timeout that a coroutine can await, which happens whatever comes."""

    _ok = True
    _value = None

    def __await__(self) -> Generator[Event, Any, None]:
        """Wait until the time is over."""
        return iter((self,))  # pyright: ignore[reportReturnType]  # as `_once`


class _Call(Event):
    """An event that calls a function: SimPy's Timeout with a callback, in half the time.

    Args:
        environment: whose event it is.
        ticks: from now, 0 or more.
        callback: what is called.
    """

    _ok = True
    _value = None

    def __init__(
        self, environment: simpy.Environment, ticks: int, callback: Callable[[], None]
    ) -> None:
        def call(_event: Event) -> None:
            callback()

        assert ticks >= 0, "time never goes back"
        self.env, self.callbacks = environment, [call]
        due = environment._now + ticks  # pyright: ignore[reportPrivateUsage]  # as `Timeout` does by calls
        place = next(environment._eid)  # pyright: ignore[reportPrivateUsage]  # likewise
        heappush(environment._queue, (due, NORMAL, place, self))  # pyright: ignore[reportPrivateUsage]  # likewise


class SimClock:
    """The virtual clock: `run` returns when no event is left, however far away that is."""

    def __init__(self) -> None:
        """Start at second 0."""
        self._environment = simpy.Environment(initial_time=0)

    @property
    def now(self) -> float:
        """Virtual seconds since the clock was made."""
        # As `Environment.now`, without the call of its property: this is read twice a message.
        return self._environment._now * SECONDS_PER_TICK  # pyright: ignore[reportPrivateUsage]  # see above

    @property
    def is_settled(self) -> bool:
        """Whether the next event, if there is one, comes at a later tick."""
        # As `Environment.peek` and `now`, in half the time: this is asked once a message.
        environment = self._environment
        events = environment._queue  # pyright: ignore[reportPrivateUsage]  # see above
        return not events or events[0][0] > environment._now  # pyright: ignore[reportPrivateUsage]  # see above

    def sleep(self, delay_s: float) -> Awaitable[None]:
        """Wait for `delay_s` virtual seconds, rounded to a tick."""
        # As `Timeout`, in one call for four: one is made for each step.
        ticks, environment = round(delay_s * TICKS_PER_SECOND), self._environment
        assert ticks >= 0, f"sleeps for {delay_s} s"
        sleep = SimSleep.__new__(SimSleep)
        sleep.env, sleep.callbacks = environment, []
        entry = (environment._now + ticks, NORMAL, next(environment._eid), sleep)  # pyright: ignore[reportPrivateUsage]  # see above
        heappush(environment._queue, entry)  # pyright: ignore[reportPrivateUsage]  # see above
        return sleep

    def signal(self) -> SimSignal:
        """Return a new signal that has not fired."""
        return SimSignal(self._environment)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_s` virtual seconds."""
        self._calling(delay_s, callback)

    def set_alarm(self, delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` in `delay_s` virtual seconds, unless what is returned is called first.

        Time does not pass on to an alarm that was taken back.
        """
        return partial(self._take_back, self._calling(delay_s, callback))

    def _calling(self, delay_s: float, callback: Callable[[], None]) -> Event:
        """An event in `delay_s` virtual seconds that calls `callback`."""
        return _Call(self._environment, round(delay_s * TICKS_PER_SECOND), callback)

    def _take_back(self, event: Event) -> None:
        """Remove an event that is yet to come from SimPy's heap."""
        events = self._environment._queue  # pyright: ignore[reportPrivateUsage]  # SimPy has no such call
        place = next(place for place, entry in enumerate(events) if entry[3] is event)
        events[place] = events[-1]
        events.pop()
        heapify(events)

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Let `coroutine` run as a SimPy process (which takes native coroutines as they are)."""
        coroutine.__name__ = name
        self._environment.process(cast("Generator[Event, Any, None]", coroutine))

    def run(self, until: Signal | None = None) -> None:
        """Process events until none is left; an exception of a process is raised here.

        With `until`, at the latest until that signal has fired.
        """
        try:
            if until is None:
                self._environment.run()
            else:
                self._run_until(cast("SimSignal", until))
        except BaseException as error:
            # SimPy raises a copy whose cause is the original, which has a cause of its own.
            original = error.__cause__
            if original is not None and type(original) is type(error):
                raise original from original.__cause__
            raise

    def _run_until(self, signal: SimSignal) -> None:
        """Process events until `signal` has fired, or none is left."""
        signal.callbacks.append(StopSimulation.callback)  # pyright: ignore  # a list until processed
        environment = self._environment
        try:
            while True:
                environment.step()
        except (StopSimulation, EmptySchedule):
            return
