"""What a solver is: five decisions and three pure functions on flat vectors.

A schedule says what happens inside one copy of a model, a solver what happens between copies, which
are called ranks: from "this rank has its gradient" to "it may take its next batch".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from ampsim.arguments import check_fields
from ampsim.errors import OptionError, UnknownNameError, one_of
from ampsim.model_parallel.schedules import (
    SCHEDULES,
    Admission,
    Order,
    Schedule,
    Sequential,
    Updates,
)
from ampsim.model_parallel.schedules.values import LATEST
from ampsim.options import require_count
from ampsim.shown import shown

Vector: TypeAlias = np.ndarray
"""The parameters of one node, or their gradient, flat."""

Step: TypeAlias = Callable[[Vector, Vector], Vector]
"""``step(gradient, theta)``: the model's optimizer with its state, where the solver applies it."""

Meets: TypeAlias = Literal["all", "server"]
Sends: TypeAlias = Literal["gradient", "weights"]
Waits: TypeAlias = Literal["all", "turn", "reply", "bound"]
Locks: TypeAlias = Literal["exchange", "update", "nothing"]

_VALUES: Final = ("admission", "order", "updates", "weights")  # of every schedule


@dataclass(frozen=True)
class Solver:
    """What all solvers have; `ampsim.data_parallel.solvers` has them.

    The decisions are values of the class, or properties that options decide:

    * `meets`: who exchanges: "all" ranks in a collective, or each with a "server";
    * `sends`: what goes out: a "gradient", or the "weights" of the rank;
    * `waits`: what holds up the next batch: "all" ranks, a "turn", a "reply", or, beside the reply,
      a "bound" on how far a rank may be ahead of the slowest;
    * `locks`: what a server excludes while a rank is served: other ranks from the whole "exchange",
      or from the "update" alone, or "nothing";
    * `period`: local steps from one exchange to the next.

    Args:
        ranks: copies of the model; None for as many as the workers have room for.
        inner: the schedule inside each copy. Where gradients are sent it must drain, for there is a
            gradient of a batch only then. One that does not, such as `Amp`, is let drain at each
            exchange; `period` then counts instances. Also a schedule's name, such as "amp", or with
            a colon and its `max_active_keys`, as "amp:8".
        workers_per_rank: workers that a copy is spread over.

    Raises:
        OptionError: an option has a value that it cannot have, or `inner` does not fit.
    """

    name: ClassVar[str]
    meets: ClassVar[Meets]
    sends: ClassVar[Sends]
    waits: ClassVar[Waits]
    locks: ClassVar[Locks] = "nothing"
    is_elastic: ClassVar[bool] = False
    """Whether a rank's step pulls it towards the centre."""
    overlaps: ClassVar[bool] = False
    """Whether a rank sends when it takes a batch, beside computing the gradient."""
    steps_first: ClassVar[bool] = False
    """Whether ranks meet after their own steps, instead of before."""
    reads_values: ClassVar[bool] = False
    """Whether who exchanges what, or when, depends on weights or gradients."""
    has_outer_step: ClassVar[bool] = False
    """Whether what a collective gave is stepped from by an optimizer of the centre."""

    ranks: int | None = None
    inner: Schedule | str = field(default=Sequential(), kw_only=True)
    workers_per_rank: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)
        if self.ranks is not None:
            require_count("ranks", self.ranks)
        require_count("workers_per_rank", self.workers_per_rank)
        self._require_inner()

    def _require_inner(self) -> None:
        if isinstance(self.inner, str):
            object.__setattr__(self, "inner", schedule_named(self.inner))
        inner: Any = self.inner
        is_schedule = not isinstance(inner, type | Solver)
        if not (is_schedule and all(hasattr(inner, value) for value in _VALUES)):
            raise OptionError(
                f"inner of {self.name} must be a schedule such as ampsim.Pipeline(), got "
                f"{shown(inner)}"
            )
        fault = None
        if not inner.admission.drains and self.sends == "gradient":
            fault = f"{inner.name} never drains, so no rank has a gradient of its whole batch"
        elif inner.order.holds_gradients:
            fault = (
                f"{inner.name} holds gradients until nothing else happens, but other ranks go on"
            )
        elif inner.order.turns is not None or inner.weights.versions is not None:
            fault = f"{inner.name} has turns for the instances of one copy, which others number too"
        if fault is not None:
            known = "Sequential()" if self.sends == "gradient" else "Sequential(), Amp()"
            raise OptionError(f"inner of {self.name}: {fault}; take {known} or Pipeline()")

    @property
    def inside(self) -> Schedule:
        """The schedule inside each copy."""
        assert not isinstance(self.inner, str), "a name has become what it names"
        return self.inner

    @property
    def admission(self) -> Admission:
        """As of a schedule: how many instances are in flight at most; None for all workers."""
        inside = self.inside.admission.in_flight_max or 1
        return Admission(None if self.ranks is None else self.ranks * inside, drains=True)

    @property
    def order(self) -> Order:
        """As of the schedule inside."""
        return self.inside.order

    @property
    def updates(self) -> Updates:
        """As of the schedule inside."""
        return self.inside.updates

    weights = LATEST

    @property
    def averaged_ranks(self) -> int | None:
        """Ranks whose mean gradient is one step; 1 where each rank's is a step of its own."""
        return self.ranks if self.meets == "all" and self.sends == "gradient" else 1

    @property
    def server_count(self) -> int:
        """Workers that are servers."""
        return 0

    @property
    def exchange_period(self) -> int:
        """Local steps from one exchange to the next."""
        return 1

    @property
    def deals_per_exchange(self) -> int:
        """Times that a rank takes batches from one exchange to the next."""
        return self.exchange_period if self.inside.admission.drains else 1

    @property
    def batches_per_deal(self) -> int:
        """Batches that a rank takes at once: all up to an exchange, where it never drains."""
        admission = self.inside.admission
        return (admission.in_flight_max or 1) if admission.drains else self.exchange_period

    @property
    def asks_first(self) -> bool:
        """Whether a rank asks a server for the centre, and sends a parcel made with the answer."""
        return False

    @property
    def bound(self) -> int | None:
        """How many batches a rank may be ahead of the slowest; None for any number."""
        return None

    @property
    def collective_name(self) -> str:
        """How ranks add up what they have, where they meet."""
        return "ring"

    @property
    def group_size(self) -> int | None:
        """Ranks in a group of a hierarchical collective."""
        return None

    @property
    def bytes_per_bucket(self) -> int | None:
        """How large a message of a collective is at least; None for one of all layers."""
        return None

    @property
    def overlaps_backward(self) -> bool:
        """Whether a collective begins while ranks still compute gradients of other layers."""
        return False

    @property
    def spare_ranks(self) -> int:
        """Ranks that a meeting does not wait for."""
        return 0

    def pull(self, ranks: int) -> float:
        """Alpha of elastic averaging, the moving rate."""
        return 0.0

    def ranks_on(self, workers: int) -> int:
        """How many ranks there are on so many workers.

        Raises:
            OptionError: there is no room for them.
        """
        servers, each = self.server_count, self.workers_per_rank
        if servers >= workers:
            raise OptionError(
                f"{self.name}: servers must leave workers for ranks, got servers={servers} on "
                f"{workers} worker{'s' * (workers != 1)}; take fewer servers or more workers"
            )
        ranks = (workers - servers) // each if self.ranks is None else self.ranks
        if not ranks or ranks * each + servers > workers:
            raise OptionError(
                f"{self.name}: ranks and servers must fit the cluster, got {max(ranks, 1)} x "
                f"{each} + {servers} on {workers} worker{'s' * (workers != 1)}; take fewer "
                "ranks or more workers"
            )
        return ranks

    def local(
        self, theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
    ) -> Vector:
        """A rank's own step.

        Args:
            theta: its weights.
            gradient: of its batch.
            centre: what it was told of the centre, or the parcel where it `asks_first`; None where
                it does not exchange.
            pull: alpha of elastic averaging.
            step: the optimizer.
        """
        return step(gradient, theta)

    def parcel(self, theta: Vector, reply: Vector, pull: float) -> Vector:
        """What a rank sends that `asks_first`, of its weights and the centre that it was told."""
        return theta

    def merge(self, centre: Vector, parcel: Vector, pull: float, step: Step) -> Vector:
        """The centre after a rank's parcel, or after the weighted mean of all ranks' parcels."""
        return step(parcel, centre)

    def merge_rate(self, rate: float, staleness: int) -> float:
        """The learning rate with which a server applies a gradient of this staleness."""
        return rate

    def adopt(self, theta: Vector, reply: Vector) -> Vector:
        """A rank's weights after the answer."""
        return reply


