"""An exchange of all ranks, by a collective.

A round begins when the last rank is there. What comes out of it is computed then, in the order
of ranks, so that it depends neither on the algorithm nor on who came first; when each rank has it,
the messages say.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.parameters import Parameters, weighted_mean
from ampsim.data_parallel.rank import Exchange, Rank, Resume, run, until
from ampsim.data_parallel.setting import ADDITION, OUTER, Setting
from ampsim.data_parallel.stream import Bucket, Stream, columns_of
from ampsim.model_parallel.price import Charge, Charged
from ampsim.optim import Vector
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS, WAITS

NO_SERVER = -1
"""In place of a server's worker: a rank exchanges with all others."""

OF_GROUP = -3
"""In place of a server's worker: a rank exchanges with all others of its group.

It is one less in a group within a group, and so on.
"""

ALL = WAITS.index("all")


class AllReduce(Exchange):
    """An exchange of all ranks, in rounds.

    Args:
        setting, ranks: as of `Exchange`.
        group: what the ranks are together; None where no other solver is around.

    Attributes:
        streams: the collectives of each column of workers that host the same nodes.
        counts: gradients of each vector of which some rank had one in the last round.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], group: Rank | None) -> None:
        super().__init__(setting, ranks)
        self._group = group
        self.counts: Counter[int] = Counter()
        self._there: dict[int, Resume] = {}
        self._ready_s = [0.0] * len(ranks)
        self._unrecorded: list[Rank] = []  # of the last round
        self._began_s = self._at = 0.0
        self._distances = [math.nan] * len(ranks)
        self._is_alone = group is not None and len(ranks) == 1
        columns = [] if self._is_alone else columns_of(ranks)
        self.streams = [Stream(setting, *column) for column in columns]
        self._buckets: list[tuple[Stream, Bucket]] = [
            (stream, one) for stream in self.streams for one in stream.buckets
        ]
        self._ends = 1 + len(self._buckets)
        self._size_bytes = sum(bucket.size_bytes for _stream, bucket in self._buckets)

    def _join(self, rank: Rank, cause: Cause, resume: Resume) -> None:
        """Wait for the others; the last one begins the round.

        `resume` is called when the round has begun, and with each bucket that the rank has.
        """
        clock, ranks = self._setting.clock, self._ranks
        self._there[rank.number], self._ready_s[rank.number] = resume, clock.now
        if len(self._there) < len(ranks):
            return
        there, self._there, self._unrecorded = self._there, {}, list(ranks)
        resumes = [there[one.number] for one in ranks]
        self._reduce()
        self._began_s, first_s = clock.now, min(self._ready_s)
        for stream, bucket in self._buckets:
            run(stream.perform(bucket, resumes, first_s, cause, rank.number))
        for go_on in resumes:
            go_on(cause)

    @abstractmethod
    def _reduce(self) -> None:
        """Work out what the round gives, and what the centre is after it."""

    def note_unfinished(self, end_s: float) -> None:
        """Record what the end of the run keeps from ranks without a batch of the last round."""
        for rank in list(self._unrecorded) if self._began_s <= end_s else ():
            self._record(rank, end_s)

    def _record(self, rank: Rank, now_s: float) -> None:
        """Record the exchange of a rank that has all that the round gives it, or is cut now."""
        if self._is_alone:
            return
        self._unrecorded.remove(rank)
        setting, began_s, ready_s = self._setting, self._began_s, self._ready_s[rank.number]
        with_whom = OF_GROUP - setting.level + 1 if setting.level else NO_SERVER
        numbers = (rank.first, with_whom, SENDS.index(setting.decisions.sends))
        stalled_s = now_s - ready_s
        times = (ready_s, began_s, began_s, now_s, now_s, stalled_s, ALL if stalled_s else 0)
        row = (*numbers, *times, self._size_bytes, 0, self._distances[rank.number], False)
        setting.recorder.exchanges.append(row)

    def _take_centre(self, rank: Rank, charged: Charged, place: int, now_s: float) -> Charged:
        """Give a rank's vector the value that all have after the round; return what is charged."""
        setting = self._setting
        if not setting.is_abstract:
            node = rank.nodes[place]
            node.adopt(setting.solver.adopt(node.theta, setting.centre.thetas[place]))
        if rank.number == 0:
            row = (setting.places[place], now_s, self.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)
        return charged


