"""A collective as messages on the fabric."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ampsim.data_parallel.collectives import Hop
from ampsim.data_parallel.setting import Setting
from ampsim.trace import Cause


class HopRun:
    """The hops of one collective.

    Args:
        hops: all of them.
        workers: of each rank.
        part_bytes: of one part of the vector.
        setting: the machine.
        done: called with a rank and a cause when the last hop has come to it.
    """

    def __init__(
        self,
        hops: Sequence[Hop],
        workers: Sequence[int],
        part_bytes: int,
        setting: Setting,
        done: Callable[[int, Cause], None],
    ) -> None:
        self._hops, self._workers, self._part_bytes = hops, workers, part_bytes
        self._setting = setting
        self._done = done
        self._missing = [len(hop.after) for hop in hops]
        self._next: list[list[int]] = [[] for _ in hops]
        self._coming = [0] * len(workers)
        for number, hop in enumerate(hops):
            self._coming[hop.target] += 1
            for before in hop.after:
                self._next[before].append(number)
        self._ready: deque[tuple[int, Cause]] = deque()
        self._is_sending = False

    def start(self, cause: Cause) -> None:
        """Send what waits for nothing."""
        for rank, coming in enumerate(self._coming):
            if not coming:
                self._done(rank, cause)
        self._ready += [(number, cause) for number, left in enumerate(self._missing) if not left]
        self._send_ready()

    def _send_ready(self) -> None:
        """Send what is ready; on free links that makes more ready, one after the other."""
        if self._is_sending:
            return
        self._is_sending = True
        while self._ready:
            number, cause = self._ready.popleft()
            hop = self._hops[number]
            ends = (self._workers[hop.source], self._workers[hop.target])
            size_bytes = round(hop.parts * self._part_bytes)
            self._setting.send(ends, size_bytes, cause, partial(self._arrived, number))
        self._is_sending = False

    def _arrived(self, number: int, cause: Cause) -> None:
        for following in self._next[number]:
            self._missing[following] -= 1
            if not self._missing[following]:
                self._ready.append((following, cause))
        target = self._hops[number].target
        self._coming[target] -= 1
        if not self._coming[target]:
            self._done(target, cause)
        self._send_ready()
