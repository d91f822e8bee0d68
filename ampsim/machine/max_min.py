"""Max-min fair shares of bandwidth, by progressive filling.

The rates of all flows grow alike; those that cross a bandwidth which is used up stop. So each flow
has a bottleneck: a bandwidth that is used up and of which no other flow has more.

Source: Bertsekas and Gallager, Data Networks, second edition (1992), section 6.5.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

ROUNDING: Final = 1e-9
"""How much more than its rate a bandwidth may carry by rounding, as a fraction of it."""


class Capacity:
    """Bandwidth that flows share: an edge's, a link's or a port's.

    Attributes:
        flows: those that are active, in the order in which they came; the values mean nothing.
        bound: how many of them it is the bottleneck of.
        left_bytes_per_s, waiting, mark: of `shares_of` while it runs.
    """

    __slots__ = ("bound", "bytes_per_s", "flows", "left_bytes_per_s", "mark", "waiting")

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.flows: dict[Flow, None] = {}
        self.bound = 0
        self.left_bytes_per_s = bytes_per_s
        self.waiting = self.mark = 0


class Flow:
    """A stream that takes bandwidth while it is active.

    Attributes:
        rate_bytes_per_s: what it has.
        bottleneck: which of its capacities keeps it from more; None while it is not active.
        narrowest: the capacity of the least rate, which it would have alone; None of none.
        limit_bytes_per_s: that rate.
        shared, mark: of `shares_of` while it runs.
    """

    __slots__ = (
        "bottleneck", "capacities", "limit_bytes_per_s", "mark", "narrowest", "rate_bytes_per_s",
        "shared",
    )  # fmt: skip

    def __init__(self, capacities: Iterable[Capacity]) -> None:
        self.capacities = tuple(capacities)
        self.rate_bytes_per_s = 0.0
        self.bottleneck: Capacity | None = None
        self.narrowest = min(self.capacities, key=attrgetter("bytes_per_s"), default=None)
        self.limit_bytes_per_s = math.inf if self.narrowest is None else self.narrowest.bytes_per_s
        self.shared: list[Capacity] = []
        self.mark = 0


_limit = attrgetter("limit_bytes_per_s")


def shares_of(changed: Iterable[Capacity], mark: int) -> list[tuple[Flow, float, Capacity]]:
    """The rate and the bottleneck of each flow whose share a change of these may change.

    These are the flows of the capacities, and all that share one with them, directly or by way of
    others. A flow stops growing at the narrowest capacity that it crosses, or where one that it
    shares is used up.

    Args:
        changed: capacities.
        mark: a number that no earlier call had, above 0; it says what this call has seen, which
            costs less than a set of it.
    """
    shared, flows = _connected(changed, mark)
    if not shared:  # one flow, or none
        return [(flow, flow.limit_bytes_per_s, flow.narrowest) for flow in flows if flow.narrowest]
    return _of_two(shared, *flows) if len(flows) == 2 else _of_many(shared, flows, mark)


def _of_two(
    shared: Sequence[Capacity], low: Flow, high: Flow
) -> list[tuple[Flow, float, Capacity]]:
    """Share as `_of_many` does, for two flows, the one of the lower limit first."""
    share, narrowest = low.limit_bytes_per_s, None
    for capacity in shared:
        if capacity.bytes_per_s / 2 < share:
            share, narrowest = capacity.bytes_per_s / 2, capacity
    if narrowest is not None:
        return [(flow, share, narrowest) for flow in narrowest.flows]
    rest, bottleneck = high.limit_bytes_per_s, high.narrowest
    for capacity in shared:
        if capacity.bytes_per_s - share < rest:
            rest, bottleneck = capacity.bytes_per_s - share, capacity
    assert rest > 0, "a flow without bandwidth never ends"
    return [(low, share, low.narrowest), (high, rest, bottleneck)]  # pyright: ignore[reportReturnType]  # they have one


def _of_many(
    shared: Sequence[Capacity], flows: Iterable[Flow], mark: int
) -> list[tuple[Flow, float, Capacity]]:
    """Fill capacities until each flow has its bottleneck; flows come by their limits."""
    for capacity in shared:
        capacity.left_bytes_per_s = capacity.bytes_per_s
        capacity.waiting = len(capacity.flows)
    found: list[tuple[Flow, float, Capacity]] = []
    for flow in flows:
        while flow.mark == mark:
            share, narrowest = flow.limit_bytes_per_s, None
            for capacity in shared:
                waiting = capacity.waiting
                if waiting and capacity.left_bytes_per_s / waiting < share:
                    share, narrowest = capacity.left_bytes_per_s / waiting, capacity
            assert share > 0, "a flow without bandwidth never ends"
            for one in (flow,) if narrowest is None else narrowest.flows:
                if one.mark == mark:
                    one.mark = 0
                    found.append((one, share, narrowest or one.narrowest))  # pyright: ignore[reportArgumentType]  # it has one
                    for capacity in one.shared:
                        capacity.left_bytes_per_s -= share
                        capacity.waiting -= 1
    for capacity in shared:
        is_within = capacity.left_bytes_per_s >= -ROUNDING * capacity.bytes_per_s
        assert is_within, "an edge or port carries more than its rate"
    return found


def _connected(changed: Iterable[Capacity], mark: int) -> tuple[list[Capacity], list[Flow]]:
    """The flows that hang together with these capacities, by their limits, and what they share.

    A capacity of one flow alone is left out: it is no narrower than the flow's limit.
    """
    flows: list[Flow] = []
    for capacity in changed:
        for flow in capacity.flows:
            if flow.mark != mark:
                flow.mark = mark
                flows.append(flow)
    shared: list[Capacity] = []
    for flow in flows:  # which grows meanwhile
        flow.shared = [capacity for capacity in flow.capacities if len(capacity.flows) > 1]
        for capacity in flow.shared:
            if capacity.mark != mark:
                capacity.mark = mark
                shared.append(capacity)
                for other in capacity.flows:
                    if other.mark != mark:
                        other.mark = mark
                        flows.append(other)
    if len(flows) > 1:
        flows.sort(key=_limit)
    return shared, flows


def undisturbed(flow: Flow) -> bool:
    """Whether a flow that is to become active may have its limit without changing another's rate.

    So it is where nobody's bottleneck lies on its way, and enough is left of what it shares.
    """
    for capacity in flow.capacities:
        if capacity.flows:
            if capacity.bound:
                return False
            used = sum([other.rate_bytes_per_s for other in capacity.flows])
            if used + flow.limit_bytes_per_s > capacity.bytes_per_s:
                return False
    return True
