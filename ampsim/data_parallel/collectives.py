"""Collectives: the messages by which all ranks get the sum of what they have, and their time.

An algorithm is a class, with its source; `COLLECTIVES` lists those that a user may choose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from ampsim.errors import OptionError


class Hop(NamedTuple):
    """One message of a collective.

    Args:
        source, target: ranks.
        parts: how much of the vector it has.
        after: places, in the list of all hops, of those that must have arrived at `source` before.
    """

    source: int
    target: int
    parts: float
    after: tuple[int, ...]


class Collective(ABC):
    """An algorithm by which every rank gets the sum of all ranks' vectors.

    Every rank has the vector cut into `parts` equal parts, the last padded; a hop carries some of
    them. A collective begins when all of its ranks are there.
    """

    name: ClassVar[str]

    def require_fit(self, ranks: int, group: int | None) -> None:  # noqa: B027  # any number fits
        """Check the number of ranks; any fits, unless the algorithm says otherwise.

        Raises:
            OptionError: the algorithm does not know what to do with so many.
        """

    def parts(self, ranks: int, group: int | None) -> int:
        """Count of equal parts that a vector is cut into."""
        return 1

    def turns_down(self, ranks: int, group: int | None) -> list[int]:
        """For each rank, the messages of a whole vector that bring it the result, one by one.

        They come last; whom fewer bring it goes on sooner.
        """
        return [0] * ranks

    @abstractmethod
    def hops(self, ranks: int, group: int | None) -> Sequence[Hop]:
        """The messages; one that comes after others comes later in the list."""

    def parts_on(self, ranks: int, group: int | None) -> Mapping[tuple[int, int], float]:
        """Add up the parts that go from one rank to another, for each pair with some."""
        found = defaultdict[tuple[int, int], float](float)
        for hop in self.hops(ranks, group):
            found[hop.source, hop.target] += hop.parts
        return found

    @abstractmethod
    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """The time it takes where each pair of ranks has an idle link of its own, all alike.

        Args:
            ranks: how many.
            group: ranks in a group.
            size_bytes: of the vector with its padding.
            latency_s: of a link.
            rate: bytes per second of a link; infinite where they take no time.
        """


class Ring(Collective):
    """Each part goes round once to be added up, and once more to be known to all.

    Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
    workstations", JPDC 69 (2009): 2 (P - 1) (a + n / (P B)) seconds.
    """

    name = "ring"

    def parts(self, ranks: int, group: int | None) -> int:
        """Cut a part for each rank."""
        return ranks

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """In turn s rank r sends on what came to it in turn s - 1."""
        return ring_of(list(range(ranks)), 2 * (ranks - 1), 0, [()] * ranks)

    def parts_on(self, ranks: int, group: int | None) -> Mapping[tuple[int, int], float]:
        """One a turn, from each rank to the next."""
        return {(rank, (rank + 1) % ranks): 2.0 * (ranks - 1) for rank in range(ranks)}

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """2 (P - 1) turns of a part each."""
        return 2 * (ranks - 1) * (latency_s + size_bytes / ranks / rate)


class BinomialTree(Collective):
    """Sums go up a binomial tree to rank 0, and the result comes down.

    Rank r's parent is r without its lowest 1 bit, so that no rank is farther from rank 0 than the
    most 1 bits of any rank: ⌊log₂ P⌋, and log₂ P where that is whole (R. Rabenseifner,
    "Optimization of collective reduction operations", ICCS 2004: 2 log₂ P (a + n / B)). Links are
    of each pair, so that a parent takes from several children at once unless ports forbid it.
    """

    name = "tree"

    def turns_down(self, ranks: int, group: int | None) -> list[int]:
        """One for each 1 bit of a rank."""
        return [rank.bit_count() for rank in range(ranks)]

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Send sums up the tree, then the result down."""
        up, arrived = reduced(list(range(ranks)), 0)
        return up + spread(list(range(ranks)), len(up), arrived)

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """The depth of the tree, twice."""
        return 2 * depth(ranks) * (latency_s + size_bytes / rate)


