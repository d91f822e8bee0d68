"""Solvers: what they decide, by an exchange of all ranks or with a server.

A schedule says what happens inside one copy of a model, a solver what happens between copies, which
are called ranks: from "this rank has its gradient" to "it may take its next batch".
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from ampsim.arguments import check_fields
from ampsim.data_parallel.decisions import DECISIONS, Decisions, Locks, Meets, Sends
from ampsim.data_parallel.inside import FIXED, Levels, inner_named, make_known
from ampsim.errors import OptionError
from ampsim.model_parallel.schedules import Admission, Order, Schedule, Sequential, Updates
from ampsim.model_parallel.schedules.values import LATEST
from ampsim.optim import Optimizer, Vector, sgd
from ampsim.options import Count
from ampsim.text import shown

Step: TypeAlias = Callable[[Vector, Vector], Vector]
"""``step(gradient, theta)``: the model's optimizer with its state, where the solver applies it."""

_VALUES: Final = ("admission", "order", "updates", "weights")  # of every schedule

_FORMER: Final = {"exchange_period": "period", "bound": "staleness_bound"}
"""Decisions by the names that they had in version 0.1; the next one ends them."""


@dataclass(frozen=True)
class Solver:
    """The base of all solvers; `ampsim.data_parallel.solvers` has those that are shipped.

    A solver is a record of `decisions` and up to three functions: `local`, `merge` and `adopt`.
    What it decides is a value of the class, an option or a property that bears the decision's name.

    Args:
        ranks: copies of the model, or groups of copies; None for as many as the workers have room
            for.
        inner: the schedule inside each copy. Where gradients are sent it must drain, for there is a
            gradient of a batch only then. One that does not, such as `Amp`, is let drain at each
            exchange; `period` then counts instances. Or a solver, with its `ranks`: each rank is
            then a group of so many, which acts as one whenever they have reduced, and `period`
            counts these rounds. Also a name, such as "amp", or with a colon and a schedule's
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
    locks: ClassVar[Locks] = "nothing"
    is_elastic: ClassVar[bool] = False
    overlaps: ClassVar[bool] = False
    steps_first: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False

    ranks: Count | None = None
    inner: Schedule | Solver | str = field(default=Sequential(), kw_only=True)
    workers_per_rank: Count = field(default=1, kw_only=True)
    groups: Literal["fixed", "random"] = field(default=FIXED, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        self._require_inner()
        self._require_groups()

    def __init_subclass__(cls, **options: Any) -> None:
        """Let it be named as what is inside another, and take decisions by their former names."""
        super().__init_subclass__(**options)
        for former, name in _FORMER.items():
            if former in vars(cls) and name not in vars(cls):
                told = f"{cls.__name__}.{former} is called {name} now; the former name goes soon"
                warnings.warn(told, DeprecationWarning, stacklevel=2)
                setattr(cls, name, vars(cls)[former])
        if "name" in vars(cls):
            make_known(cls)

    @property
    def decisions(self) -> Decisions:
        """The decisions between ranks, as the engine reads them."""
        return Decisions(**{one: getattr(self, one) for one in DECISIONS if hasattr(self, one)})

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
        fault = _fault_of_group(self, inner) if is_group else _fault_of_schedule(self, inner)
        if fault is not None:
            raise OptionError(f"inner of {self.name}: {fault}")
        if is_group and inner.workers_per_rank != self.workers_per_rank:
            each = max(self.workers_per_rank, inner.workers_per_rank)
            object.__setattr__(self, "workers_per_rank", each)
            object.__setattr__(self, "inner", replace(inner, workers_per_rank=each))

    def _require_groups(self) -> None:
        if self.groups != FIXED and self.group is None:
            raise OptionError(
                f"{self.name}: groups={shown(self.groups)} needs ranks that are groups, got "
                f"{self.inside.name} inside each; take inner='sync-sgd:4'"
            )

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
        """The ranks of all solvers whose ranks are groups, as `blocks_of` takes them."""
        group = self.group
        return [] if group is None else [(self.ranks or 1, self.groups), *group.levels]

    @property
    def draws_groups(self) -> bool:
        """True where a run's seed decides which copies make a group."""
        return any(how != FIXED for _ranks, how in self.levels)

    @property
    def copies(self) -> int | None:
        """Copies of the model in all ranks; None for as many as the workers have room for."""
        return None if self.ranks is None else self.ranks * self.copies_per_rank

    @property
    def steps_inside(self) -> bool:
        """True where ranks step before they are asked, and have no gradient to send."""
        group = self.group
        return not self.inside.admission.drains if group is None else group.sends == "weights"

    @property
    def admission(self) -> Admission:
        """The most instances in flight; None for as many as all workers take."""
        inside = self.copies_per_rank * (self.inside.admission.in_flight_max or 1)
        return Admission(None if self.ranks is None else self.ranks * inside, drains=True)

    @property
    def order(self) -> Order:
        """The order in which the schedule inside each copy serves messages."""
        return self.inside.order

    @property
    def updates(self) -> Updates:
        """When the schedule inside each copy updates."""
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
        return self.decisions.servers

    @property
    def assignments_per_exchange(self) -> int:
        """Times that a rank takes batches from one exchange to the next."""
        takes_all_at_once = self.group is None and self.steps_inside
        return 1 if takes_all_at_once else self.decisions.period

    @property
    def batches_per_assignment(self) -> int:
        """Batches that a rank takes at once: all up to an exchange, where it never drains.

        Of a group, all up to the all-reduce of its ranks.
        """
        if self.group is not None:
            of_each = self.group.batches_per_assignment * self.group.assignments_per_exchange
            return (self.group.ranks or 1) * of_each
        admission = self.inside.admission
        return (admission.in_flight_max or 1) if admission.drains else self.decisions.period

    def pull(self, ranks: int) -> float:
        """Alpha of elastic averaging, the moving rate."""
        return 0.0

    def optimizer(self, own: Optimizer) -> Optimizer:
        """The optimizer that steps by gradients: the model's `own`, unless the solver has another.

        Raises:
            OptionError: the solver's does not go with the model's.
        """
        return own

    def outer(self) -> Optimizer:
        """The optimizer of the centre's own steps, where the solver has an outer step."""
        return sgd(1.0)

    def ranks_on(self, workers: int) -> int:
        """Count the ranks on so many workers: `ranks`, or as many as there is room for.

        Raises:
            OptionError: there is no room for them beside the servers.
        """
        servers, copies, each = self.server_count, self.copies_per_rank, self.workers_per_rank
        of_rank, name, plural = each * copies, self.name, "s" * (workers != 1)
        if servers >= workers:
            raise OptionError(
                f"{name}: servers must leave workers for ranks, got servers={servers} on "
                f"{workers} worker{plural}; take fewer servers or more workers"
            )
        found = (workers - servers) // of_rank if self.ranks is None else self.ranks
        in_group = "" if copies == 1 else f"{copies} x "
        if not found or found * of_rank + servers > workers:
            raise OptionError(
                f"{name}: ranks and servers must fit the cluster, got {max(found, 1)} x "
                f"{in_group}{each} + {servers} on {workers} worker{plural}; "
                "take fewer ranks or more workers"
            )
        rest = workers - servers - found * of_rank
        if rest and self.ranks is None and in_group:
            raise OptionError(
                f"{name}: groups of {of_rank} workers must divide those of all ranks, got "
                f"{workers - servers}; take {workers - rest} or {workers - rest + of_rank} "
                f"workers, or say ranks={found}"
            )
        return found

    def local(
        self, theta: Vector, gradient: Vector, centre: Vector | None, pull: float, step: Step
    ) -> Vector:
        """A rank's own step.

        Args:
            theta: its weights; where it has stepped inside since it sent them, those that it sent.
            gradient: of its batch.
            centre: what it was told of the centre, or what it pushed where the worker takes the
                difference; None where it does not exchange.
            pull: alpha of elastic averaging.
            step: the optimizer.
        """
        return step(gradient, theta)

    def push(self, theta: Vector, reply: Vector, pull: float) -> Vector:
        """The vector that a rank sends when it has the answer to its question for the centre."""
        return theta

    def merge(self, centre: Vector, pushed: Vector, pull: float, step: Step) -> Vector:
        """The centre after what a rank pushed, or after the weighted mean of all ranks' vectors."""
        return step(pushed, centre)

    def merge_rate(self, rate: float, staleness: int) -> float:
        """The learning rate with which a server applies a gradient of this staleness."""
        return rate

    def adopt(self, theta: Vector, reply: Vector) -> Vector:
        """A rank's weights after the answer."""
        return reply


