"""Local SGD: ranks step by themselves, and take the mean of their weights every so often.

Source: S. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. A rank's weights
count as many times as the items that it has seen since the last mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.decisions import Sends
from ampsim.data_parallel.solver import Step
from ampsim.data_parallel.solver_bases import CollectiveSolver
from ampsim.optim import Optimizer, Vector, nesterov
from ampsim.optim.base import decay_rate, positive
from ampsim.options import Count


@dataclass(frozen=True)
class LocalSGD(CollectiveSolver):
    """The state of an optimizer stays with its rank.

    Args:
        period: H, local steps from one mean to the next.
    """

    name: ClassVar[str] = "local-sgd"
    sends: ClassVar[Sends] = "weights"
    steps_first: ClassVar[bool] = True

    period: Count = field(default=8, kw_only=True)

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """Take the mean itself."""
        return pushed


@dataclass(frozen=True)
class DiLoCo(LocalSGD):
    """Local SGD with an outer step, of a second optimizer along what ranks did together.

    Source: A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language
    Models", arXiv 2311.08105, Algorithm 1: after H inner steps, the outer gradient is the centre
    minus the mean of the ranks' weights, and the outer optimizer is SGD with Nesterov momentum, of
    rate 0.7 and momentum 0.9. The inner optimizer is the model's.

    Args:
        period: H, local steps from one outer step to the next.
        outer_rate: of the outer step; 1 without momentum is local SGD.
        outer_momentum: of the outer step, Nesterov's.
    """

    name: ClassVar[str] = "diloco"
    has_outer_step: ClassVar[bool] = True

    period: Count = field(default=50, kw_only=True)
    outer_rate: float = field(default=0.7, kw_only=True)
    outer_momentum: float = field(default=0.9, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(f"{self.name}: outer_rate", self.outer_rate, usual=0.7)
        decay_rate(f"{self.name}: outer_momentum", self.outer_momentum, usual=0.9)

    def outer(self) -> Optimizer:
        """Nesterov's momentum, which makes the outer step."""
        return nesterov(self.outer_rate, self.outer_momentum)

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """An outer step from the centre, along centre - mean."""
        return step(centre - pushed, centre)
