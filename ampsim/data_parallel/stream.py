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
from typing import NamedTuple

from ampsim.data_parallel.collectives import ALL_GATHER, BROADCAST, COLLECTIVES, Collective, Hop
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting
from ampsim.hardware import Way
from ampsim.trace import Cause


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
        self._setting = setting
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
        """Send what waits for nothing."""
        for rank, coming in enumerate(self._coming):
            if not coming:
                self._done(rank, cause)
        self._ready += [(number, cause) for number, left in enumerate(self._missing) if not left]
        self._send_ready()

    def _send_ready(self) -> None:
        """Send what is ready; on free links that makes more ready, one after the other."""
        if self._is_sending:
            return
        self._is_sending = True
        while self._ready:
            number, cause = self._ready.popleft()
            hop = self._hops[number]
            ends = (self._workers[hop.source], self._workers[hop.target])
            size_bytes = round(hop.parts * self._part_bytes)
            self._setting.send(ends, size_bytes, cause, partial(self._arrived, number))
        self._is_sending = False

    def _arrived(self, number: int, cause: Cause) -> None:
        for following in self._next[number]:
            self._missing[following] -= 1
            if not self._missing[following]:
                self._ready.append((following, cause))
        target = self._hops[number].target
        self._coming[target] -= 1
        if not self._coming[target]:
            self._done(target, cause)
        self._send_ready()


class _Message(NamedTuple):
    """What a collective sends, and how.

    Args:
        collective: the algorithm.
        size_bytes: of the vector, or of what each rank has.
        part_bytes: of one part of it, padded.
        formula_s: how long it takes on idle links that are all alike; NaN where they are not.
        held_s: how long links are held then.
    """

    collective: Collective
    size_bytes: int
    part_bytes: int
    formula_s: float
    held_s: float


class _Offer(NamedTuple):
    """A collective for which all ranks have what they send.

    Args:
        message: what is sent.
        came: called with a rank and a cause when that rank has what it gives.
        first_s: when the first rank was ready.
        cause: what brought the last.
        last: the rank that was last.
    """

    message: _Message
    came: Callable[[int, Cause], None]
    first_s: float
    cause: Cause
    last: int


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


