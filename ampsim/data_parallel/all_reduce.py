"""An exchange of all ranks, by a collective.

A round begins when the last rank is there. What comes out of it is computed then, in the order
of ranks, so that it depends neither on the algorithm nor on who came first; when each rank has it,
the messages say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ampsim.data_parallel.coroutine import Resume, until
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.parameters import Parameters, weighted_mean
from ampsim.data_parallel.rank import Answer, Rank
from ampsim.data_parallel.setting import ADDITION, ELASTIC, PULL, Setting
from ampsim.data_parallel.stream import Readiness, Stream, columns_of
from ampsim.model_parallel.price import Charge, Charged
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS, WAITS


class Gathered(Protocol):
    """What ranks are together, where they are a group."""

    def take(self, place: int, gradient: Vector) -> None:
        """Have the mean gradient of the vector at `place`."""
        ...


def thetas_of(rank: Rank) -> list[Vector]:
    """A rank's weights, of all nodes that learn."""
    return [rank.theta(place) for place in range(len(rank.gradients))]


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
    """How far a rank's weights are from others, of all vectors together."""
    square = 0.0
    for place, theta in enumerate(thetas):
        apart = rank.theta(place) - theta
        square += float(apart.dot(apart))
    return math.sqrt(square)


NO_SERVER = -1
"""In place of a server's worker: a rank exchanges with all others."""

OF_GROUP = -3
"""In place of a server's worker: a rank exchanges with all others of its group.

It is one less in a group within a group, and so on.
"""

ALL = WAITS.index("all")


@dataclass(slots=True)
class _Ended:
    """The weights with which a part of the training ends.

    Args:
        centre: where all reduced after their last step of it; else None.
        of_rank: of each rank after that step, where they did not.
    """

    centre: list[Vector] | None = None
    of_rank: dict[int, list[Vector]] = field(default_factory=dict[int, "list[Vector]"])


