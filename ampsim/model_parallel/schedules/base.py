"""A schedule is a name, options, and four decisions, each a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

from ampsim.errors import OptionError, one_of
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights


class Schedule(Protocol):
    """The decisions of one schedule, made when it is constructed and checked there.

    Attributes:
        name: as on the command line.
    """

    name: ClassVar[str]

    @property
    def admission(self) -> Admission:
        """When the controller admits another instance."""
        ...

    @property
    def order(self) -> Order:
        """The order in which a worker serves messages that wait."""
        ...

    @property
    def updates(self) -> Updates:
        """When a node applies its gradients."""
        ...

    @property
    def weights(self) -> Weights:
        """The weights that a step reads."""
        ...


def needs_chain(schedule: Schedule) -> bool:
    """Tell whether a schedule runs only graphs that are a chain of stages."""
    return schedule.order.turns is not None or schedule.weights.versions is not None


def require_sound(schedule: Schedule, nodes: list[str]) -> None:
    """Check a schedule's four values against each other, and against the nodes that learn.

    Raises:
        OptionError: it drains without updating there, or updates at a drain that never comes, or
            one of its intervals by node names no node of `nodes`.
    """
    drains, is_at_drain = schedule.admission.drains, schedule.updates.is_at_drain
    if drains != is_at_drain:
        raise OptionError(
            f"{schedule.name}: admission and updates must agree on the drain, got "
            f"Admission(drains={drains}) and Updates(is_at_drain={is_at_drain}); "
            "take both or neither"
        )
    intervals = schedule.updates.interval
    for name in intervals if isinstance(intervals, Mapping) else ():
        if name not in nodes:
            raise OptionError(f"min_update_interval: {one_of('node that learns', name, nodes)}")
