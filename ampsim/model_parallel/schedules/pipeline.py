"""One instance at a time, or a stream of them that drains before each update (Figures 1a, 1b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.model_parallel.schedules.values import AT_DRAIN, LATEST, Admission, Order
from ampsim.options import Count


@dataclass(frozen=True)
class Sequential:
    """Plain stochastic gradient descent, spread over devices: an update after each instance."""

    name: ClassVar[str] = "sequential"
    admission = Admission(in_flight_max=1, drains=True)
    order = Order()
    updates = AT_DRAIN
    weights = LATEST


@dataclass(frozen=True)
class Draining:
    """At most m micro-batches in flight, which drain before the next m; their mean gradient counts.

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    max_active_keys: Count = 8
    updates = AT_DRAIN
    weights = LATEST

    def __post_init__(self) -> None:
        """Check the options."""
        check_fields(self)

    @property
    def admission(self) -> Admission:
        """At most m, which drain before the next m."""
        return Admission(self.max_active_keys, drains=True)


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
