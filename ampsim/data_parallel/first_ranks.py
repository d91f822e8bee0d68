"""An all-reduce of the first K ranks: what comes of the gradients, and of who is late.

All ranks take part in the collective, which begins when the K-th gradient is there; who is late
brings nothing to it. What a late rank does is cancelled (`ampsim.data_parallel.solvers.sync_sgd`
says why). A rank may be so late that it has not made the last update yet: it has no batch then, and
makes the newest update of all that have come to it when it is free.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from ampsim.data_parallel.all_reduce import ALL, NO_SERVER
from ampsim.data_parallel.batch_queue import Assignment, BatchQueue
from ampsim.data_parallel.parameters import weighted_mean
from ampsim.data_parallel.rank import Exchange, ModelCopy, Rank, VectorStep, run, until
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.stream import Stream, columns_of
from ampsim.model_parallel.price import Charged
from ampsim.optim import Vector
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS

GRADIENT = SENDS.index("gradient")


_Update: TypeAlias = "tuple[_Step, Cause, set[int]]"
"""The newest step, what brought it, and the places of the vectors that it or others change."""

_Resume: TypeAlias = Callable[[_Update], None]


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
        at: of its first batch, in epochs.
        thetas: the weights after it.
        counts: gradients in each vector that it changes.
        batches: of which it has the gradients; none once somebody has made it.
        noted: places of which the update is in the records.
    """

    began_s: float
    at: float
    thetas: list[Vector]
    counts: Counter[int]
    batches: list[Assignment]
    noted: set[int] = field(default_factory=set[int])


class FirstRanks(Exchange):
    """An exchange of the first ranks, in rounds.

    Args:
        setting, ranks: as of `Exchange`.
        queue: assigns batches, and takes back those of late ranks.
    """

    def __init__(self, setting: Setting, ranks: Sequence[ModelCopy], queue: BatchQueue) -> None:
        super().__init__(setting, ranks)
        self._copies, self._queue = ranks, queue
        self._awaited = len(ranks) - setting.decisions.backup_ranks
        (column,) = columns_of(ranks)
        self._stream = Stream(setting, *column)
        self._size_bytes = sum(bucket.size_bytes for bucket in self._stream.buckets)
        self._parts = len(self._stream.buckets)
        self._missing = [self._parts] * len(ranks)
        self._first: list[ModelCopy] = []
        self._in_round: set[int] = set()
        self._idle: dict[int, _Waiting] = {}
        self._coming: list[deque[_Step]] = [deque() for _ in ranks]
        self._here: list[deque[tuple[_Step, float, Cause]]] = [deque() for _ in ranks]

    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Wait for the step of the first ranks, and make all that have come meanwhile.

        With the K-th gradient a round ends, and late ranks are cancelled.
        """
        one = self._copies[rank.number]
        wait = self._wait_for_step if one.is_cancelled else self._wait_for_round
        while True:
            step, cause, due = await until(partial(wait, one, cause))
            take: VectorStep = partial(self._take, step, rank)
            cause = await rank.update_vectors(due, take, step.at, cause)
            for done in step.batches:  # before others go on: the centre is as this step left it
                self._queue.close(done)
            step.batches.clear()
            if not (self._coming[rank.number] or self._here[rank.number]):
                return cause
            wait = self._wait_for_step

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Note who is in the round."""
        self._in_round.add(rank.number)
        self._idle.pop(rank.number, None)

    def note_unfinished(self, end_s: float) -> None:
        """Record steps that are on their way to ranks, or come to ranks that are not free."""
        for number, rank in enumerate(self._ranks):
            free_s = self._idle[number].since_s if number in self._idle else end_s
            here = [(step, came_s) for step, came_s, _cause in self._here[number]]
            for step, came_s in [*here, *((step, end_s) for step in self._coming[number])]:
                if step.began_s <= end_s:
                    self._record(rank, step, free_s, came_s)

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
        for rank in self._copies:
            self._coming[rank.number].append(step)
            if rank.number not in in_round:
                batches = self._queue.take(rank.number)
                assert batches is not None, "a round has batches, or none, for each rank"
                self._queue.give_back(batches)
        for rank in self._copies:
            if rank.number in in_round and rank.number not in self._idle:
                assert rank.assignment is not None
                self._queue.give_back(rank.assignment)
                rank.cancel()
        came = [partial(self._came, rank.number) for rank in self._ranks]
        for bucket in self._stream.buckets:
            run(self._stream.perform(bucket, came, first_s, cause, last.number))

    def _take(self, step: _Step, rank: Rank, place: int, now_s: float) -> Charged:
        """Give a rank's vector its value after a step."""
        if not self._setting.is_abstract:
            node = rank.nodes[place]
            node.adopt(self._setting.solver.adopt(node.theta, step.thetas[place]))
        if place in step.counts and place not in step.noted:
            step.noted.add(place)
            row = (self._setting.places[place], now_s, step.counts[place], 0.0, 0)
            self._setting.recorder.updates.append(row)
        return None

    def _step_of(self, first: Sequence[Rank]) -> _Step:
        """The mean of these ranks' gradients, applied to the centre."""
        setting, centre = self._setting, self._setting.centre
        batches = [one.assignment for one in first if one.assignment is not None]
        at = min(batches, key=lambda one: one.first).at
        rate = setting.rate(at)
        now_s, rows = setting.clock.now, [one.rows for one in batches]
        counts: Counter[int] = Counter()
        for rank in first:
            counts.update(rank.counts)
        for place in sorted(counts):
            if not setting.is_abstract:
                mean = weighted_mean([one.gradients[place] for one in first], rows)
                for rank in first:
                    rank.gradients[place] = None
                assert mean is not None
                step = partial(centre.step, place, rate, now_s)
                centre.thetas[place] = setting.solver.merge(centre.thetas[place], mean, 0.0, step)
            centre.versions[place] += 1
        return _Step(now_s, at, list(centre.thetas), counts, batches)

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
            due |= step.counts.keys()
        step, came_s, cause = here[-1]
        here.clear()
        last = waiting.cause if waiting.since_s > came_s else cause
        waiting.resume((step, last, due))

    def _record(self, rank: Rank, step: _Step, free_s: float, came_s: float) -> None:
        stalled_s = max(0.0, came_s - free_s)
        times = (min(free_s, step.began_s), step.began_s, step.began_s, came_s, came_s, stalled_s)
        waits, size_bytes = ALL if stalled_s else 0, self._size_bytes
        self._setting.recorder.exchanges.append(
            (rank.number, NO_SERVER, GRADIENT, *times, waits, size_bytes, 0, math.nan, False)
        )
