"""Elastic averaging: ranks step by themselves, and a spring holds them to a centre.

Source: S. Zhang, A. Choromanska and Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS
2015, as equations (2) and (3) of Wongpanich, You and Demmel (HPC Asia 2020), with alpha = eta rho:

    w_j <- w_j - eta g_j - alpha (w_j - w),    w <- w + alpha (w_j - w)

with w_j and w of before on both sides. Any optimizer may make the step; with momentum it is
"EA-MSGD".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.solver import Sends, Served, Step, Vector, require_moving_rate
from ampsim.options import require_count

MOVING_RATE = 0.9
"""P alpha unless told otherwise: Zhang, Choromanska and LeCun (2015), Section 5.1."""


def pulled(
    theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
) -> Vector:
    """A rank's step; without `centre`, the step alone."""
    stepped = step(gradient, theta)
    if centre is not None and pull:
        stepped = stepped - theta.dtype.type(pull) * (theta - centre)
    return stepped


def moved(centre: Vector, weights: Vector, pull: float) -> Vector:
    """The centre after a rank's weights."""
    if not pull:
        return centre
    return centre + centre.dtype.type(pull) * (weights - centre)


@dataclass(frozen=True)
class Elastic(Served):
    """What the elastic solvers with a server have in common.

    Args:
        moving_rate: alpha; None for 0.9 / ranks.
        period: local steps from one exchange to the next.
    """

    sends: ClassVar[Sends] = "weights"
    is_elastic: ClassVar[bool] = True

    moving_rate: float | None = field(default=None, kw_only=True)
    period: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        super().__post_init__()
        require_moving_rate(self.name, self.moving_rate)
        require_count("period", self.period)

    @property
    def exchange_period(self) -> int:
        """As chosen."""
        return self.period

    def pull(self, ranks: int) -> float:
        """As chosen."""
        return MOVING_RATE / ranks if self.moving_rate is None else self.moving_rate

    def local(
        self, theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
    ) -> Vector:
        """Equation (2)."""
        return pulled(theta, gradient, centre, pull, step)

    def merge(self, centre: Vector, parcel: Vector, pull: float, step: Step) -> Vector:
        """Equation (3)."""
        return moved(centre, parcel, pull)

    def adopt(self, theta: Vector, reply: Vector) -> Vector:
        """A rank keeps its own weights."""
        return theta
