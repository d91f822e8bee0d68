"""A server of weights, and what ranks push to it.

A server merges one thing at a time. Where the solver locks the update, a whole push is one merge,
and the next waits; where it locks nothing, a push is merged node by node, in turn with other
pushes. A merge takes effect when it begins, as every step here reads its weights then; what it
leads to happens when it ends.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Final, NamedTuple

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.coroutine import Resume
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.setting import Setting, addition_work, elastic_work
from ampsim.data_parallel.top_k import addition_of_entries
from ampsim.hardware import occupancy_s
from ampsim.ir import Direction, Work
from ampsim.machine import Begun, Processor
from ampsim.model_parallel.footprint import MESSAGES, OPTIMIZER, WEIGHTS
from ampsim.model_parallel.price import required_work
from ampsim.trace import NO_STALENESS, Cause


class Push:
    """A push of one rank to all servers, and the weights that it pulls: how far it has come.

    Only its own methods write its attributes.

    Args:
        rank: whose it is.
        setting: what it has in common with others.
        read: versions of the centre that the rank's vectors rest on.

    Attributes:
        instance: the first of the rank's batches.
        rate: the learning rate of that instance.
        ready_s: when the rank had something to send.
        vectors: one for each node, None where there is none.
        touched: places of these vectors; also in `sleep` mode.
        counts: gradients in each vector.
        reply: vectors of the centre that the rank gets.
        versions: of these vectors.
        staleness: the most of any vector.
        square: of the distance between the rank's weights and the centre's.
        answers_left: messages of the answer that are still to come.
        servers_left: servers that have not merged all of their part.
        is_answered: whether the answer has come.
        is_held: whether a bound on how far ranks may be ahead kept the answer back.
        stalled_s: how long the rank could do nothing for it.
        closing: assignments that are done when all is merged.
        following: lets the rank's next push go, which waits until all of this one is merged.
    """

    def __init__(self, rank: Rank, setting: Setting, read: Sequence[int]) -> None:
        batches, count = rank.assignment, len(setting.nodes)
        assert batches is not None
        self.rank, self.instance, self.ready_s = rank, batches.first, setting.clock.now
        self.rate, self.read = setting.rate(batches.at), read
        self.vectors: list[Vector | None] = [None] * count
        if not setting.is_abstract:
            is_gradient = setting.decisions.sends == "gradient"
            own = rank.gradients if is_gradient else [rank.theta(one) for one in range(count)]
            self.vectors = [*own]
        self.touched, self.counts = frozenset(rank.touched), list(rank.counts)
        self.sent_s = self.arrived_s = self.merged_s = self.end_s = math.nan
        self.start_s = math.inf
        self.reply: list[Vector | None] = [None] * count
        self.versions = [0] * count
        self.staleness, self.square, self.stalled_s = 0, 0.0, 0.0
        self.answers_left = self.servers_left = 0
        self._to_arrive: Counter[int] = Counter()
        self.is_answered = self.is_held = False
        self.closing: list[Assignment] = []
        self.following: Resume | None = None
        self._awaits: Resume | None = None
        self._came: Resume

    def leave(self, now_s: float, parts: Sequence[tuple[int, int, int]], resume: Resume) -> None:
        """Note that it leaves the rank, or asks for the centre; `resume` when the answer is there.

        The answer comes in these parts.
        """
        self.sent_s, self._came = now_s, resume
        self.answers_left = len(parts)
        self._to_arrive = Counter(server for server, _worker, _bytes in parts)
        self.servers_left = len(self._to_arrive)

    def arrive(self, server: int, now_s: float) -> bool:
        """Note that a part is at a server; return whether all of that server's is there."""
        self._to_arrive[server] -= 1
        if self._to_arrive[server]:
            return False
        if math.isnan(self.arrived_s):
            self.arrived_s = now_s
        return True

    def merged(self, start_s: float, end_s: float, staleness: int, *, is_last: bool) -> None:
        """Note a merge that has ended.

        Args:
            start_s: when it began.
            end_s: when it ended.
            staleness: the most of any vector in it.
            is_last: whether the server has merged all of its part.
        """
        self.start_s = min(self.start_s, start_s)
        self.merged_s, self.staleness = end_s, max(self.staleness, staleness)
        self.servers_left -= is_last

    def measure(self, theta: Vector, centre: Vector) -> None:
        """Add how far a rank's vector is from the centre's."""
        apart = theta - centre
        self.square += float(apart.dot(apart))

    def make(self, vectors: list[Vector | None]) -> None:
        """Take what the rank has made of the centre that it asked for, and has read thereby."""
        self.vectors, self.read = vectors, self.versions

    def hold(self) -> None:
        """Note that a bound keeps the answer back."""
        self.is_held = True

    def part_came(self, cause: Cause) -> None:
        """Note that a part of the answer has come."""
        self.answers_left -= 1
        if not self.answers_left:
            self._came(cause)

    def end(self, now_s: float, *, is_alone: bool) -> None:
        """Note that the rank has the answer.

        Args:
            now_s: when.
            is_alone: whether the rank did nothing beside it.
        """
        self.is_answered, self.end_s = True, now_s
        if is_alone or self._awaits is not None:
            self.stalled_s = now_s - self.rank.ready_s

    def until_answered(self, resume: Resume) -> None:
        """Let the rank go on when it has the answer."""
        self._awaits = resume

    def go_on(self, cause: Cause) -> None:
        """Let the rank go on, if it waits."""
        if self._awaits is not None:
            self._awaits(cause)

    def close_later(self, assignment: Assignment) -> None:
        """Let an assignment be done when all of this is merged."""
        self.closing.append(assignment)

    def let_follow(self, resume: Resume) -> None:
        """Let the rank's next push go when all of this is merged."""
        self.following = resume