class HalvingDoubling(Collective):
    """Recursive halving, then doubling: partners exchange halves of halves.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19 (2005): 2 a log₂ P + 2 (P - 1) / P n / B, for powers of two.
    """

    name = "halving-doubling"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """A power of two."""
        if ranks & (ranks - 1):
            raise OptionError(
                "collective 'halving-doubling' needs a power of two of ranks, got "
                f"{ranks}; take {1 << ranks.bit_length() - 1} ranks, or collective='ring'"
            )

    def parts(self, ranks: int, group: int | None) -> int:
        """Cut a part for each rank."""
        return ranks

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Each turn, every rank sends to its partner of that turn."""
        distances = [1 << turn for turn in range(ranks.bit_length() - 1)]
        halving = [(one, ranks / 2 / one) for one in distances]
        hops: list[Hop] = []
        came: list[tuple[int, ...]] = [()] * ranks
        for distance, parts in [*halving, *reversed(halving)]:
            first = len(hops)
            hops += [Hop(rank, rank ^ distance, parts, came[rank]) for rank in range(ranks)]
            came = [(*came[rank], first + (rank ^ distance)) for rank in range(ranks)]
        return hops

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """Twice log₂ P turns, and twice the vector but for a part."""
        turns = ranks.bit_length() - 1
        return 2 * turns * latency_s + 2 * (ranks - 1) / ranks * size_bytes / rate


class Hierarchical(Collective):
    """Sums within groups, a ring of the groups' first ranks, and out to the groups.

    Source: A. Wongpanich, Y. You and J. Demmel, "Rethinking the Value of Asynchronous Solvers for
    Distributed Deep Learning", HPC Asia 2020, Section 3.2, with groups of 4, 8 or 16. The paper has
    no formula; within groups this is a tree, between them a ring.
    """

    name = "hierarchical"

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Groups of equal size."""
        assert group is not None
        if ranks % group:
            raise OptionError(
                f"ranks_per_group must divide the ranks, got {group} of {ranks}; take a divisor "
                f"of {ranks}"
            )

    def parts(self, ranks: int, group: int | None) -> int:
        """Cut a part for each group."""
        assert group is not None
        return ranks // group

    def turns_down(self, ranks: int, group: int | None) -> list[int]:
        """Count turns as in a tree, within each group."""
        assert group is not None
        return [(rank % group).bit_count() for rank in range(ranks)]

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Send up in each group, round the first ranks, and down."""
        assert group is not None
        groups = [list(range(first, first + group)) for first in range(0, ranks, group)]
        hops: list[Hop] = []
        ready: list[tuple[int, ...]] = []
        for members in groups:
            up, arrived = reduced(members, len(hops))
            hops += [hop._replace(parts=float(len(groups))) for hop in up]
            ready.append(arrived)
        firsts = [members[0] for members in groups]
        around = ring_of(firsts, 2 * (len(groups) - 1), len(hops), ready)
        last = len(hops) + len(around) - len(groups)
        hops += around
        for place, members in enumerate(groups):
            came = (last + (place - 1) % len(groups),) if around else ready[place]
            down = spread(members, len(hops), came)
            hops += [hop._replace(parts=float(len(groups))) for hop in down]
        return hops

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """Trees of G ranks, twice, and a ring of P / G."""
        assert group is not None
        groups = ranks // group
        around_s = 2 * (groups - 1) * (latency_s + size_bytes / groups / rate)
        return 2 * depth(group) * (latency_s + size_bytes / rate) + around_s


class Star(Collective):
    """Every rank sends its vector to rank 0, which sends the sum to all.

    Where each pair has a link of its own that is 2 (a + n / B). Where rank 0 has a port, its
    bandwidth is shared by all, which only the messages themselves tell.
    """

    name = "star"

    def turns_down(self, ranks: int, group: int | None) -> list[int]:
        """Count a turn for each rank but 0, which adds up."""
        return [min(rank, 1) for rank in range(ranks)]

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Send all vectors in, then the sum out."""
        after = tuple(range(ranks - 1))
        inwards = [Hop(rank, 0, 1.0, ()) for rank in range(1, ranks)]
        return inwards + [Hop(0, rank, 1.0, after) for rank in range(1, ranks)]

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """Take one way in and one out; one rank sends nothing."""
        return 2 * (latency_s + size_bytes / rate) if ranks > 1 else 0.0


COLLECTIVES: Final[dict[str, Collective]] = {
    one.name: one for one in (Ring(), BinomialTree(), HalvingDoubling(), Hierarchical(), Star())
}
"""Every collective that a user may choose, under its name."""


class AllGather(Collective):
    """Vectors go round a ring until all ranks have all of them; ranks add them up themselves.

    Source: R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19 (2005), Section 4.1, ring algorithm: (P - 1) (a + n / B), with n
    bytes of each rank.
    """

    name = "all-gather"

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """In turn s rank r sends on what came to it in turn s - 1."""
        return ring_of(list(range(ranks)), ranks - 1, 0, [()] * ranks)

    def parts_on(self, ranks: int, group: int | None) -> Mapping[tuple[int, int], float]:
        """One a turn, from each rank to the next."""
        return {(rank, (rank + 1) % ranks): ranks - 1.0 for rank in range(ranks)}

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """P - 1 turns of what one rank has."""
        return (ranks - 1) * (latency_s + size_bytes / rate)


class Broadcast(Collective):
    """The vector of rank 0 goes to all ranks, down a binomial tree: floor(log2 P) (a + n / B)."""

    name = "broadcast"

    def turns_down(self, ranks: int, group: int | None) -> list[int]:
        """Count turns as in a tree."""
        return [rank.bit_count() for rank in range(ranks)]

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Send down the tree."""
        return spread(list(range(ranks)), 0, ())

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """The depth of the tree."""
        return depth(ranks) * (latency_s + size_bytes / rate)


ALL_GATHER: Final = AllGather()
BROADCAST: Final = Broadcast()


def ring_of(
    members: Sequence[int], turns: int, first: int, ready: Sequence[tuple[int, ...]]
) -> list[Hop]:
    """Hops of one part each around a ring of these ranks.

    Args:
        members: the ranks, each the neighbour of the one before it.
        turns: how often each of them sends.
        first: the place of its first hop in the list of all.
        ready: for each member, what must have arrived before it sends.
    """
    count = len(members)
    hops: list[Hop] = []
    for turn in range(turns):
        for place, rank in enumerate(members):
            before = first + (turn - 1) * count + (place - 1) % count
            after = (before, *ready[place]) if turn else ready[place]
            hops.append(Hop(rank, members[(place + 1) % count], 1.0, after))
    return hops


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
