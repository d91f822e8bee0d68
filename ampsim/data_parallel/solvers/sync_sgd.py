"""Synchronous SGD: ranks add up their gradients and all take the same step.

Source: Wongpanich, You and Demmel (HPC Asia 2020), Section 3.2: w <- w - eta / P sum of gradients
on every machine, by any optimizer. A rank's gradient counts as many times as it has items, so
that P ranks do what one does with their batches in one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.collected import Collected
from ampsim.data_parallel.solver import Sends


@dataclass(frozen=True)
class SyncSGD(Collected):
    """All ranks read the same weights; a batch of all is one step.

    Args:
        overlap: whether the collective of a bucket begins as soon as all ranks have its gradients,
            beside the backward pass; for models that are a chain of layers.
    """

    name: ClassVar[str] = "sync-sgd"
    sends: ClassVar[Sends] = "gradient"

    overlap: bool = field(default=False, kw_only=True)

    @property
    def overlaps_backward(self) -> bool:
        """As chosen."""
        return self.overlap
