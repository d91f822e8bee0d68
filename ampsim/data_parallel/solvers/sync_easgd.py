"""Synchronous EASGD: all ranks exchange with the centre at once, in a collective.

Source: Y. You, A. Buluç and J. Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters",
SC'17: w <- w + alpha sum of (w_j - w), and each rank steps as equation (2) says. Every rank has the
centre, so that the sum of all ranks' weights is all that is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ampsim.data_parallel.collected import Collected
from ampsim.data_parallel.solver import Sends, Step, Vector
from ampsim.data_parallel.solvers.elastic import MOVING_RATE, moved, pulled, require_moving_rate
from ampsim.options import require_count


@dataclass(frozen=True)
class SyncEASGD(Collected):
    """Deterministic, whatever the devices' speeds.

    Args:
        moving_rate: alpha; None for 0.9 / ranks.
        period: local steps from one exchange to the next.
    """

    name: ClassVar[str] = "sync-easgd"
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
        """Equation (2) of elastic averaging."""
        return pulled(theta, gradient, centre, pull, step)

    def merge(self, centre: Vector, parcel: Vector, pull: float, step: Step) -> Vector:
        """Move towards the mean of all ranks; `pull` is P alpha."""
        return moved(centre, parcel, pull)

    def adopt(self, theta: Vector, reply: Vector) -> Vector:
        """A rank keeps its own weights."""
        return theta
