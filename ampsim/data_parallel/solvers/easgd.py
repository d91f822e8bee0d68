"""EASGD in turn: one rank exchanges at a time, in the order of ranks.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Sections 2.3.2 and 3.1: a rank's exchange, its
way to the server, the merge and the way back, starts only when that of the rank before it is over.
A rank has its gradient before its turn, and steps when it has the centre's weights of before its
merge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks
from ampsim.data_parallel.solvers.elastic import Elastic


@dataclass(frozen=True)
class EASGD(Elastic):
    """Round-robin, with a lock over the whole exchange."""

    name: ClassVar[str] = "easgd"
    locks: ClassVar[Locks] = "exchange"
