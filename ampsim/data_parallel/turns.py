"""A rank waits for its turn, or is held by a bound on how far it may be ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ampsim.data_parallel.rank import Rank, Resume
from ampsim.trace import Cause

Answer: TypeAlias = Callable[[Cause, bool], None]
"""``answer(cause, is_held)`` answers a rank, after `cause`; whether that was held back."""


class Bound:
    """Holds back the answers to ranks that are too far ahead.

    Args:
        ranks: all of them; those that are idle hold up nobody.
        most: pushes that a rank may be ahead.
    """

    def __init__(self, ranks: Sequence[Rank], most: int) -> None:
        self._ranks, self._most = ranks, most
        self._clocks = [0] * len(ranks)
        self._held: list[tuple[int, Answer, Cause, bool]] = []

    def merged(self, rank: int, answer: Answer, cause: Cause) -> None:
        """Count a push of a rank; its answer is held until it may go on."""
        self._clocks[rank] += 1
        self._held.append((rank, answer, cause, False))
        self.let_go(cause)

    def let_go(self, cause: Cause | None = None) -> None:
        """Answer ranks that are not too far ahead of the slowest any more."""
        slowest = min(
            (self._clocks[one.number] for one in self._ranks if not one.is_idle), default=math.inf
        )
        held, self._held = self._held, []
        for rank, answer, own, is_held in held:
            if self._clocks[rank] - slowest > self._most:
                self._held.append((rank, answer, own, True))
            else:
                answer(own if cause is None else cause, is_held)


class TurnLock:
    """A lock that goes from rank to rank in their order; those that have ended are left out.

    That it passes on takes no time.

    Args:
        ranks: how many there are.
    """

    def __init__(self, ranks: int) -> None:
        self._active = [True] * ranks
        self._turn = 0
        self._is_held = False
        self._waiting: dict[int, tuple[Cause, Resume]] = {}

    def acquire(self, rank: int, cause: Cause, granted: Resume) -> None:
        """Call `granted` when it is the turn of `rank`, with what it waited for."""
        self._waiting[rank] = (cause, granted)
        self._grant(None)

    def release(self, cause: Cause) -> None:
        """Pass it on, after `cause`."""
        self._is_held = False
        self._turn = (self._turn + 1) % len(self._active)
        self._grant(cause)

    def set_active(self, rank: int, is_active: bool) -> None:
        """Let a rank have turns, or not any more."""
        self._active[rank] = is_active
        if not is_active:
            self._grant(None)

    def _grant(self, cause: Cause | None) -> None:
        """Give it to whose turn it is, if that rank waits."""
        if self._is_held or not any(self._active):
            return
        while not self._active[self._turn]:
            self._turn = (self._turn + 1) % len(self._active)
        if self._turn in self._waiting:
            own, granted = self._waiting.pop(self._turn)
            self._is_held = True
            granted(own if cause is None else cause)
