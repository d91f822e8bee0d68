"""What may be inside the ranks of a solver: schedules of one copy, and solvers of a group.

A group acts as one rank, which it can where its own ranks agree: they hold the same weights
whenever they have met.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, TypeAlias

from ampsim.model_parallel.schedules import Schedule

Meets: TypeAlias = Literal["all", "server"]
Sends: TypeAlias = Literal["gradient", "weights"]


class Decisions(Protocol):
    """What is asked of a solver to know what goes inside it, or it inside another."""

    name: ClassVar[str]
    meets: ClassVar[Meets]
    sends: ClassVar[Sends]
    is_elastic: ClassVar[bool]

    @property
    def overlaps_backward(self) -> bool:
        """As of `Solver`."""
        ...

    @property
    def spare_ranks(self) -> int:
        """As of `Solver`."""
        ...

    @property
    def ranks(self) -> int | None:
        """As of `Solver`."""
        ...

    @property
    def workers_per_rank(self) -> int:
        """As of `Solver`."""
        ...


def fault_of_schedule(solver: Decisions, inner: Schedule) -> str | None:
    """Why a schedule cannot be inside each copy, and what can; None if it can."""
    fault = None
    if not inner.admission.drains and solver.sends == "gradient":
        fault = f"{inner.name} never drains, so no rank has a gradient of its whole batch"
    elif inner.order.holds_gradients:
        fault = f"{inner.name} holds gradients until nothing else happens, but other ranks go on"
    elif inner.order.turns is not None or inner.weights.versions is not None:
        fault = f"{inner.name} has turns for the instances of one copy, which others number too"
    known = "Sequential()" if solver.sends == "gradient" else "Sequential(), Amp()"
    return None if fault is None else f"{fault}; take {known} or Pipeline()"


def fault_of_group(solver: Decisions, inner: Decisions) -> str | None:
    """Why a solver cannot be inside each rank, and what can; None if it can."""
    is_of_gradients = solver.sends == "gradient"
    known = "SyncSGD(ranks=4)"
    if not is_of_gradients:
        known += ", LocalSGD(ranks=4) or DiLoCo(ranks=4)"
    if inner.meets != "all" or inner.is_elastic:
        return f"ranks of {inner.name} never agree on their weights; take {known}"
    if is_of_gradients and inner.sends == "weights":
        return f"ranks of {inner.name} step alone and leave no gradient to send; take {known}"
    if inner.ranks is None:
        return (
            f"{inner.name} must say how many ranks a group has; take ranks=4, or "
            f"inner='{inner.name}:4'"
        )
    if solver.spare_ranks or inner.spare_ranks:
        return "only ranks of one copy can be called off; leave backup_ranks out"
    if solver.overlaps_backward:
        return "a group sends when all of its gradients are there; take overlap inside alone"
    return _fault_of_workers(solver.workers_per_rank, inner.workers_per_rank)


def _fault_of_workers(here: int, inside: int) -> str | None:
    """Both are of each copy: one that says 1 may have said nothing."""
    if here == inside or 1 in (here, inside):
        return None
    got = f"{here} and {inside}"
    return f"workers_per_rank is of each copy, here and inside; say it once, got {got}"
