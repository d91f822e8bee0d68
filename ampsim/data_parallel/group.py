"""A group: ranks of a solver inside another, which act as one rank when they have met.

Where the solver inside sends gradients, the group has the mean gradient of its ranks' batches;
where it sends weights, the group has made its steps and has the weights that the meeting gave. One
rank of the group exchanges for all, the first: what the exchange brings it sends to the others
along a tree, on the group's own links, after whatever their collectives still have under way.
What the solver around makes of weights is worked out once, and each copy is charged for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ampsim.data_parallel.dealer import Deal
from ampsim.data_parallel.meeting import Meeting
from ampsim.data_parallel.parameters import Parameters
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import ELASTIC, PULL, Setting
from ampsim.data_parallel.share import Share
from ampsim.data_parallel.solver import Vector
from ampsim.optim import Optimizer
from ampsim.trace import Cause


class Group(Rank):
    """Several ranks as one.

    Args:
        number: as of `Rank`.
        members: its ranks.
        share: deals out to them.
        settings: as of `Rank`, and what its ranks have in common.
        optimizer: as of `Rank`.
        outer: makes the steps of a solver inside that steps from what its ranks' meeting gave.
    """

    def __init__(
        self,
        number: int,
        members: Sequence[Rank],
        share: Share,
        settings: tuple[Setting, Setting],
        *,
        optimizer: Optimizer,
        outer: Parameters,
    ) -> None:
        setting, self._inner = settings
        super().__init__(number, members[0].first, setting, optimizer)
        self.members, self._share = members, share
        self._meeting = Meeting(self._inner, members, outer, self)
        for member in members:
            member.exchange = self
        self._left = self._applying = 0
        self._shapes: dict[int, tuple[int, ...] | None] = {}
        self._to_come: list[int] = []

    # what a rank is asked

    def _compute(self, deal: Deal, cause: Cause) -> None:
        if not deal.batches:
            self._ready(cause)
            return
        self._share.offer(deal)
        self._left = len(self.members)
        for member in self.members:
            member.begin(cause)

    def vectors_on(self) -> dict[int, list[int]]:
        """Those of the first."""
        return self.members[0].vectors_on()

    def theta(self, place: int) -> Vector:
        """The weights that all have."""
        return self._inner.centre.thetas[place]

    def adopt(self, place: int, theta: Vector | None) -> None:
        """All do."""
        if theta is not None:
            self._inner.centre.thetas[place] = theta
        for member in self.members:
            member.adopt(place, theta)

    def take_parameters(self) -> None:
        """All do."""
        for member in self.members:
            member.take_parameters()

    def forget_gradients(self) -> None:
        """All do."""
        super().forget_gradients()
        for member in self.members:
            member.forget_gradients()

    def stash_centre(self, vectors: list[Vector | None]) -> None:
        """All do."""
        super().stash_centre(vectors)
        for member in self.members:
            member.stash_centre(vectors)

    def forget_centre(self) -> None:
        """All do."""
        super().forget_centre()
        for member in self.members:
            member.forget_centre()

    def apply(self, cause: Cause, places: Sequence[int] | set[int]) -> None:
        """Let all copies be updated, each on its own device."""
        self._shapes.clear()
        self._applying = len(self.members)
        for member in self.members:
            member.apply(cause, places)

    def hand_out(self, cause: Cause, then: Callable[[Cause], None]) -> None:
        """Send what came from the first to the others."""
        left = [len(self.members)]

        def had(cause: Cause) -> None:
            left[0] -= 1
            if not left[0]:
                then(cause)

        def came(number: int, cause: Cause) -> None:
            self._to_come[number] -= 1
            if not self._to_come[number]:
                self.members[number].hand_out(cause, had)

        parts = self._meeting.columns
        if not parts:
            self.members[0].hand_out(cause, had)
            return
        self._to_come = [parts] * len(self.members)
        self._meeting.spread(cause, came)

    # what its own ranks ask

    def begun(self, rank: Rank, cause: Cause) -> None:
        """As of `Exchange`."""
        self._meeting.begun(rank, cause)

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """As of `Exchange`."""
        self._meeting.computed(rank, place, cause)

    def drained(self, rank: Rank, cause: Cause) -> None:
        """As of `Exchange`."""
        self._meeting.drained(rank, cause)

    def ended(self, rank: Rank) -> None:
        """As of `Exchange`: a rank of a group has something to do until it has met others."""
        raise AssertionError(f"rank {rank.number} of a group has nothing to meet others with")

    def updated(self, rank: Rank, cause: Cause) -> None:
        """As of `Exchange`; of what the solver around asked for, when all have it."""
        if not self._applying:
            self._meeting.updated(rank, cause)
            return
        self._applying -= 1
        if not self._applying:
            self.exchange.updated(self, cause)

    def update(self, rank: Rank, place: int, now_s: float) -> tuple[int, ...] | None:
        """As of `Exchange`; what the solver around asks for is worked out by the first to come."""
        if not self._applying:
            return self._meeting.update(rank, place, now_s)
        if place not in self._shapes:
            shape = self.exchange.update(self, place, now_s)
            is_pull = shape == ELASTIC and self._setting.solver.steps_inside
            self._shapes[place] = PULL if is_pull else shape
        return self._shapes[place]

    # what their meeting tells

    def take(self, place: int, gradient: Vector) -> None:
        """Have the mean gradient of one vector."""
        self.gradients[place] = gradient

    def met(self, rank: Rank, cause: Cause) -> None:
        """Note that a rank has what it met others for; with the last, the group has drained."""
        self._left -= 1
        if self._left:
            return
        assert self.deal is not None
        self.rows += self.deal.rows
        if self._inner.solver.sends == "gradient":
            self.touched = set(self._meeting.due)
            for place in self.touched:
                self.counts[place] = self._meeting.counts[place]
        self._ready(cause)
