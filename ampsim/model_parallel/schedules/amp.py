"""AMP: asynchronous model-parallel training, the paper's subject (Section 3, Figure 1c).

`AmpBudget` is AMP that is not greedy: it admits only while a staleness budget lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.model_parallel.schedules.values import Admission, Order, Updates, Weights
from ampsim.options import Amount, Count, Seconds


class Asynchronous:
    """Options of the schedules whose nodes update themselves."""

    max_active_keys: int
    min_update_interval: int | Mapping[str, int] | None
    remedy: str
    max_group: int
    group_wait_s: float

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)
        _ = self.order, self.updates, self.weights

    @property
    def admission(self) -> Admission:
        """At most `max_active_keys` in flight; it never drains."""
        return Admission(self.max_active_keys)

    @property
    def order(self) -> Order:
        """The most urgent message first, perhaps with others for its node."""
        return Order(max_group=self.max_group, group_wait_s=self.group_wait_s)

    @property
    def updates(self) -> Updates:
        """After `min_update_interval` gradients, or as many as the model prefers."""
        return Updates(interval=self.min_update_interval)

    @property
    def weights(self) -> Weights:
        """The latest, or those that the remedy predicts."""
        return Weights(remedy=self.remedy)


@dataclass(frozen=True)
class Amp(Asynchronous):
    """Never drains within an epoch; each node updates itself.

    A node applies the sum of the gradients that it has accumulated, one gradient per backward
    message, as soon as there are `min_update_interval` of them.

    Args:
        max_active_keys: instances in flight at most.
        min_update_interval: gradients per update: one number for all nodes, or a mapping from
            node names; None, and nodes that a mapping omits, take what the model prefers.
        remedy: what is done about delayed gradients: one of `schedules.values.REMEDIES`.
        max_group: messages for one node that a worker may merge into one step.
        group_wait_s: seconds that a worker waits, once, before it starts a smaller group.

    Raises:
        OptionError: a number is out of its range, or nothing is merged that could be waited for.
        UnknownNameError: there is no such remedy.
    """

    max_active_keys: Count = 8
    min_update_interval: Count | Mapping[str, Count] | None = None
    remedy: str = "none"
    max_group: Count = 1
    group_wait_s: Seconds = 0.0
    name: ClassVar[str] = "amp"


@dataclass(frozen=True)
class AmpBudget(Asynchronous):
    """`Amp`, but an instance waits while its gradients would come back too old.

    The paper's scheduler "is greedy and pumps in a forward message whenever the first layer is
    unoccupied, which leads to large gradient staleness" (Appendix B.1). This one pumps only while
    the staleness that is to be expected at the oldest nodes, those that no other node with
    parameters comes before, is within the budget (`ampsim.model_parallel.budget.Budget` says how
    that is worked out). `max_active_keys` stays a limit too. With nothing in flight it always
    pumps.

    On a chain whose first node updates after each gradient, a budget of B lets B + 1 instances be
    in flight, and no gradient is older than B updates.

    Args:
        max_active_keys: instances in flight at most, whatever the budget.
        min_update_interval: as of `Amp`.
        staleness_budget: updates that a gradient may be old, as far as one can tell beforehand.
            The default is the least at which four layers in a row train as fast as they can.
        remedy: what is done about gradients that are delayed all the same.
        max_group: as of `Amp`.
        group_wait_s: likewise.

    Raises:
        OptionError: a number is out of its range, or nothing is merged that could be waited for.
        UnknownNameError: there is no such remedy.
    """

    max_active_keys: Count = 8
    min_update_interval: Count | Mapping[str, Count] | None = None
    staleness_budget: Amount = 4.0
    remedy: str = "none"
    max_group: Count = 1
    group_wait_s: Seconds = 0.0
    name: ClassVar[str] = "amp-budget"

    @property
    def admission(self) -> Admission:
        """At most `max_active_keys` in flight, and while the budget lasts; it never drains."""
        return Admission(self.max_active_keys, staleness_budget=self.staleness_budget)
