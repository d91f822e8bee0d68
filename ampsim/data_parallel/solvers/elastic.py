"""Elastic averaging: ranks step by themselves, and a spring holds them to a centre.

Source: S. Zhang, A. Choromanska and Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS
2015, as equations (2) and (3) of Wongpanich, You and Demmel (HPC Asia 2020), with alpha = eta rho:

    w_j <- w_j - eta g_j - alpha (w_j - w),    w <- w + alpha (w_j - w)

with w_j and w of before on both sides. A rank sends w_j, and the server takes the difference to its
own w of the moment. Or, as in Zhang's own code, the rank asks for w, takes the difference itself
and sends that, so that the centre gains exactly what the rank loses. Any optimizer may make the
step; with momentum it is "EA-MSGD".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from ampsim.data_parallel.decisions import Locks, Sends
from ampsim.data_parallel.solver import Solver, Step
from ampsim.data_parallel.solver_bases import CollectiveSolver, ParameterServerSolver
from ampsim.errors import OptionError
from ampsim.optim import Vector
from ampsim.options import Count
from ampsim.text import shown

MOVING_RATE = 0.9
"""P alpha unless told otherwise: Zhang, Choromanska and LeCun (2015), Section 5.1."""


Side: TypeAlias = Literal["server", "worker"]
"""Who may take the difference between a rank's weights and the centre's."""


def spring(theta: Vector, centre: Vector, pull: float) -> Vector:
    """Return the step by which a rank and the centre move towards each other."""
    return theta.dtype.type(pull) * (theta - centre)


@dataclass(frozen=True)
class Averaging(Solver):
    """The base of elastic solvers, whether ranks exchange with servers or with each other.

    Args:
        moving_rate: alpha; None for 0.9 / ranks.
        period: local steps from one exchange to the next.
    """

    sends: ClassVar[Sends] = "weights"
    is_elastic: ClassVar[bool] = True

    moving_rate: float | None = field(default=None, kw_only=True)
    period: Count = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.moving_rate
        if rate is not None and not 0 <= rate <= 1:
            raise OptionError(
                f"{self.name}: moving_rate must be a number from 0 to 1, got {shown(rate)}; try 0.1"
            )

    def pull(self, ranks: int) -> float:
        """Alpha, the moving rate."""
        return MOVING_RATE / ranks if self.moving_rate is None else self.moving_rate

    def local(
        self, theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
    ) -> Vector:
        """Equation (2); without `centre`, the step alone."""
        stepped = step(gradient, theta)
        if centre is not None and pull:
            stepped = stepped - spring(theta, centre, pull)
        return stepped

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """Equation (3); in a collective towards the mean of all ranks, and `pull` is P alpha."""
        if not pull:
            return centre
        return centre + centre.dtype.type(pull) * (pushed - centre)

    def adopt(self, theta: Vector, reply: Vector) -> Vector:
        """A rank keeps its own weights."""
        return theta


@dataclass(frozen=True)
class Elastic(Averaging, ParameterServerSolver):
    """The base of elastic solvers with servers.

    Args:
        elastic: who takes the difference: "server", or "worker".
    """

    elastic: Side = field(default="server", kw_only=True)

    def local(
        self, theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
    ) -> Vector:
        """Equation (2), or the step and the difference, of which `push` takes its part."""
        if self.elastic == "worker" and centre is not None:
            return step(gradient, theta) - centre
        return super().local(theta, gradient, centre, pull, step)

    def push(self, theta: Vector, reply: Vector, pull: float) -> Vector:
        """The spring: the rank loses it, and the centre gains it."""
        return spring(theta, reply, pull)

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """Follow equation (3), or add what the rank lost."""
        if self.elastic == "worker":
            return centre + pushed
        return super().merge(centre, pushed, pull, step)


@dataclass(frozen=True)
class EASGD(Elastic):
    """Round-robin, with a lock over the whole exchange, in the order of ranks.

    Source: Wongpanich, You and Demmel (HPC Asia 2020), Sections 2.3.2 and 3.1: a rank's exchange,
    its way to the server, the merge and the way back, starts only when that of the rank before it
    is over. A rank has its gradient before its turn, and steps when it has the centre's weights of
    before its merge.
    """

    name: ClassVar[str] = "easgd"
    locks: ClassVar[Locks] = "exchange"


@dataclass(frozen=True)
class AsyncEASGD(Elastic):
    """First come, first served; a merge excludes others, and the answer comes after it.

    Source: Y. You, A. Buluç and J. Demmel, "Scaling Deep Learning on GPU and Knights Landing
    clusters", SC'17: a rank sends its weights, the master returns the centre's, and the rank
    computes its gradient while it waits.
    """

    name: ClassVar[str] = "async-easgd"
    locks: ClassVar[Locks] = "update"
    overlaps: ClassVar[bool] = True


@dataclass(frozen=True)
class EAWild(Elastic):
    """Nobody waits for a merge, as nothing is locked.

    Source: Wongpanich, You and Demmel (HPC Asia 2020), Algorithm 1 and Section 3.1: the master
    sends its weights and takes the rank's at the start of an iteration, beside the gradient, and
    merges them without a lock. The answer leaves at once with the weights of that moment; merges of
    different ranks interleave node by node. Groups of Section 3.1, synchronous inside, are
    `inner=SyncSGD(ranks=4)`.
    """

    name: ClassVar[str] = "ea-wild"
    locks: ClassVar[Locks] = "nothing"
    overlaps: ClassVar[bool] = True


@dataclass(frozen=True)
class SyncEASGD(Averaging, CollectiveSolver):
    """All ranks exchange with the centre at once, in a collective, whatever the devices' speeds.

    Source: You, Buluç and Demmel (SC'17): w <- w + alpha sum of (w_j - w), and each rank steps as
    equation (2) says. Every rank has the centre, so that the sum of all ranks' weights is all that
    is sent.
    """

    name: ClassVar[str] = "sync-easgd"
