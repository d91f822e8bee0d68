"""Tree: sums go up a binomial tree to rank 0, and the result comes down.

Rank r's parent is r without its lowest 1 bit, so that no rank is farther from rank 0 than the most
1 bits of any rank: ⌊log₂ P⌋, and log₂ P where that is whole (R. Rabenseifner, "Optimization of
collective reduction operations", ICCS 2004: 2 log₂ P (a + n / B)). Links are of each pair, so that
a parent takes from several children at once unless ports forbid it.
"""

from __future__ import annotations

from ampsim.data_parallel.collectives.base import Hop


class Tree:
    """Whole vectors, up and down."""

    name = "tree"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Any number fits."""

    def parts(self, ranks: int, group: int | None) -> int:
        """The whole."""
        return 1

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Up, then down."""
        up, arrived = reduced(list(range(ranks)), 0)
        return up + spread(list(range(ranks)), len(up), arrived)

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """The depth of the tree, twice."""
        return 2 * depth(ranks) * (latency_s + size_bytes / rate)


def depth(ranks: int) -> int:
    """⌊log₂ P⌋.

    >>> [depth(ranks) for ranks in (1, 2, 3, 4, 7, 8)]
    [0, 1, 1, 2, 2, 3]
    """
    return ranks.bit_length() - 1


def reduced(members: list[int], first: int) -> tuple[list[Hop], tuple[int, ...]]:
    """The hops up, from place `first` on, and which of them bring the first member its last."""
    arriving: list[list[int]] = [[] for _ in members]
    hops: list[Hop] = []
    for place in range(len(members) - 1, 0, -1):
        parent = place & (place - 1)
        arriving[parent].append(first + len(hops))
        hops.append(Hop(members[place], members[parent], 1.0, tuple(arriving[place])))
    return hops, tuple(arriving[0])


def spread(members: list[int], first: int, ready: tuple[int, ...]) -> list[Hop]:
    """The hops down, from place `first` on, after what is `ready` at the first member."""
    came: list[tuple[int, ...]] = [ready, *([()] * (len(members) - 1))]
    hops: list[Hop] = []
    for place in range(1, len(members)):
        parent = place & (place - 1)
        came[place] = (first + len(hops),)
        hops.append(Hop(members[parent], members[place], 1.0, came[parent]))
    return hops