MERGE: Final = "merge"


@dataclass(slots=True)
class _Queued:
    """A push of which all of a server's part is there.

    Args:
        push: the push.
        left: places of the vectors that are not merged yet.
        cause: what its next merge waited for last at this server: its arrival, or a merge.
    """

    push: Push
    left: list[int]
    cause: Cause


class _Merge(NamedTuple):
    """A merge that occupies the server."""

    queued: _Queued
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
        merged: called with a push, the server's index and the cause when all of its part is
            merged.

    Attributes:
        queues: pushes that wait.
        memory: of its device, where that is counted.
    """

    def __init__(
        self,
        index: int,
        worker: int,
        places: Sequence[int],
        setting: Setting,
        merged: Callable[[Push, int, Cause], None],
    ) -> None:
        self.index, self.worker = index, worker
        self.processor = processor = Processor(worker, setting.clock, setting.instant)
        self.places = tuple(places)
        self._setting = setting
        self._merged = merged
        self._queue: deque[_Queued] = deque()
        self.queues: dict[str, deque[_Queued]] = {MERGE: self._queue}
        self.memory = setting.memories.of(processor.index)
        self._is_whole = setting.decisions.locks != "nothing"
        self._device = setting.cluster.devices[processor.index]
        self._sent_bytes = {place: setting.sent_bytes_of(place) for place in places}
        self._prices: dict[tuple[int, ...], tuple[float, int]] = {}

    def take_parameters(self, arrays: int) -> None:
        """Let its part of the centre lie in memory, and what the optimizer keeps of it."""
        if self.memory is not None:
            size_bytes = sum(map(self._setting.bytes_of, self.places))
            self.memory.take(WEIGHTS, size_bytes)
            self.memory.take(OPTIMIZER, arrays * size_bytes)

    def put(self, push: Push, cause: Cause) -> None:
        """Queue a push of which all is there, since `cause`."""
        self._queue.append(_Queued(push, list(self.places), cause))
        if self.processor.is_idle:
            self.processor.wake()

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Merge the first push, or one node's part of it."""
        queued, now_s = queue.popleft(), self._setting.clock.now
        left = queued.left
        places = tuple(left) if self._is_whole else (left[0],)
        del left[: len(places)]
        if left:
            queue.append(queued)
        staleness = self._merge(queued.push, places, now_s)
        seconds, number = self._prices.get(places) or self._price(places)
        return seconds, _Merge(queued, places, now_s, number, staleness)

    def end(self, task: Begun) -> None:
        """Record a merge, and tell when a push is all merged."""
        seconds, (queued, places, start_s, kind, staleness) = task
        push, setting = queued.push, self._setting
        recorder = setting.recorder
        end_s = setting.clock.now if seconds else start_s
        state = (push.instance,)
        noted = staleness if setting.decisions.sends == "gradient" else NO_STALENESS
        recorder.spans.append((kind, start_s, end_s, noted, state, queued.cause))
        number = recorder.span_number()
        if self.memory is not None:
            self.memory.give(MESSAGES, sum(map(self._sent_bytes.__getitem__, places)))
        if not self._is_whole:
            queued.cause = number
        push.merged(start_s, end_s, staleness, is_last=not queued.left)
        if not queued.left:
            self._merged(push, self.index, number)

    @property
    def has_free(self) -> bool:
        """Whether a merge waits that takes no time: none does."""
        return False

    def do_free(self, now_s: float) -> None:
        """Do nothing: every merge is queued."""

    def _merge(self, push: Push, places: Sequence[int], now_s: float) -> int:
        """Change the centre; return the most updates between what was read and what is merged."""
        setting, solver, centre = self._setting, self._setting.solver, self._setting.centre
        decisions = setting.decisions
        is_gradient = decisions.sends == "gradient"
        stalest = 0
        for place in places:
            staleness = centre.versions[place] - push.read[place]
            stalest = max(stalest, staleness)
            if is_gradient and place not in push.touched:
                continue
            if not setting.is_abstract:
                vector = push.vectors[place]
                assert vector is not None
                if not is_gradient and not decisions.asks_first:
                    self._note_weights(push, place, vector)
                step = centre.step(place, solver.merge_rate(push.rate, staleness), now_s)
                theta = solver.merge(centre.thetas[place], vector, setting.pull, step)
                centre.thetas[place] = theta
            if is_gradient:
                row = (setting.places[place], now_s, push.counts[place], staleness, staleness)
                setting.recorder.updates.append(row)
            centre.versions[place] += 1
        return stalest

    def _note_weights(self, push: Push, place: int, theta: Vector) -> None:
        """Note what a rank's weights are merged with: the answer, and how far they are apart."""
        centre = self._setting.centre.thetas[place]
        if self._is_whole:
            push.reply[place] = centre
        push.measure(theta, centre)

    def _price(self, places: tuple[int, ...]) -> tuple[float, int]:
        """Seconds of a merge, and the number of its span's kind."""
        setting = self._setting
        work = reduce(add, (self._work(place) for place in places))
        known = (self.worker, setting.centre_place, Direction.UPDATE)
        kind = (*known, work.flop, work.bytes, work.operations)
        price = occupancy_s(self._device, work, is_light=False), setting.recorder.kinds.number(kind)
        self._prices[places] = price
        return price

    def _work(self, place: int) -> Work:
        node = self._setting.nodes[place]
        if self._setting.decisions.asks_first:
            return addition_work(node)
        if self._setting.decisions.is_elastic:
            return elastic_work(node)
        work = required_work(node, Direction.UPDATE, None, node.work(Direction.UPDATE, None))
        if self._setting.decisions.compression is not None:
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