def _fault_of_schedule(solver: Solver, inner: Schedule) -> str | None:
    """Say why a schedule cannot be inside each copy, and what can; None if it can."""
    fault, is_of_gradients = None, solver.decisions.sends == "gradient"
    if hasattr(inner, "running"):  # which schedules of programs have
        fault = f"{inner.name} runs a program, and copies of a model are graphs of messages"
    elif not inner.admission.drains and is_of_gradients:
        fault = f"{inner.name} never drains, so no rank has a gradient of its whole batch"
    elif inner.order.holds_gradients:
        fault = f"{inner.name} holds gradients until nothing else happens, but other ranks go on"
    elif inner.order.turns is not None or inner.weights.versions is not None:
        fault = f"{inner.name} has turns for the instances of one copy, which others number too"
    known = "Sequential()" if is_of_gradients else "Sequential(), Amp()"
    return None if fault is None else f"{fault}; take {known} or Pipeline()"


def _fault_of_group(solver: Solver, inner: Solver) -> str | None:
    """Say why a solver cannot be inside each rank, and what can; None if it can.

    A group acts as one rank, which it can where its own ranks agree: they hold the same weights
    whenever they have reduced.
    """
    around, inside = solver.decisions, inner.decisions
    is_of_gradients = around.sends == "gradient"
    known = "SyncSGD(ranks=4)"
    if not is_of_gradients:
        known += ", LocalSGD(ranks=4) or DiLoCo(ranks=4)"
    if inside.meets != "all" or inside.is_elastic:
        return f"ranks of {inner.name} never agree on their weights; take {known}"
    if is_of_gradients and inside.sends == "weights":
        return f"ranks of {inner.name} step alone and leave no gradient to send; take {known}"
    if inner.ranks is None:
        return (
            f"{inner.name} must say how many ranks a group has; take ranks=4, or "
            f"inner='{inner.name}:4'"
        )
    if around.backup_ranks or inside.backup_ranks:
        return "only ranks of one copy can be cancelled; leave backup_ranks out"
    if around.overlap:
        return "a group sends when all of its gradients are there; take overlap inside alone"
    here, within = solver.workers_per_rank, inner.workers_per_rank
    if here != within and 1 not in (here, within):  # one that says 1 may have said nothing
        got = f"{here} and {within}"
        return f"workers_per_rank is of each copy, here and inside; say it once, got {got}"
    return None
