"""Star: every rank sends its vector to rank 0, which sends the sum to all.

Where each pair has a link of its own that is 2 (a + n / B). Where rank 0 has a port, its bandwidth
is shared by all, which only the messages themselves tell.
"""

from __future__ import annotations

from ampsim.data_parallel.collectives.base import Hop


class Star:
    """The way of a single parameter server that waits for all."""

    name = "star"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Any number fits."""

    def parts(self, ranks: int, group: int | None) -> int:
        """The whole."""
        return 1

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """In, then out."""
        after = tuple(range(ranks - 1))
        inwards = [Hop(rank, 0, 1.0, ()) for rank in range(1, ranks)]
        return inwards + [Hop(0, rank, 1.0, after) for rank in range(1, ranks)]

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """In and out; nothing of one rank."""
        return 2 * (latency_s + size_bytes / rate) if ranks > 1 else 0.0
