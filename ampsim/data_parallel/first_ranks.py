"""A meeting that waits for the first K ranks: what comes of the gradients, and of who is late.

All ranks take part in the collective, which begins when the K-th gradient is there; who is late
brings nothing to it. What a late rank does is called off (`ampsim.data_parallel.solvers.sync_sgd`
says why). A rank may be so late that it has not made the last update yet: it has no batch then, and
makes the newest update of all that have come to it when it is free.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from ampsim.data_parallel.columns import columns_of
from ampsim.data_parallel.dealer import Deal, Dealer
from ampsim.data_parallel.meeting import ALL, NO_SERVER
from ampsim.data_parallel.parameters import weighted_mean
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.solver import Vector
from ampsim.data_parallel.stream import Stream
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS

GRADIENT = SENDS.index("gradient")


@dataclass(slots=True, eq=False)
class _Step:
    """A step that all ranks take.

    Args:
        began_s: when the K-th gradient was there.
        thetas: the weights after it.
        counts: gradients in each vector.
        due: places of the vectors that it changes.
        deals: of which it has the gradients; none once somebody has made it.
        noted: places of which the update is in the records.
    """

    began_s: float
    thetas: list[Vector]
    counts: list[int]
    due: set[int]
    deals: list[Deal]
    noted: set[int] = field(default_factory=set[int])


class FirstRanks:
    """Where the first ranks meet; an `Exchange`.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
        dealer: hands out batches, and takes back those of late ranks.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], dealer: Dealer) -> None:
        self._setting, self._ranks, self._dealer = setting, ranks, dealer
        self._awaited = len(ranks) - setting.solver.spare_ranks
        ((workers, places),) = columns_of(ranks)
        self._stream = Stream(setting, workers, places, self._came)
        self._parts = len(self._stream.buckets)
        self._missing = [self._parts] * len(ranks)
        self._first: list[Rank] = []
        self._in_round: set[int] = set()
        self._idle: dict[int, tuple[float, Cause]] = {}
        self._coming: list[deque[_Step]] = [deque() for _ in ranks]
        self._here: list[deque[tuple[_Step, float, Cause]]] = [deque() for _ in ranks]
        self._made: dict[int, _Step] = {}
        for rank in ranks:
            assert rank.calling_off is not None, "ranks are made so that they can be stopped"
            rank.calling_off.freed = partial(self._freed, rank)

    def weights(self) -> list[Vector]:
        """Those of all ranks."""
        return list(self._setting.centre.thetas)

    def begun(self, rank: Rank, cause: Cause) -> None:
        """Note who is in the round."""
        self._in_round.add(rank.number)
        self._idle.pop(rank.number, None)

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Nothing is sent before the gradients of all vectors are there."""

    def ended(self, rank: Rank) -> None:
        """All ranks end in the same round: nobody waits for this one."""

    def drained(self, rank: Rank, cause: Cause) -> None:
        """Wait for what comes of the round; with the K-th gradient it ends."""
        assert rank.deal is not None
        self._idle[rank.number] = (self._setting.clock.now, cause)
        if not rank.deal.batches:
            return
        self._first.append(rank)
        if len(self._first) == min(self._awaited, self._dealer.dealt):
            self._end_round(rank, cause)

    def _freed(self, rank: Rank, cause: Cause) -> None:
        """Wait for what comes of the round that the rank was late for."""
        self._idle[rank.number] = (self._setting.clock.now, cause)
        self._update_next(rank)

    def update(self, rank: Rank, place: int, now_s: float) -> tuple[int, ...] | None:
        """Give a rank's vector its new value."""
        step = self._made[rank.number]
        if not self._setting.is_abstract:
            theta = self._setting.solver.adopt(rank.theta(place), step.thetas[place])
            rank.adopt(place, theta)
        if place in step.due and place not in step.noted:
            step.noted.add(place)
            row = (self._setting.places[place], now_s, step.counts[place], 0.0, 0)
            self._setting.recorder.updates.append(row)
        return None

    def updated(self, rank: Rank, cause: Cause) -> None:
        """Take a batch, or make the next step where others have gone on."""
        step = self._made.pop(rank.number)
        for deal in step.deals:  # before anybody goes on, the centre is as this step left it
            self._dealer.close(deal)
        step.deals.clear()
        if self._coming[rank.number] or self._here[rank.number]:
            self._idle[rank.number] = (self._setting.clock.now, cause)
            self._update_next(rank)
            return
        rank.forget_gradients()
        rank.steps += 1
        rank.begin(cause)

    def _end_round(self, last: Rank, cause: Cause) -> None:
        """Make the step of those that are there, and call off what others do."""
        first, self._first = sorted(self._first, key=lambda one: one.number), []
        first_s = min(self._idle[one.number][0] for one in first)
        step = self._step_of(first)
        in_round, self._in_round = self._in_round, set()
        for rank in self._ranks:
            self._coming[rank.number].append(step)
            if rank.number not in in_round:
                deal = self._dealer.take(rank.number)
                assert deal is not None, "a round has a deal for each rank"
                self._dealer.give_back(deal)
        for rank in self._ranks:
            if rank.number in in_round and rank.number not in self._idle:
                assert rank.deal is not None
                self._dealer.give_back(rank.deal)
                assert rank.calling_off is not None
                rank.calling_off.begin()
        for bucket in range(self._parts):
            self._stream.offer(bucket, first_s, cause, last.number)

    def _step_of(self, first: Sequence[Rank]) -> _Step:
        """The mean of these ranks' gradients, applied to the centre."""
        setting, centre = self._setting, self._setting.centre
        deals = [one.deal for one in first if one.deal is not None]
        rate = setting.rate_of(min(deals, key=lambda one: one.first))
        due = {place for one in first for place in one.touched}
        counts = [
            sum(one.counts[p] for one in first if p in one.touched)
            for p in range(len(setting.nodes))
        ]
        for place in due:
            if not setting.is_abstract:
                parcel = weighted_mean(
                    [one.gradients[place] for one in first], [one.rows for one in deals]
                )
                assert parcel is not None
                step = centre.step(place, rate, setting.clock.now)
                centre.thetas[place] = setting.solver.merge(centre.thetas[place], parcel, 0.0, step)
            centre.versions[place] += 1
        for rank in first:
            rank.gradients = [None] * len(rank.gradients)
        return _Step(setting.clock.now, list(centre.thetas), counts, due, deals)

    def _came(self, number: int, cause: Cause) -> None:
        """Let a rank have a part of the oldest step that is on its way."""
        self._missing[number] -= 1
        if self._missing[number]:
            return
        self._missing[number] = self._parts
        step = self._coming[number].popleft()
        self._here[number].append((step, self._setting.clock.now, cause))
        self._update_next(self._ranks[number])

    def _update_next(self, rank: Rank) -> None:
        """Let a rank that is free make the newest step that has come to it, in place of all."""
        here = self._here[rank.number]
        if not here or rank.number not in self._idle:
            return
        free_s, free_cause = self._idle.pop(rank.number)
        due: set[int] = set()
        for step, came_s, _cause in here:
            self._record(rank, step, free_s, came_s)
            due |= step.due
        step, came_s, cause = here[-1]
        here.clear()
        self._made[rank.number] = step
        rank.apply(free_cause if free_s > came_s else cause, due)

    def _record(self, rank: Rank, step: _Step, free_s: float, came_s: float) -> None:
        stalled_s = max(0.0, came_s - free_s)
        times = (min(free_s, step.began_s), step.began_s, step.began_s, came_s, came_s, stalled_s)
        waits, size_bytes = ALL if stalled_s else 0, self._stream.size_bytes
        self._setting.recorder.exchanges.append(
            (rank.number, NO_SERVER, GRADIENT, *times, waits, size_bytes, 0, math.nan, False)
        )
