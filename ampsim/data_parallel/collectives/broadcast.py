"""Broadcast: what rank 0 has goes to all ranks, down a binomial tree.

It is the way down of the tree and of the hierarchical collective: floor(log2 P) (a + n / B).
"""

from __future__ import annotations

from typing import Final

from ampsim.data_parallel.collectives.base import Hop
from ampsim.data_parallel.collectives.tree import depth, spread


class Broadcast:
    """Whole vectors, down; no ranks' vectors are added, so that it is none of the registry."""

    name = "broadcast"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Any number fits."""

    def parts(self, ranks: int, group: int | None) -> int:
        """The whole."""
        return 1

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Down."""
        return spread(list(range(ranks)), 0, ())

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """The depth of the tree."""
        return depth(ranks) * (latency_s + size_bytes / rate)


BROADCAST: Final = Broadcast()
