"""Ring: each part goes round once to be added up, and once more to be known to all.

Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", JPDC 69 (2009): 2 (P - 1) (a + n / (P B)) seconds.
"""

from __future__ import annotations

from ampsim.data_parallel.collectives.base import Hop


class Ring:
    """Each rank sends 2 (P - 1) / P of the vector to its neighbour."""

    name = "ring"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Any number fits."""

    def parts(self, ranks: int, group: int | None) -> int:
        """One for each rank."""
        return ranks

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """In turn s rank r sends on what came to it in turn s - 1."""
        return ring_of(list(range(ranks)), 1.0, 0, [()] * ranks)

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """2 (P - 1) turns of a part each."""
        return 2 * (ranks - 1) * (latency_s + size_bytes / ranks / rate)


def ring_of(
    members: list[int], parts: float, first: int, ready: list[tuple[int, ...]]
) -> list[Hop]:
    """A ring of these ranks.

    Args:
        members: the ranks, each the neighbour of the one before it.
        parts: what one hop has.
        first: the place of its first hop in the list of all.
        ready: for each member, what must have arrived before it sends.
    """
    count = len(members)
    hops: list[Hop] = []
    for turn in range(2 * (count - 1)):
        for place, rank in enumerate(members):
            before = first + (turn - 1) * count + (place - 1) % count
            after = (before,) if turn else ready[place]
            hops.append(Hop(rank, members[(place + 1) % count], parts, after))
    return hops
