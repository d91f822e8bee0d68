"""Balanced: every worker gets about as much to compute, whatever order nodes were added in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ampsim.hardware import HOST
from ampsim.model_parallel.placements.base import Situation, place_rest, rounded


@dataclass(frozen=True)
class Balanced:
    """Longest processing time first: the costliest node goes where it would be done first.

    Costs are a probe's, to nine digits: FLOP, where the device names nothing but a FLOP rate. Equal
    ones are placed in the order of the graph. Workers of different rates are weighed by these.
    Nodes that cost nothing go to workers that have nothing to compute; where there are none, they
    share the worker of the node that feeds them.

    Source: Graham, "Bounds on multiprocessing timing anomalies" (1969): at most 4/3 of the optimum
    over equal workers.
    """

    name: ClassVar[str] = "balanced"

    @property
    def origin(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}

    def place(self, situation: Situation) -> list[int]:
        """Place by cost; nothing is left to chance."""
        rates = [device.flop_per_s for device in situation.cluster.devices]
        placement = longest_first(situation.probe().seconds, rates)
        place_rest(situation.graph, placement, len(rates))
        return placement


def longest_first(costs: Sequence[float], rates: Sequence[float]) -> list[int]:
    """Return a worker for each of `costs`; -1 for the controller, the first, and for what is free.

    >>> longest_first([0, 3, 3, 2, 2, 2, 0], rates=[1, 1])
    [-1, 0, 1, 0, 1, 0, -1]
    """
    placement = [HOST] * len(costs)
    loads = [0.0] * len(rates)
    for index in sorted(range(1, len(costs)), key=lambda place: (-costs[place], place)):
        if costs[index] > 0:
            done = [(load + costs[index]) / rate for load, rate in zip(loads, rates, strict=True)]
            worker = min(range(len(rates)), key=lambda w: (rounded(done[w]), w))
            placement[index] = worker
            loads[worker] += costs[index]
    return placement
