"""A visit: one rank's exchange with all servers, from its parcel to their answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ampsim.data_parallel.dealer import Deal
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.solver import Vector
from ampsim.trace import START, Cause


@dataclass(slots=True, eq=False)
class Visit:
    """What is known of it so far.

    Args:
        rank: whose it is.
        instance: the first of the rank's deal.
        rate: the learning rate of the deal's first instance.
        ready_s: when the rank had something to send.
        parcel: what it sends: a vector for each node, None where there is none.
        touched: places of vectors that it sends; also in `sleep` mode.
        counts: gradients in each vector.
        read: versions of the centre that the parcel rests on.

    Attributes:
        cause: what it waited for last.
        sent_s: when it was sent.
        arrived_s: when the first server had all of its part.
        start_s: when the first merge began.
        merged_s: when the last merge ended.
        parts: messages that are still to come, by server; of the answer, `answers` in all.
        to_merge: vectors that are still to be merged, by server.
        reply: what it gets: vectors of the centre, and their versions.
        staleness: the most of any vector.
        square: of the distance between the rank's weights and the centre's.
        to_close: the deal that is done when all is merged; None where something else says so.
        following: the rank's next visit, if it waits until all of this one is merged.
        is_over: whether the answer has come.
        is_held: whether a bound on how far ranks may be ahead kept the answer back.
        end_s: when the answer came.
        stalled_s: how long the rank could do nothing for it.
    """

    rank: Rank
    instance: int
    rate: float
    ready_s: float
    parcel: list[Vector | None]
    touched: set[int]
    counts: list[int]
    read: list[int]
    cause: Cause = START
    sent_s: float = math.nan
    arrived_s: float = math.nan
    start_s: float = math.nan
    merged_s: float = math.nan
    parts: dict[int, int] = field(default_factory=dict[int, int])
    answers: int = 0
    servers_left: int = 0
    to_merge: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    reply: list[Vector | None] = field(default_factory=list["Vector | None"])
    versions: list[int] = field(default_factory=list[int])
    staleness: int = 0
    square: float = 0.0
    to_close: Deal | None = None
    following: Visit | None = None
    is_over: bool = False
    is_held: bool = False
    end_s: float = math.nan
    stalled_s: float = 0.0

    def held_by(self, has_turns: bool, waits_for_merge: bool) -> str:
        """What held the rank up, the first of what did.

        Args:
            has_turns: whether ranks exchange in turn.
            waits_for_merge: whether a parcel waits until others are merged.
        """
        if not self.stalled_s:
            return "nothing"
        if has_turns and self.sent_s > self.ready_s:
            return "turn"
        if self.is_held:
            return "bound"
        return "lock" if waits_for_merge and self.start_s > self.arrived_s else "reply"
