"""Bandwidth, first come first served: a message holds all of its way, then the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.clock import Clock
from ampsim.hardware import Way
from ampsim.machine.channel import Transfers
from ampsim.trace import Cause

_ROUNDING: Final = 1 + 1e-12  # of one sum of times, added up in another order


@dataclass(slots=True)
class Holder:
    """Bandwidth that one message at a time has: an edge's, a link's or a port's."""

    free_at_s: float = 0.0


class QueuedChannel:
    """One way between two workers: a link of their own, or bandwidth that other ways use too.

    What has b bytes holds its whole way for b / the narrowest bandwidth, and arrives the latency
    after that. It starts when everything that was sent before it has left the whole way, so that
    nothing overtakes, least of all on one way.

    Args:
        holders: who has each of its bandwidths; those of other ways, too, where they share them.
        workers: from which worker to which; the host is -1.
    """

    __slots__ = ("_clock", "_holders", "_rate", "_settle", "_transfers", "_workers", "latency_s")

    def __init__(
        self,
        way: Way,
        holders: Sequence[Holder],
        workers: tuple[int, int],
        clock: Clock,
        *,
        transfers: Transfers,
        settle: Callable[[], None],
    ) -> None:
        self._settle = settle
        self._holders = tuple(holders)
        self.latency_s = way.latency_s
        self._rate = way.narrowest_bytes_per_s
        self._workers = workers
        self._clock = clock
        self._transfers = transfers

    def send(
        self,
        size_bytes: int,
        nodes: tuple[int, int],
        cause: Cause,
        arrive: Callable[[Cause], None],
        latency_s: float | None = None,
    ) -> None:
        """Send so many bytes, as `Flight.send`; all times are known at once."""
        now = start_s = left_s = self._clock.now
        delay_s = self.latency_s if latency_s is None else latency_s
        if self._rate is not None:
            wait_s = 0.0
            for holder in self._holders:
                wait_s = max(wait_s, holder.free_at_s - now)
            held_s = size_bytes / self._rate
            free_at_s = now + wait_s + held_s
            for holder in self._holders:
                assert holder.free_at_s <= free_at_s * _ROUNDING, "two messages on one edge or port"
                holder.free_at_s = free_at_s
            delay_s = wait_s + held_s + delay_s
            start_s = now + wait_s
            left_s = start_s + held_s
        end_s = now + delay_s
        (source, target), (sender, receiver) = nodes, self._workers
        transfer = self._transfers.add(
            (source, target, size_bytes, start_s, end_s, now, left_s, sender, receiver, cause)
        )
        settle = self._settle

        def deliver() -> None:
            arrive(transfer)
            settle()

        self._clock.call_later(delay_s, deliver)
