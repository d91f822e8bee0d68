"""A bound on how far a rank may be ahead of the slowest: answers that are held back until then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.visit import Visit
from ampsim.trace import Cause


class Bound:
    """Holds back the answers to ranks that are too far ahead.

    Args:
        ranks: all of them; those that are idle hold up nobody.
        most: batches that a rank may be ahead.
        answer: lets all servers answer.
    """

    def __init__(
        self, ranks: Sequence[Rank], most: int, answer: Callable[[Visit, Cause], None]
    ) -> None:
        self._ranks, self._most, self._answer = ranks, most, answer
        self._clocks = [0] * len(ranks)
        self._held: list[tuple[Visit, Cause]] = []

    def merged(self, visit: Visit, cause: Cause) -> None:
        """Count a batch of a rank; its answer is held until it may go on."""
        self._clocks[visit.rank.number] += 1
        self._held.append((visit, cause))
        self.let_go(cause)

    def let_go(self, cause: Cause | None = None) -> None:
        """Answer ranks that are not too far ahead of the slowest any more."""
        slowest = min(
            (self._clocks[one.number] for one in self._ranks if not one.is_idle), default=math.inf
        )
        held, self._held = self._held, []
        for visit, own in held:
            if self._clocks[visit.rank.number] - slowest > self._most:
                visit.is_held = True
                self._held.append((visit, own))
            else:
                self._answer(visit, own if cause is None else cause)
