"""Who may exchange with the centre, where one rank at a time may."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ampsim.trace import Cause

Granted: TypeAlias = Callable[[Cause], None]


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
        self._waiting: dict[int, tuple[Cause, Granted]] = {}

    def acquire(self, rank: int, cause: Cause, granted: Granted) -> None:
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
