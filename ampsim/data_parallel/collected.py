"""Solvers whose ranks meet in a collective."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.collectives import COLLECTIVES
from ampsim.data_parallel.solver import Meets, Solver, Waits
from ampsim.errors import OptionError, one_of
from ampsim.options import require_count


@dataclass(frozen=True)
class Collected(Solver):
    """A solver whose ranks meet in a collective.

    Args:
        collective: "ring", "tree", "halving-doubling", "hierarchical" or "star".
        ranks_per_group: ranks in a group of a hierarchical collective.
        bucket_bytes: layers share a message, from the last layer on, until it has so many bytes; 0
            for a message of each layer, None for one of all.
    """

    meets: ClassVar[Meets] = "all"
    waits: ClassVar[Waits] = "all"

    collective: str = field(default="ring", kw_only=True)
    ranks_per_group: int | None = field(default=None, kw_only=True)
    bucket_bytes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        if self.collective not in COLLECTIVES:
            raise OptionError(one_of("collective", self.collective, COLLECTIVES))
        if self.ranks_per_group is not None:
            require_count("ranks_per_group", self.ranks_per_group)
        if self.bucket_bytes:
            require_count("bucket_bytes", self.bucket_bytes)
        is_grouped = self.collective == "hierarchical"
        if is_grouped != (self.ranks_per_group is not None):
            said = "needs ranks_per_group, such as 4" if is_grouped else "has no groups"
            raise OptionError(
                f"collective {self.collective!r} {said}, got ranks_per_group="
                f"{self.ranks_per_group}; ranks_per_group goes with collective='hierarchical'"
            )
        if self.ranks is not None:
            COLLECTIVES[self.collective].require_fit(self.ranks, self.ranks_per_group)

    @property
    def collective_name(self) -> str:
        """As chosen."""
        return self.collective

    @property
    def bytes_per_bucket(self) -> int | None:
        """As chosen."""
        return self.bucket_bytes

    @property
    def group_size(self) -> int | None:
        """As chosen."""
        return self.ranks_per_group

    def ranks_on(self, workers: int) -> int:
        """As of `Solver`; and the collective must fit the ranks."""
        ranks = super().ranks_on(workers)
        COLLECTIVES[self.collective].require_fit(ranks, self.ranks_per_group)
        return ranks
