"""Links at work: messages queue for a link's bandwidth and then fly for its latency."""

from __future__ import annotations

from collections.abc import Callable

from ampsim.clock import Clock
from ampsim.hardware import Link, serialization_s
from ampsim.runtime.site import Entry, Route
from ampsim.trace import Recorder


class Channel:
    """One direction between two workers, first come first served.

    A message of b bytes holds the channel for b / bandwidth and arrives a latency after that, so
    that two messages never share the bandwidth and the channel never reorders.
    """

    __slots__ = ("_arrive", "_clock", "_free_at_s", "_link", "_recorder")

    def __init__(
        self,
        link: Link,
        clock: Clock,
        recorder: Recorder,
        arrive: Callable[[int, Route, Entry], None],
    ) -> None:
        """Use `link` from now on; ``arrive(source, route, entry)`` takes what has crossed it."""
        self._link = link
        self._arrive = arrive
        self._clock = clock
        self._recorder = recorder
        self._free_at_s = 0.0

    def carry(self, source: int, route: Route, entry: Entry) -> None:
        """Deliver `entry` along `route` when the link allows; record the transfer."""
        payload = entry[3]
        now = self._clock.now
        wait_s = max(0.0, self._free_at_s - now)
        payload_bytes = 0 if payload is None else payload.nbytes
        held_s = serialization_s(self._link, payload_bytes)
        self._free_at_s = now + wait_s + held_s
        delay_s = wait_s + held_s + self._link.latency_s
        self._recorder.transfers.append(
            (source, entry[0].index, payload_bytes, now + wait_s, now + delay_s)
        )
        self._clock.call_later(delay_s, lambda: self._arrive(source, route, entry))
