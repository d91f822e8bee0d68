"""Bases of solvers by how ranks exchange: with servers, in a collective, by a part of gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.collectives import COLLECTIVES
from ampsim.data_parallel.decisions import Meets
from ampsim.data_parallel.solver import Solver
from ampsim.errors import OptionError, one_of
from ampsim.options import Count, require_count
from ampsim.text import shown


@dataclass(frozen=True)
class ParameterServerSolver(Solver):
    """A solver whose ranks exchange with servers.

    Args:
        servers: workers that are servers, the last of the cluster. Each has a part of the
            parameters: whole nodes, about as many parameters as the others.
    """

    meets: ClassVar[Meets] = "server"

    servers: Count = field(default=1, kw_only=True)


@dataclass(frozen=True)
class Sparsified(Solver):
    """A solver of gradients that may be sent in part (`ampsim.data_parallel.top_k`).

    In a collective, each rank gets the entries of all others by a ring all-gather and adds them up,
    as a sum of sparse vectors is not as sparse as they are. A server is sent entries, and answers
    with all weights.

    Args:
        compression: the share of each node's gradient that a rank sends, the entries of the largest
            magnitude; it adds the others to its next gradient. None to send all as it is, without
            indices.
    """

    compression: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        share = self.compression
        if share is None:
            return
        if not 0 < share <= 1:
            raise OptionError(
                f"{self.name}: compression must be a number > 0 and <= 1, the share of entries "
                f"that is sent, got {shown(share)}; try 0.01"
            )
        fault = self._fault_of_compression()
        if fault is not None:
            raise OptionError(f"{self.name}: {fault}, or leave compression out")

    def _fault_of_compression(self) -> str | None:
        """Say why entries cannot be sent, and what to take; None if they can."""
        decisions = self.decisions
        if decisions.sends != "gradient":
            return "compression is of gradients, but ranks send weights; take AsyncSGD or SyncSGD"
        if decisions.collective != "ring":
            return (
                "compression gathers the entries of all ranks along a ring, and does not go with "
                f"collective={decisions.collective!r}; take collective='ring'"
            )
        if decisions.overlap:
            return (
                "compression chooses entries when the backward pass is over, and does not go with "
                "overlap; leave overlap out"
            )
        if decisions.backup_ranks:
            return (
                "compression keeps back what a rank that is cancelled would lose, and does not go "
                "with backup_ranks; leave backup_ranks out"
            )
        if self.group is not None:
            return (
                "compression is of ranks that are one copy each, not of groups; give it to the "
                f"solver inside, as inner={type(self.group).__name__}(ranks=4, compression=0.01)"
            )
        return None


@dataclass(frozen=True)
class CollectiveSolver(Solver):
    """A solver whose ranks exchange in a collective.

    Args:
        collective: "ring", "tree", "halving-doubling", "hierarchical" or "star".
        ranks_per_group: ranks in a group of a hierarchical collective.
        bucket_bytes: layers share a message, from the last layer on, until it has so many bytes; 0
            for a message of each layer, None for one of all.
    """

    meets: ClassVar[Meets] = "all"

    collective: str = field(default="ring", kw_only=True)
    ranks_per_group: Count | None = field(default=None, kw_only=True)
    bucket_bytes: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.collective not in COLLECTIVES:
            raise OptionError(one_of("collective", self.collective, COLLECTIVES))
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

    def ranks_on(self, workers: int) -> int:
        """Count the ranks on so many workers; the collective must fit them."""
        ranks = super().ranks_on(workers)
        COLLECTIVES[self.collective].require_fit(ranks, self.ranks_per_group)
        return ranks


Served = ParameterServerSolver
"""The former name, for one release."""

Collected = CollectiveSolver
"""The former name, for one release."""
