"""Solvers whose ranks may send the largest entries of their gradients alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from ampsim.data_parallel.solver import Solver
from ampsim.errors import OptionError
from ampsim.shown import shown


@dataclass(frozen=True)
class Sparsified(Solver):
    """A solver of gradients that may be sent in part (`ampsim.data_parallel.top_k`).

    Where ranks meet, each gets the entries of all others by a ring all-gather and adds them up, as
    a sum of sparse vectors is not as sparse as they are. A server is sent entries, and answers with
    all weights.

    Args:
        compression: the share of each node's gradient that a rank sends, the entries of the largest
            magnitude; it adds the others to its next gradient. None to send all as it is, without
            indices.
    """

    compression: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
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

    @property
    def sent_share(self) -> float | None:
        """As chosen."""
        return self.compression

    def _fault_of_compression(self) -> str | None:
        """Why entries cannot be sent, and what to take; None if they can."""
        if self.sends != "gradient":
            return "compression is of gradients, but ranks send weights; take AsyncSGD or SyncSGD"
        if self.collective_name != "ring":
            return (
                "compression gathers the entries of all ranks along a ring, and does not go with "
                f"collective={self.collective_name!r}; take collective='ring'"
            )
        if self.overlaps_backward:
            return (
                "compression chooses entries when the backward pass is over, and does not go with "
                "overlap; leave overlap out"
            )
        if self.spare_ranks:
            return (
                "compression keeps back what a rank that is called off would lose, and does not go "
                "with backup_ranks; leave backup_ranks out"
            )
        if self.group is not None:
            return (
                "compression is of ranks that are one copy each, not of groups; give it to the "
                f"solver inside, as inner={type(self.group).__name__}(ranks=4, compression=0.01)"
            )
        return None
