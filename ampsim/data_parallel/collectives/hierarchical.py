"""Hierarchical: sums within groups, a ring of the groups' first ranks, and out to the groups.

Source: A. Wongpanich, Y. You and J. Demmel, "Rethinking the Value of Asynchronous Solvers for
Distributed Deep Learning", HPC Asia 2020, Section 3.2, with groups of 4, 8 or 16. The paper has no
formula; within groups this is a tree, between them a ring.
"""

from __future__ import annotations

from ampsim.data_parallel.collectives.base import Hop
from ampsim.data_parallel.collectives.ring import ring_of
from ampsim.data_parallel.collectives.tree import depth, reduced, spread
from ampsim.errors import OptionError


class Hierarchical:
    """Trees of G ranks below a ring of P / G."""

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
        """One for each group."""
        assert group is not None
        return ranks // group

    def hops(self, ranks: int, group: int | None) -> list[Hop]:
        """Up in each group, round, and down."""
        assert group is not None
        groups = [list(range(first, first + group)) for first in range(0, ranks, group)]
        hops: list[Hop] = []
        ready: list[tuple[int, ...]] = []
        for members in groups:
            up, arrived = reduced(members, len(hops))
            hops += [hop._replace(parts=float(len(groups))) for hop in up]
            ready.append(arrived)
        around = ring_of([members[0] for members in groups], 1.0, len(hops), ready)
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
