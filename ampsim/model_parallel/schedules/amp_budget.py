"""AMP that is not greedy: it admits only while a staleness budget lasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ampsim.model_parallel.schedules.amp import Asynchronous
from ampsim.model_parallel.schedules.values import Admission
from ampsim.options import Amount, Count


@dataclass(frozen=True)
class AmpBudget(Asynchronous):
    """As `Amp`, but an instance waits while its gradients would come back too old.

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
    group_wait_s: Amount = 0.0
    name: ClassVar[str] = "amp-budget"

    @property
    def admission(self) -> Admission:
        """At most `max_active_keys` in flight, and while the budget lasts; it never drains."""
        return Admission(self.max_active_keys, staleness_budget=self.staleness_budget)
