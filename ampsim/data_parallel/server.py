"""A server: a worker that has a part of the centre and merges what ranks send.

It merges one thing at a time. Where the solver locks the update, a whole parcel is one merge, and
the next waits; where it locks nothing, a parcel is merged node by node, in turn with other parcels.
A merge takes effect when it begins, as every step here reads its weights then; what it leads to
happens when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, Final, NamedTuple

from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting, addition_work, elastic_work
from ampsim.data_parallel.top_k import addition_of_entries
from ampsim.data_parallel.visit import Visit
from ampsim.hardware import occupancy_s
from ampsim.ir import Direction, Work
from ampsim.machine import Begun, Processor
from ampsim.model_parallel.footprint import MESSAGES, OPTIMIZER, WEIGHTS
from ampsim.model_parallel.step import NO_STALENESS
from ampsim.trace import Cause

MERGE: Final = "merge"


class _Merge(NamedTuple):
    """A merge that occupies the server."""

    visit: Visit
    places: Sequence[int]
    start_s: float
    kind: int
    staleness: int


class Server:
    """What one server does; the tasks of its processor.

    Args:
        index: among the servers.
        worker: its number in the cluster.
        places: of the vectors that it has.
        setting: what it has in common with others.
        merged: called with a visit, the server's index and the cause when all of its part is
            merged.

    Attributes:
        queues: parcels that wait.
    """

    def __init__(
        self,
        index: int,
        worker: int,
        places: Sequence[int],
        setting: Setting,
        merged: Callable[[Visit, int, Cause], None],
    ) -> None:
        self.index = index
        self.processor = processor = Processor(worker, setting.clock, setting.instant)
        self.places = tuple(places)
        self._setting = setting
        self._merged = merged
        self._queue: deque[Visit] = deque()
        self.queues: dict[str, deque[Visit]] = {MERGE: self._queue}
        self._memory = setting.memories.of(processor.index)
        self._is_whole = setting.solver.locks != "nothing"
        self._device = setting.cluster.devices[processor.index]
        self._prices: dict[tuple[int, ...], tuple[float, int]] = {}

    @property
    def worker(self) -> int:
        """Its worker's number."""
        return self.processor.index

    def take_parameters(self, arrays: int) -> None:
        """Let its part of the centre lie in memory, and what the optimizer keeps of it."""
        if self._memory is not None:
            size_bytes = self.size_bytes
            self._memory.take(WEIGHTS, size_bytes)
            self._memory.take(OPTIMIZER, arrays * size_bytes)

    @property
    def size_bytes(self) -> int:
        """Of its part of the centre."""
        return sum(map(self._setting.bytes_of, self.places))

    def take(self, visit: Visit, size_bytes: int) -> None:
        """Let a part of a parcel lie in memory."""
        if self._memory is not None:
            self._memory.take(MESSAGES, size_bytes)

    def arrived(self, visit: Visit) -> None:
        """Queue a parcel of which all is there."""
        visit.to_merge[self.index] = list(self.places)
        self._queue.append(visit)
        if self.processor.is_idle:
            self.processor.wake()

    def begin(self, kind: Any, queue: deque[Visit]) -> Begun:
        """Merge the first parcel, or one node's part of it."""
        visit, now_s = queue.popleft(), self._setting.clock.now
        left = visit.to_merge[self.index]
        places = tuple(left) if self._is_whole else (left[0],)
        del left[: len(places)]
        if left:
            queue.append(visit)
        if visit.start_s != visit.start_s:
            visit.start_s = now_s
        staleness = self._merge(visit, places, now_s)
        seconds, number = self._price(places)
        return seconds, _Merge(visit, places, now_s, number, staleness)

    def end(self, task: Begun) -> None:
        """Record a merge, and say when a parcel is all merged."""
        seconds, (visit, places, start_s, kind, staleness) = task
        setting = self._setting
        recorder = setting.recorder
        end_s = setting.clock.now if seconds else start_s
        state = (visit.instance,)
        recorder.spans.append((kind, start_s, end_s, staleness, state, visit.cause))
        number = recorder.span_number()
        if self._memory is not None:
            self._memory.give(MESSAGES, sum(map(setting.sent_bytes_of, places)))
        visit.merged_s = end_s
        if not self._is_whole:
            visit.cause = number
        if not visit.to_merge[self.index]:
            self._merged(visit, self.index, number)

    def do_free(self, now_s: float) -> None:
        """Nothing is free."""

    def _merge(self, visit: Visit, places: Sequence[int], now_s: float) -> int:
        """Change the centre; return the staleness of what was merged, if it was a gradient."""
        setting, solver, centre = self._setting, self._setting.solver, self._setting.centre
        is_gradient = solver.sends == "gradient"
        stalest = 0
        for place in places:
            staleness = centre.versions[place] - visit.read[place]
            stalest = max(stalest, staleness)
            if is_gradient and place not in visit.touched:
                continue
            parcel = visit.parcel[place]
            if not is_gradient and not solver.asks_first:
                self._note_weights(visit, place)
            if not setting.is_abstract:
                assert parcel is not None
                step = centre.step(place, solver.merge_rate(visit.rate, staleness), now_s)
                theta = solver.merge(centre.thetas[place], parcel, setting.pull, step)
                centre.thetas[place] = theta
            if is_gradient:
                row = (setting.places[place], now_s, visit.counts[place], staleness, staleness)
                setting.recorder.updates.append(row)
            centre.versions[place] += 1
        visit.staleness = max(visit.staleness, stalest)
        return stalest if is_gradient else NO_STALENESS

    def _note_weights(self, visit: Visit, place: int) -> None:
        """Note what a rank's weights are merged with: the answer, and how far they are apart."""
        if self._setting.is_abstract:
            return
        centre, theta = self._setting.centre.thetas[place], visit.parcel[place]
        assert theta is not None
        if self._is_whole:
            visit.reply[place] = centre
        apart = theta - centre
        visit.square += float(apart.dot(apart))

    def _price(self, places: tuple[int, ...]) -> tuple[float, int]:
        """Seconds of a merge, and the number of its span's kind."""
        if places not in self._prices:
            setting = self._setting
            work = reduce(add, (self._work(place) for place in places))
            seconds = occupancy_s(self._device, work, is_light=False)
            known = (self.worker, setting.centre_place, Direction.UPDATE)
            kind = (*known, work.flop, work.bytes, work.operations)
            self._prices[places] = seconds, setting.recorder.kinds.number(kind)
        return self._prices[places]

    def _work(self, place: int) -> Work:
        node = self._setting.nodes[place]
        if self._setting.solver.asks_first:
            return addition_work(node)
        if self._setting.solver.is_elastic:
            return elastic_work(node)
        work = node.work(Direction.UPDATE, None)
        if self._setting.share is not None:
            work += addition_of_entries(node, 1, self._setting.kept_count(place))
        return work


def parts_of(
    rank: Rank, servers: Sequence[Server], bytes_of: Callable[[int], int]
) -> list[tuple[int, int, int]]:
    """What a rank sends or gets at once: (server, worker that has it, bytes)."""
    parts: list[tuple[int, int, int]] = []
    for server in servers:
        for worker, places in rank.vectors_on().items():
            size_bytes = sum(bytes_of(place) for place in places if place in server.places)
            if size_bytes:
                parts.append((server.index, worker, size_bytes))
    return parts
