"""EA-wild: elastic averaging in which nothing is locked.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Algorithm 1 and Section 3.1: the master sends
its weights and takes the rank's at the start of an iteration, beside the gradient, and merges them
without a lock. The answer leaves at once with the weights of that moment; merges of different ranks
interleave node by node. Groups of Section 3.1, synchronous inside, are `inner=SyncSGD(ranks=4)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.data_parallel.decisions import Locks
from ampsim.data_parallel.solvers.elastic import Elastic


@dataclass(frozen=True)
class EAWild(Elastic):
    """Nobody waits for a merge."""

    name: ClassVar[str] = "ea-wild"
    locks: ClassVar[Locks] = "nothing"
    overlaps: ClassVar[bool] = True
