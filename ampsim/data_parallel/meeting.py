"""A meeting: all ranks exchange at once, in a collective.

It begins when the last rank is there. What comes out of it is computed then, in the order of ranks,
so that it depends neither on the algorithm nor on who came first; when each rank has it, the
messages say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ampsim.data_parallel.columns import columns_of
from ampsim.data_parallel.gathered import Gathered, distance_of, mean_of
from ampsim.data_parallel.parameters import Parameters, weighted_mean
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import ADDITION, ELASTIC, Setting
from ampsim.data_parallel.solver import Vector
from ampsim.data_parallel.stream import Readiness, Stream
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS, WAITS

NO_SERVER = -1
"""In place of a server's worker: a rank meets all others."""

OF_GROUP = -3
"""The same: a rank meets all others of its group; one less in a group within a group, and so on."""

ALL = WAITS.index("all")


class Meeting:
    """Where all ranks meet.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
        outer: makes the centre's own steps, where the solver has them.
        group: what the ranks are together; None where no other solver is around.

    Attributes:
        due: places of vectors of which some rank had a gradient when they last met.
        counts: gradients of these vectors.
    """

    def __init__(
        self,
        setting: Setting,
        ranks: Sequence[Rank],
        outer: Parameters,
        group: Gathered | None = None,
    ) -> None:
        self._setting = setting
        self._ranks = ranks
        self._outer, self._group = outer, group
        solver = setting.solver
        self._there: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._before: list[Vector | None] = []
        self.due: set[int] = set()
        self.counts = [0] * len(setting.nodes)
        self._began_s = 0.0
        self._met: set[int] = set()
        self._distances = [math.nan] * len(ranks)
        self._is_closing_met = False
        self._is_alone = group is not None and len(ranks) == 1
        self._streams = [
            Stream(setting, workers, places, self._came)
            for workers, places in ([] if self._is_alone else columns_of(ranks))
        ]
        is_early = solver.overlaps_backward and not self._is_alone
        self._ready_early = Readiness(self._streams, ranks) if is_early else None
        self._parts = 1 + sum(len(stream.buckets) for stream in self._streams)
        self._missing = [self._parts] * len(ranks)

    @property
    def columns(self) -> int:
        """How many collectives a meeting has at least: of the workers that host the same nodes."""
        return len(self._streams)

    def spread(self, cause: Cause, came: Callable[[int, Cause], None]) -> None:
        """Send the vectors of the first rank to the others; `came` is told of each column."""
        for stream in self._streams:
            stream.spread(cause, came)

    def weights(self) -> list[Vector]:
        """What ranks have learned: the centre, or the mean of ranks that have stepped since."""
        setting = self._setting
        if setting.is_abstract or not setting.solver.steps_first or self._is_closing_met:
            return list(setting.centre.thetas)
        return mean_of(self._ranks, len(setting.nodes))

    def begun(self, rank: Rank, cause: Cause) -> None:
        """Nothing happens before the gradient is there."""

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Reduce a bucket beside the backward pass, when all ranks have its gradients."""
        if self._ready_early is not None:
            self._ready_early.note(rank.number, place, self._setting.clock.now, cause)

    def drained(self, rank: Rank, cause: Cause) -> None:
        """Meet before the rank's step, or step alone."""
        if self._setting.solver.steps_first:
            rank.apply(cause, rank.touched)
        elif self._is_meeting(rank):
            self._arrive(rank, cause)
        else:
            rank.apply(cause, rank.touched)

    def updated(self, rank: Rank, cause: Cause) -> None:
        """Meet after the rank's step, or take its next deal."""
        is_first = self._setting.solver.steps_first
        if is_first and self._is_meeting(rank) and rank.number not in self._met:
            rank.forget_gradients()
            self._arrive(rank, cause)
            return
        self._go_on(rank, cause)

    def ended(self, rank: Rank) -> None:
        """All ranks end in the same round: nobody waits for this one."""

    def update(self, rank: Rank, place: int, now_s: float) -> tuple[int, ...] | None:
        """Give a rank's vector its new value."""
        setting, solver = self._setting, self._setting.solver
        gradient = rank.gradients[place]
        if rank.number in self._met and (solver.sends == "gradient" or solver.steps_first):
            theta = None if setting.is_abstract else setting.centre.thetas[place]
            if theta is not None:
                rank.adopt(place, solver.adopt(rank.theta(place), theta))
            if rank.number == 0:
                count = self.counts[place]
                setting.recorder.updates.append((setting.places[place], now_s, count, 0.0, 0))
            return None
        is_pulled = solver.is_elastic and rank.number in self._met
        if not setting.is_abstract:
            rank.adopt(place, self._stepped(rank, place, gradient, now_s, is_pulled=is_pulled))
        if place in rank.touched:
            row = (setting.places[place], now_s, rank.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)
        return ELASTIC if is_pulled else None

    def _stepped(
        self, rank: Rank, place: int, gradient: Vector | None, now_s: float, *, is_pulled: bool
    ) -> Vector:
        setting = self._setting
        theta = rank.theta(place)
        centre = self._before[place] if is_pulled else None
        if gradient is None:  # a rank without a batch: the spring alone
            return setting.solver.local(theta, theta, centre, setting.pull, lambda _g, w: w)
        assert rank.deal is not None
        step = rank.own.step(place, setting.rate_of(rank.deal), now_s)
        stepped = setting.solver.local(theta, gradient, centre, setting.pull, step)
        rank.own.versions[place] += 1
        return stepped

    def _is_meeting(self, rank: Rank) -> bool:
        is_full = (rank.steps + 1) % self._setting.solver.deals_per_exchange == 0
        return is_full or (rank.deal is not None and rank.deal.is_last)

    def _go_on(self, rank: Rank, cause: Cause) -> None:
        """Take the next deal, or let the group know."""
        has_met = rank.number in self._met
        self._is_closing_met = has_met
        rank.close()
        self._met.discard(rank.number)
        rank.forget_gradients()
        rank.steps = 0 if has_met else rank.steps + 1
        if has_met and self._group is not None:
            self._group.met(rank, cause)
        else:
            rank.begin(cause)

    def _arrive(self, rank: Rank, cause: Cause) -> None:
        """Wait for the others; the last one starts the collective."""
        if self._ready_early is not None and rank.deal is not None and not rank.deal.batches:
            for place in range(len(self._setting.nodes)):
                self.computed(rank, place, cause)
        self._there[rank.number] = self._setting.clock.now
        if len(self._there) == len(self._ranks):
            self._start(cause, rank)

    def _start(self, cause: Cause, last: Rank) -> None:
        self._ready, self._there = self._there, {}
        self._combine()
        self._began_s = self._setting.clock.now
        if self._ready_early is None:
            first_s = min(self._ready.values())
            for stream in self._streams:
                for bucket in range(len(stream.buckets)):
                    stream.offer(bucket, first_s, cause, last.number)
        for rank in range(len(self._ranks)):
            self._came(rank, cause)

    def _came(self, number: int, cause: Cause) -> None:
        self._missing[number] -= 1
        if self._missing[number]:
            return
        self._missing[number] = self._parts
        rank = self._ranks[number]
        if len(self._ranks) == 1:  # it has nothing from others that its copies do not have
            self._over(rank, cause)
        else:
            rank.hand_out(cause, partial(self._over, rank))

    def _over(self, rank: Rank, cause: Cause) -> None:
        """Let a rank add up what it came for, where that is entries, and go on."""
        if not self._is_alone:
            self._record(rank)
        if self._setting.share is None:
            self._has(rank, cause)
        else:
            rank.serve(cause, self.due, self._added, partial(self._has, rank))

    def _added(self, place: int) -> tuple[int, ...]:
        """What adding up the entries of all ranks is charged for; `_combine` has their sum."""
        return ADDITION, len(self._ranks), self._setting.kept_count(place)

    def _has(self, rank: Rank, cause: Cause) -> None:
        """Let a rank go on that has what they came for."""
        setting, solver = self._setting, self._setting.solver
        if solver.sends == "gradient" and self._group is not None:
            self._group.met(rank, cause)
            return
        self._met.add(rank.number)
        if solver.sends == "gradient":
            rank.apply(cause, self.due)
        elif not solver.steps_first or solver.has_outer_step:
            rank.apply(cause, range(len(setting.nodes)))
        else:
            if not setting.is_abstract:
                for place, theta in enumerate(setting.centre.thetas):
                    rank.adopt(place, solver.adopt(rank.theta(place), theta))
            self._go_on(rank, cause)

    def _record(self, rank: Rank) -> None:
        setting, ready_s = self._setting, self._ready[rank.number]
        now_s = setting.clock.now
        sends = SENDS.index(setting.solver.sends)
        with_whom = OF_GROUP - setting.level + 1 if setting.level else NO_SERVER
        stalled_s = now_s - ready_s
        waits = ALL if stalled_s else 0
        size_bytes = sum(stream.size_bytes for stream in self._streams)
        times = (ready_s, self._began_s, self._began_s, now_s, now_s, stalled_s)
        distance = self._distances[rank.number]
        setting.recorder.exchanges.append(
            (rank.first, with_whom, sends, *times, waits, size_bytes, 0, distance, False)
        )

    def _combine(self) -> None:
        """What the collective gives, and what the centre is after it."""
        solver, setting = self._setting.solver, self._setting
        self.due = set().union(*(rank.touched for rank in self._ranks))
        for place in self.due:
            counts = (rank.counts[place] for rank in self._ranks if place in rank.touched)
            self.counts[place] = sum(counts)
        self._before = list(setting.centre.thetas)
        if not setting.is_abstract:
            if solver.sends == "weights":
                self._distances = [distance_of(rank, setting.centre.thetas) for rank in self._ranks]
            for place in range(len(setting.nodes)):
                self._combine_vector(place)
        elif solver.sends == "gradient":
            for place in self.due:
                setting.centre.versions[place] += 1
        for rank in self._ranks:
            rank.rows = 0

    def _combine_vector(self, place: int) -> None:
        setting, solver, ranks = self._setting, self._setting.solver, self._ranks
        if solver.sends == "gradient":
            parcel = weighted_mean(
                [rank.gradients[place] for rank in ranks], [rank.rows for rank in ranks]
            )
            for rank in ranks:
                rank.gradients[place] = None
            if parcel is None:
                return
            if self._group is not None:
                self._group.take(place, parcel)
                return
            pull = 0.0
        else:
            weights = [1 if solver.is_elastic else rank.rows for rank in ranks]
            parcel = weighted_mean([rank.theta(place) for rank in ranks], weights)
            pull = setting.pull * len(ranks)
        assert parcel is not None
        centre = setting.centre
        maker = self._outer if solver.has_outer_step else centre
        rate = maker.optimizer.rate(0) if solver.has_outer_step else self._rate()
        step = maker.step(place, rate, setting.clock.now)
        centre.thetas[place] = solver.merge(centre.thetas[place], parcel, pull, step)
        centre.versions[place] += 1

    def _rate(self) -> float:
        """The rate of the first instance of this round."""
        deals = [rank.deal for rank in self._ranks if rank.deal is not None]
        return self._setting.rate_of(deals[0])
