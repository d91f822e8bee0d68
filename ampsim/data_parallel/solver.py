"""What a solver is: five decisions and three pure functions on flat vectors.

A schedule says what happens inside one copy of a model, a solver what happens between copies, which
are called ranks: from "this rank has its gradient" to "it may take its next batch".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np

from ampsim.arguments import check_fields
from ampsim.data_parallel.drawn_groups import FIXED, Levels, require_groups
from ampsim.data_parallel.inner_fit import Meets, Sends, fault_of_group, fault_of_schedule
from ampsim.data_parallel.inner_names import inner_named, make_known
from ampsim.data_parallel.room import ranks_on
from ampsim.errors import OptionError
from ampsim.model_parallel.schedules import Admission, Order, Schedule, Sequential, Updates
from ampsim.model_parallel.schedules.values import LATEST
from ampsim.options import require_count
from ampsim.shown import shown

Vector: TypeAlias = np.ndarray
"""The parameters of one node, or their gradient, flat."""

Step: TypeAlias = Callable[[Vector, Vector], Vector]
"""``step(gradient, theta)``: the model's optimizer with its state, where the solver applies it."""

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
        ranks: copies of the model, or groups of copies; None for as many as the workers have room
            for.
        inner: the schedule inside each copy. Where gradients are sent it must drain, for there is a
            gradient of a batch only then. One that does not, such as `Amp`, is let drain at each
            exchange; `period` then counts instances. Or a solver, with its `ranks`: each rank is
            then a group of so many, which acts as one whenever they have met, and `period` counts
            these meetings. Also a name, such as "amp", or with a colon and a schedule's
            `max_active_keys` or a solver's `ranks`, as "amp:8" or "sync-sgd:4/amp:8".
        workers_per_rank: workers that a copy is spread over; where ranks are groups, each copy in
            them.
        groups: which copies make a group, where ranks are groups: "fixed", those on workers beside
            each other, or "random", drawn once from the run's seed.

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
    inner: Schedule | Solver | str = field(default=Sequential(), kw_only=True)
    workers_per_rank: int = field(default=1, kw_only=True)
    groups: str = field(default=FIXED, kw_only=True)

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)
        if self.ranks is not None:
            require_count("ranks", self.ranks)
        require_count("workers_per_rank", self.workers_per_rank)
        self._require_inner()
        require_groups(self.name, self.groups, self.inside.name if self.group is None else None)

    def __init_subclass__(cls, **options: Any) -> None:
        """Let it be named as what is inside another."""
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            make_known(cls)

    def _require_inner(self) -> None:
        if isinstance(self.inner, str):
            object.__setattr__(self, "inner", inner_named(self.inner))
        inner: Any = self.inner
        is_part = not isinstance(inner, type)
        if not (is_part and all(hasattr(inner, value) for value in _VALUES)):
            raise OptionError(
                f"inner of {self.name} must be a schedule such as ampsim.Pipeline(), or a solver "
                f"such as ampsim.SyncSGD(ranks=4), got {shown(inner)}"
            )
        is_group = isinstance(inner, Solver)
        fault = fault_of_group(self, inner) if is_group else fault_of_schedule(self, inner)
        if fault is not None:
            raise OptionError(f"inner of {self.name}: {fault}")
        if is_group and inner.workers_per_rank != self.workers_per_rank:
            each = max(self.workers_per_rank, inner.workers_per_rank)
            object.__setattr__(self, "workers_per_rank", each)
            object.__setattr__(self, "inner", replace(inner, workers_per_rank=each))

    @property
    def inside(self) -> Schedule:
        """The schedule inside each copy."""
        inner = self.inner
        assert not isinstance(inner, str), "a name has become what it names"
        return inner.inside if isinstance(inner, Solver) else inner

    @property
    def group(self) -> Solver | None:
        """The solver inside each rank, where a rank is a group; None where it is one copy."""
        return self.inner if isinstance(self.inner, Solver) else None

    @property
    def copies_per_rank(self) -> int:
        """Copies of the model in each rank."""
        group = self.group
        return 1 if group is None else (group.ranks or 1) * group.copies_per_rank

    @property
    def levels(self) -> Levels:
        """As of `blocks_of`, where ranks are counted."""
        group = self.group
        return [] if group is None else [(self.ranks or 1, self.groups), *group.levels]

    @property
    def copies(self) -> int | None:
        """Copies of the model in all ranks; None for as many as the workers have room for."""
        return None if self.ranks is None else self.ranks * self.copies_per_rank

    @property
    def steps_inside(self) -> bool:
        """Whether ranks step before anything is asked of them, and have no gradient to show."""
        group = self.group
        return not self.inside.admission.drains if group is None else group.sends == "weights"

    @property
    def admission(self) -> Admission:
        """As of a schedule: how many instances are in flight at most; None for all workers."""
        inside = self.copies_per_rank * (self.inside.admission.in_flight_max or 1)
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
        """Copies whose mean gradient is one step; 1 where each one's is a step of its own."""
        inside = 1 if self.group is None else self.group.averaged_ranks
        own = self.ranks if self.meets == "all" and self.sends == "gradient" else 1
        return None if own is None or inside is None else own * inside

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
        is_dealt_at_once = self.group is None and self.steps_inside
        return 1 if is_dealt_at_once else self.exchange_period

    @property
    def batches_per_deal(self) -> int:
        """Batches that a rank takes at once: all up to an exchange, where it never drains.

        Of a group, all up to the meeting of its ranks.
        """
        if self.group is not None:
            of_each = self.group.batches_per_deal * self.group.deals_per_exchange
            return (self.group.ranks or 1) * of_each
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
    def sent_share(self) -> float | None:
        """The share of each gradient's entries that is sent; None where all are, as they are."""
        return None

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
        return ranks_on(
            workers, self.server_count, self.ranks, copies=self.copies_per_rank,
            each=self.workers_per_rank, name=self.name,
        )  # fmt: skip

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
