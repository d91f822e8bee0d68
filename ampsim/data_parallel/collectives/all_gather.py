"""Ring all-gather: what each rank has goes round until all have it.

Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
operations in MPICH", IJHPCA 19 (2005), Section 4.1, ring algorithm: (P - 1) (a + n / B), with n
bytes of each rank.
"""

from __future__ import annotations

from typing import Final

from ampsim.data_parallel.collectives.base import Hop


class AllGather:
    """Messages of a rank each; ranks add up themselves, so that it is none of the registry."""

    name = "all-gather"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Any number fits."""

    def parts(self, ranks: int, group: int | None) -> int:
        """What one rank has is one message."""
        return 1

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """In turn s rank r sends on what came to it in turn s - 1."""
        hops: list[Hop] = []
        for turn in range(ranks - 1):
            for rank in range(ranks):
                after = ((turn - 1) * ranks + (rank - 1) % ranks,) if turn else ()
                hops.append(Hop(rank, (rank + 1) % ranks, 1.0, after))
        return hops

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """P - 1 turns of what one rank has."""
        return (ranks - 1) * (latency_s + size_bytes / rate)


ALL_GATHER: Final = AllGather()
