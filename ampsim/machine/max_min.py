"""Max-min fair shares of bandwidth, by progressive filling.

The rates of all flows grow alike; those that cross a bandwidth which is used up stop. So each flow
has a bottleneck: a bandwidth that is used up and of which no other flow has more.

Source: Bertsekas and Gallager, Data Networks, second edition (1992), section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ROUNDING: Final = 1e-9
"""How much more than its rate a bandwidth may carry by rounding, as a fraction of it."""


class Capacity:
    """Bandwidth that flows share: an edge's, a link's or a port's.

    Args:
        bytes_per_s: the rate of all of them together.

    Attributes:
        flows: those that are active, in the order in which they came; the values mean nothing.
        bound: how many of them it is the bottleneck of.
        left_bytes_per_s, waiting: of `shares_of` while it runs.
    """

    __slots__ = ("bound", "bytes_per_s", "flows", "left_bytes_per_s", "waiting")

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.flows: dict[Flow, None] = {}
        self.bound = 0
        self.left_bytes_per_s = bytes_per_s
        self.waiting = 0


class Flow:
    """What takes bandwidth while it is active.

    Args:
        capacities: what it crosses, at least one.

    Attributes:
        rate_bytes_per_s: what it has.
        bottleneck: which of its capacities keeps it from more; None while it is not active.
    """

    __slots__ = ("bottleneck", "capacities", "rate_bytes_per_s")

    def __init__(self, capacities: Iterable[Capacity]) -> None:
        self.capacities = tuple(capacities)
        self.rate_bytes_per_s = 0.0
        self.bottleneck: Capacity | None = None


def connected(start: Iterable[Capacity]) -> list[Capacity]:
    """These capacities, and all that share a flow with them, directly or by way of others."""
    found = dict.fromkeys(start)
    pending = list(found)
    seen: set[Flow] = set()  # asked only whether it has a flow, so that its order is nobody's
    for capacity in pending:
        for flow in capacity.flows:
            if flow not in seen:
                seen.add(flow)
                for other in flow.capacities:
                    if other not in found:
                        found[other] = None
                        pending.append(other)
    return pending


def shares_of(capacities: list[Capacity]) -> dict[Flow, tuple[float, Capacity]]:
    """The rate and the bottleneck of each active flow of capacities that share none with others.

    Of capacities that are used up at the same rate, the first is the bottleneck.
    """
    for capacity in capacities:
        capacity.left_bytes_per_s, capacity.waiting = capacity.bytes_per_s, len(capacity.flows)
    found: dict[Flow, tuple[float, Capacity]] = {}
    growing = [capacity for capacity in capacities if capacity.waiting]
    while growing:
        narrowest = min(growing, key=_share)
        share = _share(narrowest)
        assert share > 0, "a flow without bandwidth never ends"
        for flow in narrowest.flows:
            if flow not in found:
                found[flow] = (share, narrowest)
                for capacity in flow.capacities:
                    capacity.left_bytes_per_s -= share
                    capacity.waiting -= 1
        growing = [capacity for capacity in growing if capacity.waiting]
    for capacity in capacities:
        is_within = capacity.left_bytes_per_s >= -ROUNDING * capacity.bytes_per_s
        assert is_within, "an edge or port carries more than its rate"
    return found


def _share(capacity: Capacity) -> float:
    return capacity.left_bytes_per_s / capacity.waiting


def undisturbed(flow: Flow) -> tuple[float, Capacity] | None:
    """The rate and bottleneck of a flow that is to become active, if it changes no other's.

    So it is where the narrowest of the capacities that it has to itself lets it have no more than
    what is left of all others.
    """
    alone = [capacity for capacity in flow.capacities if not capacity.flows]
    if not alone:
        return None
    narrowest = min(alone, key=_rate)
    rate = narrowest.bytes_per_s
    for capacity in flow.capacities:
        if capacity.flows:
            if capacity.bound:
                return None
            used = sum(other.rate_bytes_per_s for other in capacity.flows)
            if used + rate > capacity.bytes_per_s:
                return None
    return rate, narrowest


def _rate(capacity: Capacity) -> float:
    return capacity.bytes_per_s
