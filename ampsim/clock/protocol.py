"""The clock that a worker may ask, whoever keeps time.

A worker is written once, as ``async def``; what it awaits decides how it runs. `SimClock` jumps
from event to event, `WallClock` really waits. See docs/decisions/0001-one-worker-two-clocks.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol


class Signal(Protocol):
    """A signal that somebody awaits and somebody else fires, once."""

    def fire(self) -> None:
        """Wake whoever awaits this when the present instant has settled.

        Whatever ends or arrives at the same instant (`sleep`, `call_later`) comes first.
        """

    def fire_first(self) -> None:
        """Wake them before whoever awaits other signals of the instant, even those fired before."""

    def __await__(self) -> Generator[Any, Any, None]:
        """Wait until the signal fires."""
        ...


class _Over:
    """A sleep that is over."""

    def __await__(self) -> Generator[Any, Any, None]:
        """Go on."""
        return iter(())  # pyright: ignore[reportReturnType]  # does what is asked of it


OVER: Final = _Over()
"""What a clock's `sleep` gives where there is nothing to wait for; it need not be awaited."""


class Clock(Protocol):
    """Time as an object: read it, wait for it, run it."""

    @property
    def now(self) -> float:
        """Seconds since the clock was made."""
        ...

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing else will happen in this instant, so far as anybody knows.

        Whoever would fire a signal and await it then may go on at once: it would come next.
        """
        ...

    def sleep(self, delay_s: float) -> Awaitable[None]:
        """Wait for `delay_s` seconds of this clock, from now on; to be awaited at once."""
        ...

    def signal(self) -> Signal:
        """Return a new signal that has not fired."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` in `delay_s` seconds: one event, no coroutine."""

    def set_alarm(self, delay_s: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back later, as `call_later` does; what is returned takes the call back."""
        ...

    def disregard(self, change: int) -> None:
        """Let `run` not wait for so many more of the events to come, or for so many fewer."""

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Let `coroutine` run under this clock; an exception in it ends `run`."""

    def run(self, until: Signal | None = None) -> None:
        """Run until every coroutine has ended or awaits a signal that nobody has fired.

        Events that nobody waits for are left when no others are. With `until`, a new signal of this
        clock that nobody awaits, at the latest until it fires; what is left goes on with the next
        call.
        """
