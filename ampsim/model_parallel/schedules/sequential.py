"""Sequential: one instance at a time, an update after each (Figure 1a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.model_parallel.schedules.values import AT_DRAIN, LATEST, Admission, Order


@dataclass(frozen=True)
class Sequential:
    """Plain synchronous stochastic gradient descent, spread over devices; the baseline."""

    name: ClassVar[str] = "sequential"
    admission = Admission(in_flight_max=1, drains=True)
    order = Order()
    updates = AT_DRAIN
    weights = LATEST
