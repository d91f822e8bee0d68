"""What synchronous pipelines have in common: mini-batches that drain, and one update for each."""

from __future__ import annotations

from dataclasses import dataclass

from ampsim.arguments import check_fields
from ampsim.model_parallel.schedules.values import AT_DRAIN, LATEST, Admission
from ampsim.options import Count


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