class Stream:
    """Collectives between the workers that host the same nodes, one of each rank.

    Args:
        setting: what ranks have in common.
        workers: one of each rank.
        places: of the vectors that lie there.
        came: called with a rank and a cause whenever that rank has what a collective gives it.

    Attributes:
        buckets: the vectors of each.
        size_bytes: of what a rank has in all buckets.
    """

    def __init__(
        self,
        setting: Setting,
        workers: Sequence[int],
        places: Sequence[int],
        came: Callable[[int, Cause], None],
    ) -> None:
        self._setting, self._workers, self._came = setting, workers, came
        self.buckets = buckets_of(places, setting)
        sizes = [sum(map(setting.sent_bytes_of, one)) for one in self.buckets]
        self.size_bytes = sum(sizes)
        is_whole = setting.decisions.compression is None
        collective = COLLECTIVES[setting.decisions.collective] if is_whole else ALL_GATHER
        self._way = uniform_way(setting, workers)
        self._messages = [self._message(collective, size_bytes) for size_bytes in sizes]
        self._whole = self._message(BROADCAST, sum(map(setting.bytes_of, places)))
        self._offers: deque[_Offer] = deque()
        self._is_busy = False

    def offer(self, bucket: int, first_s: float, cause: Cause, last: int) -> None:
        """Reduce a bucket as soon as what was offered before it is done."""
        self._offer(_Offer(self._messages[bucket], self._came, first_s, cause, last))

    def spread(self, cause: Cause, came: Callable[[int, Cause], None]) -> None:
        """Send all vectors from the first rank to the others, in the same order of offers."""
        self._offer(_Offer(self._whole, came, self._setting.clock.now, cause, 0))

    def _offer(self, offer: _Offer) -> None:
        if self._is_busy:
            self._offers.append(offer)
        else:
            self._run(offer)

    def _run(self, offer: _Offer) -> None:
        """Run a collective: as one event where its formula holds, else message by message."""
        setting, message, count = self._setting, offer.message, len(self._workers)
        size_bytes, formula_s, now_s = message.size_bytes, message.formula_s, setting.clock.now
        self._is_busy = True
        if self._way is None:
            hops = message.collective.hops(count, setting.decisions.ranks_per_group)
            came = partial(self._came_by_hop, offer, now_s, [count])
            HopRun(hops, self._workers, message.part_bytes, setting, came).start(offer.cause)
            return
        row = (count, size_bytes, offer.first_s, now_s, now_s + formula_s, formula_s, True)
        setting.recorder.collectives.append(row)
        if not formula_s:
            self._ended(offer, offer.cause, is_event=False)
            return
        pair = (self._workers[offer.last], self._workers[(offer.last + 1) % count])
        times = (now_s, now_s + formula_s, now_s, now_s + message.held_s)
        places = (setting.centre_place, setting.centre_place)
        sent = (*places, size_bytes, *times, *pair, offer.cause)
        transfer = setting.fabric.transfers.add(sent)
        setting.clock.call_later(formula_s, partial(self._ended, offer, transfer, is_event=True))

    def _ended(self, offer: _Offer, cause: Cause, *, is_event: bool) -> None:
        """Begin the next collective, and let all ranks have what this one gives."""
        self._run_next(cause)
        for rank in range(len(self._workers)):
            offer.came(rank, cause)
        if is_event:
            self._setting.instant.settle()

    def _run_next(self, cause: Cause) -> None:
        """Begin the next collective, after `cause`."""
        self._is_busy = False
        if self._offers:
            self._run(self._offers.popleft()._replace(cause=cause))

    def _came_by_hop(
        self, offer: _Offer, start_s: float, left: list[int], rank: int, cause: Cause
    ) -> None:
        """Record a collective of messages when the last rank has what it came for."""
        left[0] -= 1
        if not left[0]:
            message, end_s = offer.message, self._setting.clock.now
            times = (offer.first_s, start_s, end_s, message.formula_s)
            row = (len(self._workers), message.size_bytes, *times, False)
            self._setting.recorder.collectives.append(row)
            self._run_next(cause)
        offer.came(rank, cause)

    def _message(self, collective: Collective, size_bytes: int) -> _Message:
        setting, count, part_bytes = self._setting, len(self._workers), size_bytes
        group = setting.decisions.ranks_per_group
        item_bytes, parts = setting.nodes[0].theta.itemsize, collective.parts(count, group)
        if parts > 1:
            part_bytes = -(-size_bytes // item_bytes // parts) * item_bytes
        formula_s = held_s = math.nan
        if self._way is not None:
            rate = self._way.narrowest_bytes_per_s or math.inf
            how = (count, group, part_bytes * parts)
            formula_s = collective.seconds(*how, self._way.latency_s, rate)
            held_s = collective.seconds(*how, 0.0, rate)
        return _Message(collective, size_bytes, part_bytes, formula_s, held_s)


class Readiness:
    """Offers a bucket as soon as all ranks have the gradients of its vectors.

    Args:
        streams: of all columns.
        ranks: how many there are follows from them.
    """

    def __init__(self, streams: Sequence[Stream], ranks: Sequence[Rank]) -> None:
        self._of = {
            place: (stream, bucket)
            for stream in streams
            for bucket, places in enumerate(stream.buckets)
            for place in places
        }
        self._ranks = len(ranks)
        self._there: dict[tuple[Stream, int], int] = {}
        self._since: dict[tuple[Stream, int], dict[int, float]] = {}

    def note(self, rank: int, place: int, now_s: float, cause: Cause) -> None:
        """Note that a rank has the gradient of a vector."""
        stream, bucket = key = self._of[place]
        self._there[key] = self._there.get(key, 0) + 1
        self._since.setdefault(key, {})[rank] = now_s
        if self._there[key] == self._ranks * len(stream.buckets[bucket]):
            del self._there[key]
            stream.offer(bucket, min(self._since.pop(key).values()), cause, rank)
