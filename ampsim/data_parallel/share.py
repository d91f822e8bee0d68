"""What a group was dealt, dealt out to its ranks."""

from __future__ import annotations

from ampsim.data_parallel.dealer import Deal


class Share:
    """Hands out a group's deal in rounds, of which the last ends with a meeting.

    Args:
        ranks: of the group.
        together: batches that a rank takes at once.
    """

    def __init__(self, ranks: int, together: int) -> None:
        self._ranks, self._together = ranks, together
        self._rounds: list[list[Deal]] = [[] for _ in range(ranks)]

    def offer(self, deal: Deal) -> None:
        """Deal this out; batches in their order, to one rank after the other."""
        each, all_at_once = self._together, self._ranks * self._together
        for first in range(0, len(deal.batches), all_at_once):
            is_last = first + all_at_once >= len(deal.batches)
            for rank, own in enumerate(self._rounds):
                start = first + rank * each
                batches = deal.batches[start : start + each]
                rows = sum(one.rows for one in batches)
                place = deal.first + start, rows, deal.passed + start, deal.whole, deal.part
                own.append(Deal(deal.epoch, batches, *place, is_last))

    def take(self, rank: int) -> Deal | None:
        """As of `Deals`."""
        return self._rounds[rank].pop(0) if self._rounds[rank] else None

    def close(self, deal: Deal) -> None:
        """The group closes what it was dealt itself."""
