"""What a collective is: the messages by which ranks add up vectors, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


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


class Collective(Protocol):
    """An algorithm by which every rank gets the sum of all ranks' vectors.

    Every rank has the vector cut into `parts` equal parts, the last padded; a hop carries some of
    them. A collective begins when all of its ranks are there.
    """

    name: str

    def require_fit(self, ranks: int, group: int | None) -> None:
        """Check the number of ranks.

        Raises:
            OptionError: the algorithm does not know what to do with so many.
        """
        ...

    def parts(self, ranks: int, group: int | None) -> int:
        """In how many equal parts a vector is cut."""
        ...

    def hops(self, ranks: int, group: int | None) -> Sequence[Hop]:
        """All messages; one that comes after others comes later in the list."""
        ...

    def seconds(
        self, ranks: int, group: int | None, size_bytes: float, latency_s: float, rate: float
    ) -> float:
        """How long it takes where each pair of ranks has an idle link of its own, all alike.

        Args:
            ranks: how many.
            group: ranks in a group.
            size_bytes: of the vector with its padding.
            latency_s: of a link.
            rate: bytes per second of a link; infinite where they take no time.
        """
        ...
