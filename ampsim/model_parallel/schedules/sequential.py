"""Sequential: one instance at a time, an update after each (Figure 1a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.ir import Direction
from ampsim.model_parallel.schedules.base import BACKWARD_FIRST, Plain


@dataclass(frozen=True)
class Sequential(Plain):
    """Plain synchronous stochastic gradient descent, spread over devices; the baseline."""

    name: ClassVar[str] = "sequential"
    drains: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    order: ClassVar[tuple[Direction, ...]] = BACKWARD_FIRST
    holds_gradients: ClassVar[bool] = False
    needs_chain: ClassVar[bool] = False

    @property
    def max_active_keys(self) -> int:
        """One."""
        return 1

    def update_interval(self, node: str, preferred: int) -> int | None:
        """The controller sends the updates when the instance has finished."""
        return None
