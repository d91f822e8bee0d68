"""Pipeline: m instances in flight, drained, updated, then the next m (Figure 1b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.model_parallel.schedules.draining import Draining
from ampsim.model_parallel.schedules.values import Order


@dataclass(frozen=True)
class Pipeline(Draining):
    """Synchronous pipelined model parallelism.

    The controller sends the updates at the drain; each node applies the mean, over the instances
    of the group that it saw, of their gradients. With three equal layers the speed-up over
    `Sequential` is 3m/(m + 2) (paper, Section 6).

    Args:
        max_active_keys: m, the instances of a group.

    Raises:
        OptionError: m is below 1.
    """

    name: ClassVar[str] = "pipeline"
    order = Order()
