"""Stale synchronous parallel: asynchronous SGD in which no rank runs far ahead.

Source: Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NIPS 2013: a rank that is more than s batches ahead of the slowest waits. s = 0 is the bulk
synchronous step, of all ranks' gradients added, not averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks, Sends
from ampsim.data_parallel.solver import ParameterServerSolver, Sparsified
from ampsim.errors import OptionError
from ampsim.options import require_count


@dataclass(frozen=True)
class SSP(Sparsified, ParameterServerSolver):
    """The server holds the answer to a rank that is ahead.

    Args:
        staleness_bound: s, batches that a rank may be ahead of the slowest.
    """

    name: ClassVar[str] = "ssp"
    sends: ClassVar[Sends] = "gradient"
    locks: ClassVar[Locks] = "update"

    staleness_bound: int = field(default=2, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        if self.staleness_bound < 0:
            raise OptionError(
                f"ssp: staleness_bound must be a whole number >= 0, got {self.staleness_bound}; 0 "
                "lets no rank be ahead, and async-sgd has no bound"
            )
        if self.staleness_bound > 0:
            require_count("staleness_bound", self.staleness_bound)