class AllReduce:
    """An exchange of all ranks, in rounds; an `Exchange`.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
        outer: makes the centre's own steps, where the solver has them.
        group: what the ranks are together; None where no other solver is around.

    Attributes:
        due: places of vectors of which some rank had a gradient in the last round.
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
        decisions = setting.decisions
        self._period = setting.solver.assignments_per_exchange
        self._there: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self._resumes: dict[int, Resume] = {}
        self._before: list[Vector | None] = []
        self.due: set[int] = set()
        self.counts = [0] * len(setting.nodes)
        self._began_s = 0.0
        self._reduced: set[int] = set()
        self._distances = [math.nan] * len(ranks)
        self._ended: dict[int, _Ended] = {}
        self._next_part = 0
        self._is_alone = group is not None and len(ranks) == 1
        self._gives_gradient = group is not None and decisions.sends == "gradient"
        self._streams = [
            Stream(setting, workers, places, self._came)
            for workers, places in ([] if self._is_alone else columns_of(ranks))
        ]
        is_early = decisions.overlap and not self._is_alone
        self._ready_early = Readiness(self._streams, ranks) if is_early else None
        self._parts = 1 + sum(len(stream.buckets) for stream in self._streams)
        self._missing = [self._parts] * len(ranks)

    # what a rank awaits

    async def with_others(self, rank: Rank, cause: Cause) -> Answer:
        """Reduce with all others before the rank's step or after it, or let it step alone."""
        decisions = self._setting.decisions
        alone = Answer(cause, rank.touched, self._step_alone)
        if decisions.steps_first:
            alone = Answer(await rank.apply(alone))
        batches, is_full = rank.assignment, (rank.steps + 1) % self._period == 0
        if not is_full and not (batches is not None and batches.is_last):
            return alone
        if decisions.steps_first:
            rank.forget_gradients()
        cause = await until(partial(self._arrive, rank, alone.cause))
        if (
            rank.members and len(self._ranks) > 1
        ):  # one rank has nothing from others that its copies do not have
            cause = await rank.broadcast(cause)
        if not self._is_alone:
            self._record(rank)
        if self._setting.decisions.compression is not None:
            cause = await rank.serve(cause, self.due, self._add)
        return self._answer(rank, cause)

    def _answer(self, rank: Rank, cause: Cause) -> Answer:
        """What a rank does with what the round gave."""
        setting, decisions = self._setting, self._setting.decisions
        if self._gives_gradient:
            return Answer(cause)  # to the group, which exchanges it
        self._reduced.add(rank.number)
        if decisions.sends == "gradient":
            return Answer(cause, self.due, self._take_centre)
        every = range(len(setting.nodes))
        if decisions.has_outer_step:
            return Answer(cause, every, self._take_centre if decisions.steps_first else self._step)
        if not decisions.steps_first:
            return Answer(cause, every, self._step)
        if not setting.is_abstract:
            for place, theta in enumerate(setting.centre.thetas):
                rank.adopt(place, setting.solver.adopt(rank.theta(place), theta))
        return Answer(cause)

    def finish(self, rank: Rank) -> None:
        """Keep what is validated of the rank, and count its batches as done."""
        if self._gives_gradient:
            return
        has_reduced = rank.number in self._reduced
        if self._setting.decisions.steps_first:
            self._note_end(rank, has_reduced=has_reduced)
        assert rank.assignment is not None
        self._setting.batches.close(rank.assignment)
        self._reduced.discard(rank.number)
        rank.forget_gradients()
        rank.steps = 0 if has_reduced else rank.steps + 1

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Do nothing before the gradient is there."""

    def end(self, rank: Rank) -> None:
        """Do nothing: all ranks end in the same round, and nobody waits for this one."""

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Reduce a bucket beside the backward pass, when all ranks have its gradients."""
        if self._ready_early is not None:
            self._ready_early.note(rank.number, place, self._setting.clock.now, cause)

    # what its group and the engine ask

    @property
    def columns(self) -> int:
        """How many collectives a round has at least: of the workers that host the same nodes."""
        return len(self._streams)

    def spread(self, cause: Cause, came: Callable[[int, Cause], None]) -> None:
        """Send the vectors of the first rank to the others; `came` is told of each column."""
        for stream in self._streams:
            stream.spread(cause, came)

    def weights(self, part: int) -> list[Vector]:
        """What ranks have learned in a part: the centre, or the mean of ranks that step since.

        Each rank's are those of its last step of the part; it may have gone on.
        """
        setting, self._next_part = self._setting, part + 1
        if setting.is_abstract or not setting.decisions.steps_first:
            return list(setting.centre.thetas)
        ended = self._ended.pop(part, None) or _Ended()
        if ended.centre is not None:
            return ended.centre
        return mean_of([ended.of_rank.get(one.number) or thetas_of(one) for one in self._ranks])

    # the steps of one vector

    def _take_centre(self, rank: Rank, place: int, now_s: float) -> Charged:
        """Give a rank's vector the value that all have after the round."""
        setting = self._setting
        theta = None if setting.is_abstract else setting.centre.thetas[place]
        if theta is not None:
            rank.adopt(place, setting.solver.adopt(rank.theta(place), theta))
        if rank.number == 0:
            row = (setting.places[place], now_s, self.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)
        return None

    def _step_alone(self, rank: Rank, place: int, now_s: float) -> Charged:
        """Step along a rank's own gradient."""
        rank.step(place, now_s, None)
        return None

    def _step(self, rank: Rank, place: int, now_s: float) -> Charged:
        """Step along a rank's own gradient, with a pull towards the centre before the round."""
        if not self._setting.decisions.is_elastic:
            return self._step_alone(rank, place, now_s)
        rank.step(place, now_s, self._before[place])
        return ELASTIC if place in rank.touched else PULL

    def _add(self, place: int, _now_s: float) -> Charged:
        """Charge for adding up the entries of all ranks; `_combine` has their sum."""
        return Charge(ADDITION, (len(self._ranks), self._setting.kept_count(place)))

    # a round

    def _arrive(self, rank: Rank, cause: Cause, resume: Resume) -> None:
        """Wait for the others; the last one starts the collective."""
        self._resumes[rank.number] = resume
        if self._ready_early is not None and rank.assignment and not rank.assignment.batches:
            for place in range(len(self._setting.nodes)):
                self.computed(rank, place, cause)
        self._there[rank.number] = self._setting.clock.now
        if len(self._there) < len(self._ranks):
            return
        self._ready, self._there = self._there, {}
        self._combine()
        self._began_s = self._setting.clock.now
        if self._ready_early is None:
            first_s = min(self._ready.values())
            for stream in self._streams:
                for bucket in range(len(stream.buckets)):
                    stream.offer(bucket, first_s, cause, rank.number)
        for number in range(len(self._ranks)):
            self._came(number, cause)

    def _came(self, number: int, cause: Cause) -> None:
        """Let a rank go on that has the last part of what the round gives it."""
        self._missing[number] -= 1
        if not self._missing[number]:
            self._missing[number] = self._parts
            self._resumes.pop(number)(cause)

    def _note_end(self, rank: Rank, *, has_reduced: bool) -> None:
        """Keep the weights of a rank that has done all that it does for a part of the training."""
        setting, batches = self._setting, rank.assignment
        if batches is None or not batches.ends_part or batches.part < self._next_part:
            return
        if setting.is_abstract:
            return
        ended = self._ended.setdefault(batches.part, _Ended())
        if has_reduced:
            ended.centre = list(setting.centre.thetas)
        else:
            ended.of_rank[rank.number] = thetas_of(rank)

    def _record(self, rank: Rank) -> None:
        setting, ready_s = self._setting, self._ready[rank.number]
        now_s = setting.clock.now
        sends = SENDS.index(setting.decisions.sends)
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
        decisions, setting = self._setting.decisions, self._setting
        self.due = set().union(*(rank.touched for rank in self._ranks))
        for place in self.due:
            counts = (rank.counts[place] for rank in self._ranks if place in rank.touched)
            self.counts[place] = sum(counts)
        self._before = list(setting.centre.thetas)
        if not setting.is_abstract:
            if decisions.sends == "weights":
                self._distances = [distance_of(rank, setting.centre.thetas) for rank in self._ranks]
            for place in range(len(setting.nodes)):
                self._combine_vector(place)
        elif decisions.sends == "gradient":
            for place in self.due:
                setting.centre.versions[place] += 1
        for rank in self._ranks:
            rank.rows = 0

    def _combine_vector(self, place: int) -> None:
        setting, decisions, ranks = self._setting, self._setting.decisions, self._ranks
        if decisions.sends == "gradient":
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
            weights = [1 if decisions.is_elastic else rank.rows for rank in ranks]
            parcel = weighted_mean([rank.theta(place) for rank in ranks], weights)
            pull = setting.pull * len(ranks)
        assert parcel is not None
        centre = setting.centre
        maker, rate = self._outer, self._outer.optimizer.rate(0)
        if not decisions.has_outer_step:  # the rate of the first batches of this round
            batches = [rank.assignment for rank in ranks if rank.assignment is not None]
            maker, rate = centre, setting.rate(batches[0].at)
        step = maker.step(place, rate, setting.clock.now)
        centre.thetas[place] = setting.solver.merge(centre.thetas[place], parcel, pull, step)
        centre.versions[place] += 1
