"""Recursive halving, then doubling: partners exchange halves of halves.

Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
operations in MPICH", IJHPCA 19 (2005): 2 a log₂ P + 2 (P - 1) / P n / B, for powers of two.
"""

from __future__ import annotations

from ampsim.data_parallel.collectives.base import Hop
from ampsim.errors import OptionError


class HalvingDoubling:
    """As little latency as a tree, as few bytes as a ring."""

    name = "halving-doubling"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """A power of two."""
        if ranks & (ranks - 1):
            raise OptionError(
                "collective 'halving-doubling' needs a power of two of ranks, got "
                f"{ranks}; take {1 << ranks.bit_length() - 1} ranks, or collective='ring'"
            )

    def parts(self, ranks: int, group: int | None) -> int:
        """One for each rank."""
        return ranks

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Each turn, every rank sends to its partner of that turn."""
        distances = [1 << turn for turn in range(ranks.bit_length() - 1)]
        halving = [(one, ranks / 2 / one) for one in distances]
        hops: list[Hop] = []
        for turn, (distance, parts) in enumerate([*halving, *reversed(halving)]):
            for rank in range(ranks):
                before = ([*distances, *reversed(distances)])[turn - 1]
                after = ((turn - 1) * ranks + (rank ^ before),) if turn else ()
                hops.append(Hop(rank, rank ^ distance, parts, after))
        return hops

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """Twice log₂ P turns, and twice the vector but for a part."""
        turns = ranks.bit_length() - 1
        return 2 * turns * latency_s + 2 * (ranks - 1) / ranks * size_bytes / rate
