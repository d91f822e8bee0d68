"""An all-reduce of the first K ranks: what comes of the gradients, and of who is late.

All ranks take part in the collective, which begins when the K-th gradient is there; who is late
brings nothing to it. What a late rank does is cancelled (`ampsim.data_parallel.solvers.sync_sgd`
says why). A rank may be so late that it has not made the last update yet: it has no batch then, and
makes the newest update of all that have come to it when it is free.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from ampsim.data_parallel.all_reduce import ALL, NO_SERVER
from ampsim.data_parallel.batch_queue import Assignment, BatchQueue
from ampsim.data_parallel.coroutine import until
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.model_copy import ModelCopy
from ampsim.data_parallel.parameters import weighted_mean
from ampsim.data_parallel.rank import Answer, Rank
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.stream import Stream, columns_of
from ampsim.model_parallel.price import Charged
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS

GRADIENT = SENDS.index("gradient")


_Resume: TypeAlias = "Callable[[tuple[_Step, Answer]], None]"


class _Waiting(NamedTuple):
    """Since when a rank waits for a step, after what, and what lets it go on."""

    since_s: float
    cause: Cause
    resume: _Resume


@dataclass(slots=True, eq=False)
class _Step:
    """A step that all ranks take.

    Args:
        began_s: when the K-th gradient was there.
        thetas: the weights after it.
        counts: gradients in each vector.
        due: places of the vectors that it changes.
        batches: of which it has the gradients; none once somebody has made it.
        noted: places of which the update is in the records.
    """

    began_s: float
    thetas: list[Vector]
    counts: list[int]
    due: set[int]
    batches: list[Assignment]
    noted: set[int] = field(default_factory=set[int])


class FirstRanks:
    """An exchange of the first ranks in rounds; an `Exchange`.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
        queue: assigns batches, and takes back those of late ranks.
    """

    def __init__(self, setting: Setting, ranks: Sequence[ModelCopy], queue: BatchQueue) -> None:
        self._setting, self._ranks, self._queue = setting, ranks, queue
        self._awaited = len(ranks) - setting.decisions.backup_ranks
        ((workers, places),) = columns_of(ranks)
        self._stream = Stream(setting, workers, places, self._came)
        self._parts = len(self._stream.buckets)
        self._missing = [self._parts] * len(ranks)
        self._first: list[ModelCopy] = []
        self._in_round: set[int] = set()
        self._idle: dict[int, _Waiting] = {}
        self._coming: list[deque[_Step]] = [deque() for _ in ranks]
        self._here: list[deque[tuple[_Step, float, Cause]]] = [deque() for _ in ranks]

    # what a rank awaits

    async def with_others(self, rank: Rank, cause: Cause) -> Answer:
        """Wait for the step of the first ranks, and make all that have come meanwhile.

        With the K-th gradient a round ends, and late ranks are cancelled.
        """
        one = self._ranks[rank.number]
        wait = self._wait_for_step if one.is_cancelled else self._wait_for_round
        while True:
            step, answer = await until(partial(wait, one, cause))
            cause = await rank.apply(answer)
            for done in step.batches:  # before others go on: the centre is as this step left it
                self._queue.close(done)
            step.batches.clear()
            if not (self._coming[rank.number] or self._here[rank.number]):
                return Answer(cause)
            wait = self._wait_for_step

    def finish(self, rank: Rank) -> None:
        """Let the rank take other batches."""
        rank.forget_gradients()
        rank.steps += 1

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Note who is in the round."""
        self._in_round.add(rank.number)
        self._idle.pop(rank.number, None)

    def end(self, rank: Rank) -> None:
        """Do nothing: all ranks end in the same round, and nobody waits for this one."""

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Do nothing before the gradients of all vectors are there."""

    def weights(self, part: int) -> list[Vector]:
        """The weights of all ranks, whatever the part."""
        return list(self._setting.centre.thetas)

    # a round

    def _wait_for_round(self, rank: ModelCopy, cause: Cause, resume: _Resume) -> None:
        """Wait for what comes of the round; with the K-th gradient it ends."""
        assert rank.assignment is not None
        self._idle[rank.number] = _Waiting(self._setting.clock.now, cause, resume)
        if not rank.assignment.batches:
            return
        self._first.append(rank)
        if len(self._first) == min(self._awaited, self._queue.ranks_in_round):
            self._end_round(rank, cause)

    def _wait_for_step(self, rank: ModelCopy, cause: Cause, resume: _Resume) -> None:
        """Wait for what comes of a round that the rank was late for."""
        self._idle[rank.number] = _Waiting(self._setting.clock.now, cause, resume)
        self._update_next(rank)

    def _end_round(self, last: Rank, cause: Cause) -> None:
        """Make the step of those that are there, and cancel what others do."""
        first, self._first = sorted(self._first, key=lambda one: one.number), []
        first_s = min(self._idle[one.number].since_s for one in first)
        step = self._step_of(first)
        in_round, self._in_round = self._in_round, set()
        for rank in self._ranks:
            self._coming[rank.number].append(step)
            if rank.number not in in_round:
                batches = self._queue.take(rank.number)
                assert batches is not None, "a round has batches, or none, for each rank"
                self._queue.give_back(batches)
        for rank in self._ranks:
            if rank.number in in_round and rank.number not in self._idle:
                assert rank.assignment is not None
                self._queue.give_back(rank.assignment)
                rank.cancel()
        for bucket in range(self._parts):
            self._stream.offer(bucket, first_s, cause, last.number)

    def _take(self, step: _Step, rank: Rank, place: int, now_s: float) -> Charged:
        """Give a rank's vector its value after a step."""
        if not self._setting.is_abstract:
            theta = self._setting.solver.adopt(rank.theta(place), step.thetas[place])
            rank.adopt(place, theta)
        if place in step.due and place not in step.noted:
            step.noted.add(place)
            row = (self._setting.places[place], now_s, step.counts[place], 0.0, 0)
            self._setting.recorder.updates.append(row)
        return None

    def _step_of(self, first: Sequence[Rank]) -> _Step:
        """The mean of these ranks' gradients, applied to the centre."""
        setting, centre = self._setting, self._setting.centre
        batches = [one.assignment for one in first if one.assignment is not None]
        rate = setting.rate(min(batches, key=lambda one: one.first).at)
        due = {place for one in first for place in one.touched}
        counts = [
            sum(one.counts[p] for one in first if p in one.touched)
            for p in range(len(setting.nodes))
        ]
        for place in due:
            if not setting.is_abstract:
                parcel = weighted_mean(
                    [one.gradients[place] for one in first], [one.rows for one in batches]
                )
                assert parcel is not None
                step = centre.step(place, rate, setting.clock.now)
                centre.thetas[place] = setting.solver.merge(centre.thetas[place], parcel, 0.0, step)
            centre.versions[place] += 1
        for rank in first:
            rank.gradients = [None] * len(rank.gradients)
        return _Step(setting.clock.now, list(centre.thetas), counts, due, batches)

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
        waiting = self._idle.pop(rank.number)
        due: set[int] = set()
        for step, came_s, _cause in here:
            self._record(rank, step, waiting.since_s, came_s)
            due |= step.due
        step, came_s, cause = here[-1]
        here.clear()
        last = waiting.cause if waiting.since_s > came_s else cause
        waiting.resume((step, Answer(last, due, partial(self._take, step))))

    def _record(self, rank: Rank, step: _Step, free_s: float, came_s: float) -> None:
        stalled_s = max(0.0, came_s - free_s)
        times = (min(free_s, step.began_s), step.began_s, step.began_s, came_s, came_s, stalled_s)
        waits, size_bytes = ALL if stalled_s else 0, self._stream.size_bytes
        self._setting.recorder.exchanges.append(
            (rank.number, NO_SERVER, GRADIENT, *times, waits, size_bytes, 0, math.nan, False)
        )