class GradientAllReduce(AllReduce):
    """Ranks that add up all their gradients, and take the same step."""

    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Reduce with all others, and take the centre's weights; a group has the mean instead."""
        cause = await until(partial(self._join, rank, cause), self._ends)
        if rank.members and len(self._ranks) > 1:  # one alone has nothing that its copies have not
            cause = await rank.broadcast(cause)
        self._record(rank, self._setting.clock.now)
        if self._setting.decisions.compression is not None:
            cause = await rank.update_vectors(self.counts, self._add, self._at, cause)
        if self._group is None:
            take = partial(self._take_centre, rank, None)
            cause = await rank.update_vectors(self.counts, take, self._at, cause)
            self._setting.batches.close(batches)
        return cause

    def _reduce(self) -> None:
        """Step along the mean gradient; a rank's counts as many times as it has items."""
        setting, centre, ranks = self._setting, self._setting.centre, self._ranks
        batches = [rank.assignment for rank in ranks if rank.assignment is not None]
        rows, self._at = [one.rows for one in batches], batches[0].at  # of the first of this round
        self.counts = Counter()
        for rank in ranks:
            self.counts.update(rank.counts)
        for place in sorted(self.counts):
            mean = None
            if not setting.is_abstract:
                mean = weighted_mean([rank.gradients[place] for rank in ranks], rows)
                for rank in ranks:
                    rank.gradients[place] = None
            if self._group is not None:
                self._group.gradients[place] = mean
                self._group.counts[place] = self.counts[place]
                continue
            if mean is not None:
                rate = setting.rate(self._at)
                step = partial(centre.step, place, rate, setting.clock.now)
                theta = setting.solver.merge(centre.thetas[place], mean, 0.0, step)
                centre.thetas[place] = theta
            centre.versions[place] += 1

    def _add(self, place: int, _now_s: float) -> Charged:
        """Charge for adding up the entries of all ranks; `_reduce` has their sum."""
        return Charge(ADDITION, (len(self._ranks), self._setting.kept_count(place)))


