"""Solvers whose ranks meet servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.solver import Meets, Solver, Waits
from ampsim.options import require_count


@dataclass(frozen=True)
class Served(Solver):
    """A solver whose ranks meet servers.

    Args:
        servers: workers that are servers, the last of the cluster. Each has a part of the
            parameters: whole nodes, about as many parameters as the others.
    """

    meets: ClassVar[Meets] = "server"
    waits: ClassVar[Waits] = "reply"

    servers: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        require_count("servers", self.servers)

    @property
    def server_count(self) -> int:
        """As chosen."""
        return self.servers
