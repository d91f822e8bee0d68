"""AMP: asynchronous model-parallel training, the paper's subject (Section 3, Figure 1c)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.ir import Direction
from ampsim.model_parallel.remedies import NONE, require_remedy
from ampsim.model_parallel.schedules.base import (
    BACKWARD_FIRST,
    interval_of,
    require_grouping,
)
from ampsim.options import Amount, Count


@dataclass(frozen=True)
class Amp:
    """Never drains within an epoch; each node updates itself.

    A node applies the sum of the gradients that it has accumulated, one gradient per backward
    message, as soon as there are `min_update_interval` of them.

    Args:
        max_active_keys: instances in flight at most.
        min_update_interval: gradients per update: one number for all nodes, or a mapping from
            node names; None, and nodes that a mapping omits, take what the model prefers.
        remedy: what is done about delayed gradients: a name of `ampsim.model_parallel.remedies`.
        max_group: messages for one node that a worker may merge into one step.
        group_wait_s: seconds that a worker waits, once, before it starts a smaller group.

    Raises:
        OptionError: a number is out of its range, or nothing is merged that could be waited for.
        UnknownNameError: there is no such remedy.
    """

    max_active_keys: Count = 8
    min_update_interval: Count | Mapping[str, Count] | None = None
    remedy: str = NONE
    max_group: Count = 1
    group_wait_s: Amount = 0.0
    name: ClassVar[str] = "amp"
    drains: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    order: ClassVar[tuple[Direction, ...]] = BACKWARD_FIRST
    holds_gradients: ClassVar[bool] = False
    needs_chain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)
        require_remedy(self.remedy)
        require_grouping(self.max_group, self.group_wait_s)

    @property
    def staleness_budget(self) -> None:
        """Greedy: as many as may be in flight."""

    def update_interval(self, node: str, preferred: int) -> int | None:
        """The interval asked for, or the model's."""
        return interval_of(self.min_update_interval, node, preferred)
