"""Local SGD: ranks step by themselves, and take the mean of their weights every so often.

Source: S. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. A rank's weights
count as many times as the items that it has seen since the last mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Sends, Step, Vector
from ampsim.data_parallel.solver import CollectiveSolver
from ampsim.options import require_count


@dataclass(frozen=True)
class LocalSGD(CollectiveSolver):
    """The state of an optimizer stays with its rank.

    Args:
        period: H, local steps from one mean to the next.
    """

    name: ClassVar[str] = "local-sgd"
    sends: ClassVar[Sends] = "weights"
    steps_first: ClassVar[bool] = True

    period: int = field(default=8, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        require_count("period", self.period)

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """The mean itself."""
        return pushed