class OverlappedAllReduce(GradientAllReduce):
    """A bucket is reduced as soon as all ranks have its gradients, beside the backward pass."""

    def __init__(self, setting: Setting, ranks: Sequence[Rank], group: Rank | None) -> None:
        super().__init__(setting, ranks, group)
        self._early, self._ends = self._buckets, 1
        self._buckets = []  # none begins with the round
        self._bucket_of = {
            place: number
            for number, (_stream, bucket) in enumerate(self._early)
            for place in bucket.places
        }
        self._noted = [0] * len(self._early)
        self._since_s: list[dict[int, float]] = [{} for _ in self._early]
        self._parts = 1 + len(self._early)
        self._missing = [self._parts] * len(ranks)
        self._resumes: dict[int, Resume] = {}

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Reduce a bucket when all ranks have the gradients of its vectors."""
        number = self._bucket_of[place]
        stream, bucket = self._early[number]
        since_s = self._since_s[number]
        since_s[rank.number] = self._setting.clock.now
        self._noted[number] += 1
        if self._noted[number] == len(self._ranks) * len(bucket.places):
            self._noted[number], self._since_s[number] = 0, {}
            ends = [partial(self._came, one.number) for one in self._ranks]
            run(stream.perform(bucket, ends, min(since_s.values()), cause, rank.number))

    def _join(self, rank: Rank, cause: Cause, resume: Resume) -> None:
        """Wait for the others, and for what is still under way."""
        self._resumes[rank.number] = resume
        if rank.assignment is not None and not rank.assignment.batches:
            for place in reversed(range(len(rank.nodes))):
                self.computed(rank, place, cause)
        super()._join(rank, cause, partial(self._came, rank.number))

    def _came(self, number: int, cause: Cause) -> None:
        """Let a rank go on when the round has begun and it has all buckets."""
        self._missing[number] -= 1
        if not self._missing[number]:
            self._missing[number] = self._parts
            self._resumes.pop(number)(cause)


class WeightAllReduce(AllReduce):
    """Ranks step by themselves, and take part of the mean of their weights every so often.

    Args:
        setting, ranks, group: as of `AllReduce`.
        outer: makes the centre's own steps, where the solver has them.
    """

    def __init__(
        self, setting: Setting, ranks: Sequence[Rank], group: Rank | None, outer: Parameters
    ) -> None:
        super().__init__(setting, ranks, group)
        self._outer = outer
        self._period = setting.solver.assignments_per_exchange
        self._steps, self._rows = [0] * len(ranks), [0] * len(ranks)  # since they last reduced
        self._before: Mapping[int, Vector | None] = {}
        self._reduced_at_end: dict[int, list[Vector]] = {}  # by part of the training
        self._at_end: dict[int, dict[int, list[Vector]]] = {}  # and by rank
        self._next_part = 0

    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Step alone, or reduce with all others before the rank's step or after it."""
        number, steps_first = rank.number, self._setting.decisions.steps_first
        self._rows[number] += batches.rows
        self._steps[number] += 1
        is_due = self._steps[number] % self._period == 0 or batches.is_last
        if not is_due or (steps_first and rank.counts):
            cause = await rank.update_vectors(
                rank.counts, partial(rank.step, None), batches.at, cause
            )
        if is_due:
            self._steps[number] = 0
            cause = await until(partial(self._join, rank, cause), self._ends)
            if rank.members and len(self._ranks) > 1:
                cause = await rank.broadcast(cause)
            self._record(rank, self._setting.clock.now)
            cause = await self._take(rank, batches, cause)
        if steps_first:
            self._note_end(rank, batches, has_reduced=is_due)
        self._setting.batches.close(batches)
        return cause

    async def _take(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Let a rank have what the round gave: its step, the centre's, or weights at no cost."""
        setting, decisions = self._setting, self._setting.decisions
        every = range(len(rank.nodes))
        if not decisions.steps_first:
            step = partial(rank.step, self._before if decisions.is_elastic else None)
            return await rank.update_vectors(every, step, batches.at, cause)
        if decisions.has_outer_step:
            method = self._outer.optimizer
            own = rank.own.optimizer.stage(setting.rate(batches.at))
            more = 1 + method.arrays - own.arrays  # which rest
            charge = Charge(OUTER, (method.arrays, *method.calls), more)
            take = partial(self._take_centre, rank, charge)
            return await rank.update_vectors(every, take, batches.at, cause)
        if not setting.is_abstract:
            for node, theta in zip(rank.nodes, setting.centre.thetas, strict=True):
                node.adopt(setting.solver.adopt(node.theta, theta))
        return cause if self._group is not None else rank.note_adoption(cause)

    def _reduce(self) -> None:
        """Step from the mean of all weights; without a spring, each counts by its items."""
        setting, decisions, ranks = self._setting, self._setting.decisions, self._ranks
        centre, rows = setting.centre, self._rows
        self._before, self._rows = dict(enumerate(centre.thetas)), [0] * len(ranks)
        if setting.is_abstract:
            return
        self._distances = [distance_of(rank, centre.thetas) for rank in ranks]
        maker, rate = self._outer, self._outer.optimizer.rate(0)
        if not decisions.has_outer_step:  # the rate of the first batches of this round
            assert ranks[0].assignment is not None
            maker, rate = centre, setting.rate(ranks[0].assignment.at)
        for place in range(len(setting.nodes)):
            thetas = [rank.nodes[place].theta for rank in ranks]
            mean = weighted_mean(thetas, [1] * len(ranks) if decisions.is_elastic else rows)
            assert mean is not None
            step = partial(maker.step, place, rate, setting.clock.now)
            pull = setting.pull * len(ranks)
            centre.thetas[place] = setting.solver.merge(centre.thetas[place], mean, pull, step)
            centre.versions[place] += 1

    def weights(self, part: int) -> list[Vector]:
        """The weights after a part: the centre's, or the mean of all ranks where they step alone.

        Each rank's are those of its last step of the part; it may have gone on. One without a batch
        to which the last round's are still on their way has these.
        """
        setting, self._next_part = self._setting, part + 1
        if setting.is_abstract or not setting.decisions.steps_first:
            return list(setting.centre.thetas)
        reduced, at_end = self._reduced_at_end.pop(part, None), self._at_end.pop(part, {})
        if reduced is not None:
            return reduced
        centre, steps = setting.centre.thetas, self._steps
        of_ranks = [thetas_of(one) if steps[one.number] else centre for one in self._ranks]
        return mean_of([at_end.get(rank, thetas) for rank, thetas in enumerate(of_ranks)])

    def _note_end(self, rank: Rank, batches: Assignment, *, has_reduced: bool) -> None:
        """Keep the weights of a rank that has done all that it does for a part of the training."""
        setting = self._setting
        if setting.is_abstract or not batches.ends_part or batches.part < self._next_part:
            return
        if has_reduced:
            self._reduced_at_end[batches.part] = list(setting.centre.thetas)
        else:
            self._at_end.setdefault(batches.part, {})[rank.number] = thetas_of(rank)


def all_reduce_of(
    setting: Setting, ranks: Sequence[Rank], outer: Parameters, group: Rank | None = None
) -> AllReduce:
    """An exchange of all ranks, by what they send; `outer` is of those that send weights."""
    if setting.decisions.sends == "weights":
        return WeightAllReduce(setting, ranks, group, outer)
    is_alone = group is not None and len(ranks) == 1
    is_overlapped = setting.decisions.overlap and not is_alone
    return (OverlappedAllReduce if is_overlapped else GradientAllReduce)(setting, ranks, group)


def thetas_of(rank: Rank) -> list[Vector]:
    """A rank's weights, of all nodes that learn."""
    return [node.theta for node in rank.nodes]


def mean_of(of_ranks: Sequence[Sequence[Vector]]) -> list[Vector]:
    """The mean of all ranks' weights, of each vector; one vector that all have, as it is."""
    thetas: list[Vector] = []
    for vectors in zip(*of_ranks, strict=True):
        alike = all(one is vectors[0] for one in vectors)
        mean = vectors[0] if alike else weighted_mean(vectors, [1] * len(vectors))
        assert mean is not None
        thetas.append(mean)
    return thetas


def distance_of(rank: Rank, thetas: Sequence[Vector]) -> float:
    """The distance of a rank's weights from others, over all vectors together."""
    square = 0.0
    for own, theta in zip(thetas_of(rank), thetas, strict=True):
        apart = own - theta
        square += float(apart.dot(apart))
    return math.sqrt(square)