def schedule_named(text: str) -> Schedule:
    """The schedule of a name, or of a name, a colon and its `max_active_keys`.

    Raises:
        OptionError: it is neither, or the schedule has no such option.

    >>> schedule_named("amp:4")
    Amp(max_active_keys=4, min_update_interval=None, remedy='none', max_group=1, group_wait_s=0.0)
    """
    name, colon, count = text.partition(":")
    kind: Any = SCHEDULES.get(name.strip().casefold())
    if kind is None:
        raise UnknownNameError(one_of("inner schedule", name.strip(), SCHEDULES))
    if not colon:
        return kind()
    is_option = "max_active_keys" in {one.name for one in fields(kind)}
    if not (is_option and count.isascii() and count.isdigit()):
        raise OptionError(
            "inner must be a schedule's name, or such a name and its max_active_keys, as amp:8, "
            f"got {shown(text)}"
        )
    return kind(max_active_keys=int(count))


def name_of(schedule: Schedule) -> str:
    """The name by which `schedule_named` finds a schedule, as far as it says.

    >>> name_of(schedule_named("amp:4")), name_of(schedule_named("sequential"))
    ('amp:4', 'sequential')
    """
    count = getattr(schedule, "max_active_keys", None)
    return schedule.name if count is None else f"{schedule.name}:{count}"
