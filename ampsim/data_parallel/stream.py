"""Vectors that a collective sends in hops, one after the other.

A bucket is a message that several layers share. Buckets go in the order in which they are offered,
each when the one before it has ended: with e the end, r when all ranks have a bucket's gradients
and t what its collective takes, e_l = max(e_(l+1), r_l) + t_l from the last layer to the first.

Source: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 2020, Section 3.2: gradients are put into buckets in the reverse order of the layers, and a
bucket that is full is reduced while the backward pass goes on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from ampsim.data_parallel.collectives import ALL_GATHER, BROADCAST, COLLECTIVES, Collective, Hop
from ampsim.data_parallel.rank import Rank, Resume, until
from ampsim.data_parallel.setting import Setting
from ampsim.hardware import Way
from ampsim.trace import Cause, record_of


def columns_of(ranks: Sequence[Rank]) -> list[tuple[list[int], list[int]]]:
    """The workers that host the same nodes, one of each rank, and the vectors that lie there."""
    each = [rank.vectors_on() for rank in ranks]
    first = list(each[0].items())
    columns: list[tuple[list[int], list[int]]] = []
    for position, (_worker, places) in enumerate(first):
        columns.append(([list(one)[position] for one in each], places))
    return columns


def uniform_way(setting: Setting, workers: Sequence[int]) -> Way | None:
    """The way between any two, where all are alike and nobody else's messages are on them.

    None where they are not, and only messages tell how long a collective takes.
    """
    cluster = setting.cluster
    if cluster.has_shared_bandwidth or cluster.messages is not None:
        return None
    if len(workers) == 1:
        return Way(0.0, ())
    chosen, pairs = set(workers), len(workers) * (len(workers) - 1)
    own = [one.link for one in cluster.links if one.source in chosen and one.target in chosen]
    is_uniform = not own or (len(own) == pairs and all(one == own[0] for one in own))
    return cluster.way_between(workers[0], workers[1]) if is_uniform else None


class HopRun:
    """The hops of one collective.

    Args:
        hops: all of them.
        workers: of each rank.
        part_bytes: of one part of the vector.
        setting: the machine.
        done: called with a rank and a cause when the last hop has come to it.
    """

    def __init__(
        self,
        hops: Sequence[Hop],
        workers: Sequence[int],
        part_bytes: int,
        setting: Setting,
        done: Callable[[int, Cause], None],
    ) -> None:
        self._hops, self._workers, self._part_bytes = hops, workers, part_bytes
        self._setting, self._nodes = setting, (setting.centre_place, setting.centre_place)
        self._done = done
        self._missing = [len(hop.after) for hop in hops]
        self._next: list[list[int]] = [[] for _ in hops]
        self._coming = [0] * len(workers)
        for number, hop in enumerate(hops):
            self._coming[hop.target] += 1
            for before in hop.after:
                self._next[before].append(number)
        self._ready: deque[tuple[int, Cause]] = deque()
        self._is_sending = False

    def start(self, cause: Cause) -> None:
        """Send what waits for nothing; whoever waits for nothing goes on after that."""
        self._ready += [(number, cause) for number, left in enumerate(self._missing) if not left]
        self._ready += [(~rank, cause) for rank, coming in enumerate(self._coming) if not coming]
        self._send_ready()

    def _send_ready(self) -> None:
        """Send what is ready; on free links that makes more ready, one after the other.

        A rank that has the result, ~rank, goes on when it has sent its last.
        """
        if self._is_sending:
            return
        self._is_sending = True
        while self._ready:
            number, cause = self._ready.popleft()
            if number < 0:
                self._done(~number, cause)
                continue
            hop = self._hops[number]
            ends = (self._workers[hop.source], self._workers[hop.target])
            size_bytes = round(hop.parts * self._part_bytes)
            arrive = partial(self._arrived, number)
            self._setting.fabric.send(ends, size_bytes, self._nodes, cause, arrive)
        self._is_sending = False

    def _arrived(self, number: int, cause: Cause) -> None:
        for following in self._next[number]:
            self._missing[following] -= 1
            if not self._missing[following]:
                self._ready.append((following, cause))
        target = self._hops[number].target
        self._coming[target] -= 1
        if not self._coming[target]:
            self._ready.append((~target, cause))
        self._send_ready()


class ReachedRanks(NamedTuple):
    """Ranks that a collective on idle links, all alike, gives its result at one time.

    Args:
        ranks: those.
        seconds: how long after the ranks of the level before it, or after the beginning.
        held_s: how long links are held then.
    """

    ranks: Sequence[int]
    seconds: float
    held_s: float


class Bucket(NamedTuple):
    """Vectors that a collective sends together, and how.

    Args:
        places: of the vectors.
        collective: the algorithm.
        size_bytes: of the vectors, or of what each rank has of them.
        part_bytes: of one part, padded.
        formula_s: how long it takes on idle links that are all alike; NaN where they are not.
        levels: who has the result when then, one after the other.
        kind: its place among the recorder's kinds of collectives; -1 where it goes by messages.
    """

    places: Sequence[int]
    collective: Collective
    size_bytes: int
    part_bytes: int
    formula_s: float
    levels: Sequence[ReachedRanks]
    kind: int


def buckets_of(places: Sequence[int], setting: Setting) -> list[list[int]]:
    """The vectors of each bucket, from the last layer to the first.

    A bucket is full when it has `bucket_bytes`: 0 is one a layer, None one for all.
    """
    limit = setting.decisions.bucket_bytes
    if limit is None:
        return [list(places)]
    buckets: list[list[int]] = [[]]
    for place in reversed(places):
        if buckets[-1] and sum(map(setting.sent_bytes_of, buckets[-1])) >= limit:
            buckets.append([])
        buckets[-1].append(place)
    return buckets


_Row: TypeAlias = tuple[int, int, float, float, float, float, bool]


class Stream:
    """Collectives between the workers that host the same nodes, one of each rank.

    Args:
        setting: what ranks have in common.
        workers: one of each rank.
        places: of the vectors that lie there.

    Attributes:
        buckets: what is reduced.
        whole: all vectors, as the first rank sends them to the others.
    """

    def __init__(self, setting: Setting, workers: Sequence[int], places: Sequence[int]) -> None:
        self._setting, self._workers = setting, workers
        is_whole = setting.decisions.compression is None
        collective = COLLECTIVES[setting.decisions.collective] if is_whole else ALL_GATHER
        self._way = uniform_way(setting, workers)
        self.buckets = [
            self._bucket(collective, one, sum(map(setting.sent_bytes_of, one)))
            for one in buckets_of(places, setting)
        ]
        self.whole = self._bucket(BROADCAST, places, sum(map(setting.bytes_of, places)))
        self._waiting: deque[Resume] = deque()
        self._is_busy = False
        self._under_way: _Row | None = None
        setting.at_end.append(self._note_unfinished)

    def _note_unfinished(self, end_s: float) -> None:
        """Record a collective that the end of the run cuts at `end_s`."""
        row = self._under_way
        if row is not None and row[3] <= end_s:
            self._setting.recorder.collectives.append((*row[:4], end_s, *row[5:]))

    async def perform(
        self, bucket: Bucket, came: Sequence[Resume], first_s: float, cause: Cause, last: int = 0
    ) -> None:
        """Run a collective when those before it have ended; the next begins when it has.

        It is one event where its formula holds, else message by message.

        Args:
            bucket: what is sent.
            came: for each rank, called with a cause when it has what the collective gives.
            first_s: when the first rank was ready.
            cause: what brought the last.
            last: the rank that was last.
        """
        if self._is_busy:
            cause = await until(self._waiting.append)
        self._is_busy = True
        setting, workers, count = self._setting, self._workers, len(self._workers)
        start_s, formula_s, ranks = setting.clock.now, bucket.formula_s, range(count)
        end_s, has_formula = start_s + formula_s, self._way is not None
        row = (count, bucket.size_bytes, first_s, start_s, end_s, formula_s, has_formula)
        self._under_way = row
        if self._way is None:
            rank, cause = await until(partial(self._start_hops, bucket, came, cause))
            ranks, row = (rank,), (*row[:4], setting.clock.now, *row[5:])
        is_event = formula_s > 0  # not NaN
        for place, level in enumerate(bucket.levels if is_event else ()):
            if place:
                for rank in ranks:  # of the level before
                    came[rank](cause)
                setting.instant.settle()
            ranks, now_s = level.ranks, setting.clock.now
            if not level.seconds:  # the first rank of a broadcast
                continue
            ends = (workers[last], workers[(last + 1) % count])
            times = (now_s, now_s + level.seconds, now_s, now_s + level.held_s)
            sent = (*(setting.centre_place,) * 2, bucket.size_bytes, *times, *ends, cause)
            cause = setting.fabric.transfers.add(sent)
            setting.recorder.stand_ins.add(record_of(cause)[1], bucket.kind)
            await until(partial(setting.clock.call_later, level.seconds))
        setting.recorder.collectives.append(row)
        self._under_way, self._is_busy = None, False
        if self._waiting:
            self._waiting.popleft()(cause)
        for rank in ranks:
            came[rank](cause)
        if is_event:
            setting.instant.settle()

    def _start_hops(
        self, bucket: Bucket, came: Sequence[Resume], cause: Cause, resume: Resume
    ) -> None:
        """Send message by message; `resume` with the last rank and the cause that it has."""
        left = len(self._workers)

        def done(rank: int, cause: Cause) -> None:
            nonlocal left
            left -= 1
            if left:
                came[rank](cause)
            else:
                resume((rank, cause))

        hops = bucket.collective.hops(left, self._setting.decisions.ranks_per_group)
        HopRun(hops, self._workers, bucket.part_bytes, self._setting, done).start(cause)

    def _bucket(self, collective: Collective, places: Sequence[int], size_bytes: int) -> Bucket:
        setting, count, part_bytes = self._setting, len(self._workers), size_bytes
        group = setting.decisions.ranks_per_group
        item_bytes, parts = setting.nodes[0].theta.itemsize, collective.parts(count, group)
        if parts > 1:
            part_bytes = -(-size_bytes // item_bytes // parts) * item_bytes
        formula_s, levels, kind = math.nan, list[ReachedRanks](), -1
        if self._way is not None:
            latency_s, rate = self._way.latency_s, self._way.narrowest_bytes_per_s or math.inf
            how = (count, group, part_bytes * parts)
            formula_s = collective.seconds(*how, latency_s, rate)
            held_s = collective.seconds(*how, 0.0, rate)
            levels = levels_of(
                collective.turns_down(count, group),
                (formula_s, held_s),
                (latency_s + part_bytes * parts / rate, part_bytes * parts / rate),
            )
            kind = self._kind(collective, part_bytes / rate / held_s if held_s else 0.0)
        return Bucket(places, collective, size_bytes, part_bytes, formula_s, levels, kind)

    def _kind(self, collective: Collective, share: float) -> int:
        """Tell the recorder which links a collective holds, each part for a share of its time."""
        workers, group = self._workers, self._setting.decisions.ranks_per_group
        ways, way = self._setting.recorder.stand_ins.ways, dict[tuple[int, int], float]()
        if share:
            for (source, target), parts in collective.parts_on(len(workers), group).items():
                way[workers[source], workers[target]] = parts * share
        ways.append(way)
        return len(ways) - 1


def levels_of(
    turns: Sequence[int], whole: tuple[float, float], each: tuple[float, float]
) -> list[ReachedRanks]:
    """Ranks by when they have a result.

    Args:
        turns: for each rank, the messages of a whole vector that bring it the result.
        whole: seconds of all, and for how long links are held.
        each: the same of one message.
    """
    levels, past = list[ReachedRanks](), (0.0, 0.0)
    for count in sorted(set(turns)):
        ranks = [rank for rank, own in enumerate(turns) if own == count]
        left = max(turns) - count
        now = whole[0] - left * each[0], whole[1] - left * each[1]
        levels.append(ReachedRanks(ranks, now[0] - past[0], now[1] - past[1]))
        past = now
    return levels
