"""Exchanges with servers: a rank pushes what it has, and pulls the weights that are there.

A server merges one thing at a time. Where the solver locks the update, a whole push is one merge,
and the next waits; where it locks nothing, a push is merged node by node, in turn with other
pushes. A merge takes effect when it begins, as every step here reads its weights then; what it
leads to happens when it ends.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, Final, NamedTuple, TypeAlias

from ampsim.data_parallel.batch_queue import Assignment
from ampsim.data_parallel.rank import Exchange, Rank, Resume, run, until
from ampsim.data_parallel.setting import Setting
from ampsim.data_parallel.turns import Bound, TurnLock
from ampsim.hardware import occupancy_s
from ampsim.ir import Direction, Work
from ampsim.machine import Begun, Processor, SomeFree
from ampsim.model_parallel.footprint import MESSAGES, OPTIMIZER, WEIGHTS
from ampsim.optim import Vector
from ampsim.trace import NO_STALENESS, Cause
from ampsim.trace.recorder import SENDS, WAITS

SEVERAL: Final = -2
"""In place of a server's worker: a rank exchanges with several at once."""

MERGE: Final = "merge"


Merged: TypeAlias = tuple[int, float, float]
"""A merge: the most merges since a vector was read, when it began, when it ended or is cut."""

Versions: TypeAlias = dict[int, tuple[int, int]]
"""By place, the steps of a vector, and the merges, of which some have no gradient of its node."""


class PushPull(Exchange):
    """An exchange of each rank with servers.

    Args:
        setting, ranks: as of `Exchange`.
        workers: those of the servers.

    Attributes:
        servers: what each of them does.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], workers: Sequence[int]) -> None:
        super().__init__(setting, ranks)
        decisions, shards = setting.decisions, setting.shards(len(workers))
        self.servers = [
            Server(index, worker, places, setting)
            for index, (worker, places) in enumerate(zip(workers, shards, strict=True))
        ]
        self._lock = TurnLock(len(ranks)) if decisions.locks == "exchange" else None
        self._bound: Bound | None = None
        if decisions.staleness_bound is not None and not decisions.asks_first:
            self._bound = Bound(ranks, decisions.staleness_bound)
        self._waits_for_merge = not decisions.asks_first and decisions.locks == "update"
        self._nodes = (setting.centre_place, setting.centre_place)
        self._parts = [parts_of(rank, self.servers, setting) for rank in ranks]
        each = [[part.server.index for part in parts] for parts in self._parts]
        self._to_arrive = [{one: of_rank.count(one) for one in of_rank} for of_rank in each]
        self._read: list[Versions] = [
            dict.fromkeys(range(len(setting.nodes)), (0, 0)) for _ in ranks
        ]
        self._latest: dict[int, Push] = {}
        self._noted: set[Push] = set()
        self._in_weights: list[tuple[Push, Sequence[Merged]]] = []

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Let the rank have turns again."""
        if self._lock is not None:
            self._lock.set_active(rank.number, True)

    def end(self, rank: Rank) -> None:
        """Let nobody wait for a rank that has no batches left."""
        if self._lock is not None:
            self._lock.set_active(rank.number, False)
        if self._bound is not None:
            self._bound.let_go()

    def weights(self, part: int) -> list[Vector]:
        """The centre's weights, which have all merges that have begun."""
        self._in_weights = [(push, push.begun_merges()) for push in self._latest.values()]
        return super().weights(part)

    def note_unfinished(self, end_s: float) -> None:
        """Record exchanges that the end of the run cuts at `end_s`, if its weights have a merge."""
        for push, merges in self._in_weights:
            if merges and push not in self._noted and (push.unmerged or not push.is_answered):
                push.cut(merges, end_s)
                self._note(push, push.end_s if push.is_answered else end_s)
                self._noted.add(push)

    def _send(self, push: Push, cause: Cause, resume: Resume | None = None) -> None:
        """Send a push; `resume` with each part of the answer, if the rank has not asked for it."""
        setting = self._setting
        if resume is not None:
            push.resume, push.sent_s = resume, setting.clock.now
        if self._bound is not None:
            answer = partial(self._answer, push)
            push.following.append(partial(self._bound.merged, push.rank.number, answer))
        for server, worker, _size, size_bytes in push.parts:
            arrive = partial(server.receive, push, size_bytes)
            setting.fabric.send((worker, server.worker), size_bytes, self._nodes, cause, arrive)

    def _answer(self, push: Push, cause: Cause, is_held: bool) -> None:
        """Let all servers answer a push whose answer a bound may have kept back."""
        if is_held:
            push.hold()
        for server in self.servers:
            server.ask(push, cause)

    def _note(self, push: Push, end_s: float) -> None:
        """Record an exchange, with when its answer or the end of the run came."""
        if push in self._noted:
            return
        setting, servers = self._setting, self.servers
        stale, starts_s, ends_s = zip(*push.merges, strict=True)
        waits = "reply"
        if not push.stalled_s:
            waits = "nothing"
        elif self._lock is not None and push.sent_s > push.ready_s:
            waits = "turn"
        elif push.is_held:
            waits = "bound"
        elif self._waits_for_merge and push.locks[-1]:
            waits = "lock"
        where = servers[0].worker if len(servers) == 1 else SEVERAL
        is_known = setting.decisions.sends == "weights" and not setting.is_abstract
        numbers = (push.rank.first, where, SENDS.index(setting.decisions.sends))
        times = (push.ready_s, push.sent_s, min(starts_s), ends_s[-1], end_s, push.stalled_s)
        size_bytes = sum(part.sent_bytes for part in push.parts)
        distance = math.sqrt(push.square) if is_known else math.nan
        what = (size_bytes, max(stale), distance, len({n for _, n in push.versions.values()}) > 1)
        setting.recorder.exchanges.append((*numbers, *times, WAITS.index(waits), *what))


class PushGradients(PushPull):
    """Each rank pushes its gradient, and goes on with the weights that servers answer with."""

    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Push the gradient, in turn where ranks have turns; adopt the weights of the answer."""
        setting, number, parts = self._setting, rank.number, self._parts[rank.number]
        what = (rank.gradients, rank.counts, self._read[number])
        push = Push(rank, batches, parts, {**self._to_arrive[number]}, setting.clock.now, *what)
        if self._lock is not None:
            cause = await until(partial(self._lock.acquire, number, cause))
        self._latest[number] = push
        cause = await until(partial(self._send, push, cause), len(parts))
        if self._lock is not None:
            self._lock.release(cause)
        if rank.members:
            cause = await rank.broadcast(cause)
        push.end_s = setting.clock.now
        push.stalled_s = push.end_s - rank.ready_s
        self._note(push, push.end_s)
        self._read[number] = push.versions
        for place, reply in push.reply.items():
            if reply is not None:
                rank.nodes[place].adopt(setting.solver.adopt(reply, reply))
        return cause


class PushWeights(PushPull):
    """Each rank steps by itself, and every so often pushes its weights, or how far they are off.

    With the answer it steps, pulled towards the centre.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], workers: Sequence[int]) -> None:
        super().__init__(setting, ranks, workers)
        self._period = setting.solver.assignments_per_exchange
        self._steps = [0] * len(ranks)
        self._early: dict[int, Push] = {}

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Let a push go beside the gradient, where the solver does."""
        super().begin(rank, cause)
        if self._setting.decisions.overlaps and self._is_due(rank):
            assert rank.assignment is not None
            self._early[rank.number] = push = self._push_of(rank, rank.assignment)
            run(self._exchange(push, cause), push.go_on)

    async def with_others(self, rank: Rank, batches: Assignment, cause: Cause) -> Cause:
        """Push the weights and pull the centre's, where it is time to; then step."""
        places, is_due = range(len(rank.nodes)), self._is_due(rank)
        if is_due:
            push = self._early.pop(rank.number, None)
            if push is None:
                cause = await self._exchange(self._push_of(rank, batches), cause)
            elif not push.is_answered:
                cause = await until(push.until_answered)
        step = partial(rank.step, rank.centre)
        cause = await rank.update_vectors(
            places if is_due else rank.counts, step, batches.at, cause
        )
        if is_due:
            rank.forget_centre()
        self._steps[rank.number] += 1
        self._close(rank, batches)
        return cause

    async def _exchange(self, push: Push, cause: Cause) -> Cause:
        """Let a push go when it may, and wait until the rank has the answer."""
        setting, rank, decisions = self._setting, push.rank, self._setting.decisions
        before = self._latest.get(rank.number)
        if decisions.overlaps and before is not None and before.unmerged:
            cause = await until(before.following.append)  # servers have room for one of each rank
        if self._lock is not None:
            cause = await until(partial(self._lock.acquire, rank.number, cause))
        self._latest[rank.number] = push
        first = self._pull if decisions.asks_first else self._send
        cause = await until(partial(first, push, cause), len(push.parts))
        if decisions.asks_first:
            push.take_difference(setting)
            if self._lock is not None:
                push.following.append(self._lock.release)
            self._send(push, cause)
        elif self._lock is not None:
            self._lock.release(cause)
        if rank.members:
            cause = await rank.broadcast(cause)
        push.answer(setting.clock.now, is_alone=not decisions.overlaps)
        if push.unmerged:
            push.following.append(lambda _cause: self._note(push, push.end_s))
        else:
            self._note(push, push.end_s)
        self._read[rank.number] = push.versions
        if decisions.asks_first:
            rank.stash_centre(dict(enumerate(push.vectors)))
        else:
            rank.stash_centre(push.reply, push.vectors)
        return cause

    def _is_due(self, rank: Rank) -> bool:
        """Tell whether a rank exchanges with its next step."""
        return (self._steps[rank.number] + 1) % self._period == 0

    def _push_of(self, rank: Rank, batches: Assignment) -> Push:
        """Make a push of a rank's weights as they are."""
        vectors: list[Vector | None] = [None] * len(rank.nodes)
        if not self._setting.is_abstract:
            vectors = [node.theta for node in rank.nodes]
        number, parts, now_s = rank.number, self._parts[rank.number], self._setting.clock.now
        what = (vectors, rank.counts, self._read[number])
        return Push(rank, batches, parts, {**self._to_arrive[number]}, now_s, *what)

    def _pull(self, push: Push, cause: Cause, resume: Resume) -> None:
        """Ask every server for its part of the centre."""
        setting = self._setting
        push.ask(setting.clock.now, resume)
        asked: set[int] = set()
        for server, worker, _size, _sent in push.parts:
            if server.index not in asked:
                asked.add(server.index)
                ask = partial(server.ask, push)
                setting.fabric.send((worker, server.worker), 0, self._nodes, cause, ask)

    def _close(self, rank: Rank, batches: Assignment) -> None:
        """Count batches as done, when servers have merged what they may still have of the rank."""
        push, close = self._latest.get(rank.number), self._setting.batches.close
        if self._setting.decisions.asks_first and push is not None and push.unmerged:
            push.following.append(lambda _cause: close(batches))
        else:
            close(batches)


class PushPart(NamedTuple):
    """The vectors that a worker of a rank and a server both have.

    Args:
        server: the server.
        worker: the rank's.
        size_bytes: of the vectors, as the server answers.
        sent_bytes: of what the rank sends of them.
    """

    server: Server
    worker: int
    size_bytes: int
    sent_bytes: int


@dataclass(slots=True, eq=False)
class Push:
    """A push of one rank to all servers, and the weights that it pulls: how far it has come.

    Args:
        rank: whose it is.
        batches: the rank's.
        parts: what goes to and fro.
        unmerged: servers that have not merged all of theirs, and how many parts have not arrived.
        ready_s: when the rank had something to send.
        vectors: one for each node, None where there is none.
        counts: gradients in each vector that has any; also in `sleep` mode.
        read: versions of the centre that the vectors rest on.
        versions, reply: those that the rank gets, and the centre's vectors, by place.
        merges: those that have ended.
        under_way: of those that have not, by server, what is first in `Merged`.
        locks: whether each merge waited for others, and then each answer of several servers.
        following: called with a cause when all is merged.
        sent_s, end_s: when it left the rank, and when that had the answer; NaN before.
        stalled_s: how long the rank could do nothing for it.
        square: of the distance between the rank's weights and the centre's.
        is_held: whether a bound on how far ranks may be ahead kept the answer back.
        resume: called with each part of the answer.
    """

    rank: Rank
    batches: Assignment
    parts: Sequence[PushPart]
    unmerged: dict[int, int]
    ready_s: float
    vectors: list[Vector | None]
    counts: dict[int, int]
    read: Versions
    versions: Versions = field(default_factory=dict[int, Any])
    reply: dict[int, Vector | None] = field(default_factory=dict[int, "Vector | None"])
    merges: list[Merged] = field(default_factory=list[Merged])
    under_way: dict[int, tuple[int, float]] = field(default_factory=dict[int, Any])
    locks: list[bool] = field(default_factory=list[bool])
    following: list[Callable[[Cause], None]] = field(default_factory=list[Any])
    sent_s: float = math.nan
    end_s: float = math.nan
    stalled_s: float = 0.0
    square: float = 0.0
    is_held: bool = False
    resume: Resume = field(init=False)
    _awaits: Resume | None = None

    @property
    def is_answered(self) -> bool:
        """True when the rank has the answer."""
        return not math.isnan(self.end_s)

    def begun_merges(self) -> list[Merged]:
        """All merges that have taken effect so far."""
        return [*self.merges, *((*one, math.inf) for one in self.under_way.values())]

    def cut(self, merges: Sequence[Merged], end_s: float) -> None:
        """Let it have these merges alone, and the last end at `end_s` where any is left."""
        *first, last = merges
        self.merges = [*first, (*last[:2], end_s if self.unmerged else min(last[2], end_s))]

    def ask(self, now_s: float, resume: Resume) -> None:
        """Note that the rank asks for the centre; `resume` with each part of the answer."""
        self.sent_s, self.resume = now_s, resume

    def take_difference(self, setting: Setting) -> None:
        """Push what the solver makes of the weights and the centre that the rank asked for."""
        for place, reply in self.reply.items():
            theta = self.vectors[place]  # of before: a rank may have stepped inside meanwhile
            if reply is not None and theta is not None:
                self.vectors[place] = setting.solver.push(theta, reply, setting.pull)
                self.measure(theta, reply)
        self.read = self.versions

    def measure(self, theta: Vector, centre: Vector) -> None:
        """Add how far a rank's vector is from the centre's."""
        apart = theta - centre
        self.square += float(apart.dot(apart))

    def hold(self) -> None:
        """Note that a bound keeps the answer back."""
        self.is_held = True

    def answer(self, now_s: float, *, is_alone: bool) -> None:
        """Note that the rank has the answer.

        Args:
            now_s: when.
            is_alone: whether the rank did nothing beside it.
        """
        self.end_s = now_s
        if is_alone or self._awaits is not None:
            self.stalled_s = now_s - self.rank.ready_s

    def receive(self, is_locked: bool, cause: Cause) -> None:
        """Let the rank have a part of the answer, and note whether that waited for a lock."""
        self.locks.append(is_locked)
        self.resume(cause)

    def until_answered(self, resume: Resume) -> None:
        """Let the rank go on when it has the answer."""
        self._awaits = resume

    def go_on(self, cause: Cause) -> None:
        """Let the rank go on, if it waits."""
        if self._awaits is not None:
            self._awaits(cause)


@dataclass(slots=True)
class _Queued:
    """A push of which all of a server's part is there.

    Args:
        push: the push.
        left: places of the vectors that are not merged yet.
        cause: what its next merge waited for last at this server: its arrival, or a merge.
        arrived_s: when it was there.
    """

    push: Push
    left: list[int]
    cause: Cause
    arrived_s: float


class _Merge(NamedTuple):
    """A merge that occupies the server."""

    queued: _Queued
    places: Sequence[int]
    start_s: float
    kind: int
    staleness: int


class Server(SomeFree):
    """One server at work: the tasks of its processor.

    Args:
        index: among the servers.
        worker: its number in the cluster.
        places: of the vectors that it has.
        setting: what it has in common with others.

    Attributes:
        queues: pushes that wait.
        memory: of its device, where that is counted.
    """

    def __init__(self, index: int, worker: int, places: Sequence[int], setting: Setting) -> None:
        super().__init__()
        self.index, self.worker = index, worker
        self.processor = processor = Processor(worker, setting.clock, setting.instant)
        self.places, self._merges = tuple(places), Counter[int]()
        self._setting = setting
        decisions = setting.decisions
        self._is_gradient = decisions.sends == "gradient"
        self._is_whole = decisions.locks != "nothing"
        is_asked = decisions.asks_first
        is_bound = decisions.staleness_bound is not None
        self._answers_at_once = not (self._is_gradient or is_asked or self._is_whole or is_bound)
        self._answers_merge = not (self._answers_at_once or is_asked or is_bound)
        self._queue: deque[_Queued] = deque()
        self.queues: dict[str, deque[_Queued]] = {MERGE: self._queue}
        self.memory = setting.memories.of(processor.index)
        self._device = setting.cluster.devices[processor.index]
        self._nodes = (setting.centre_place, setting.centre_place)
        self._sent_bytes = {place: setting.sent_bytes_of(place) for place in places}
        self._hosted_bytes = sum(map(setting.bytes_of, places))
        self._arrays = setting.centre.optimizer.arrays if self._is_gradient else 0
        self._prices: dict[tuple[tuple[int, ...], bool], tuple[float, int]] = {}

    def take_parameters(self) -> None:
        """Let its part of the centre lie in memory, and what the optimizer keeps of it."""
        if self.memory is not None:
            self.memory.take(WEIGHTS, self._hosted_bytes)
            self.memory.take(OPTIMIZER, self._arrays * self._hosted_bytes)

    def receive(self, push: Push, size_bytes: int, cause: Cause) -> None:
        """Take a part of a push; when all of it is there, it waits to be merged."""
        if self.memory is not None:
            self.memory.take(MESSAGES, size_bytes)
        push.unmerged[self.index] -= 1
        if push.unmerged[self.index]:
            return
        if self._answers_at_once:
            self.ask(push, cause)
        self._queue.append(_Queued(push, list(self.places), cause, self._setting.clock.now))
        if self.processor.is_idle:
            self.processor.wake()

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Merge the first push, or one node's part of it."""
        queued, now_s = queue.popleft(), self._setting.clock.now
        push, left = queued.push, queued.left
        places = tuple(left) if self._is_whole else (left[0],)
        del left[: len(places)]
        if left:
            queue.append(queued)
        merged = tuple(one for one in places if not self._is_gradient or one in push.counts)
        staleness, rate = self._merge(push, merged, now_s), self._setting.rate(push.batches.at)
        key = (merged, getattr(rate, "is_second", False))
        push.under_way[self.index] = (self._merges[places[0]] - push.read[places[0]][1], now_s)
        self._merges.update(places)  # all at once, or one by one; also those without a gradient
        seconds, number = self._prices.get(key) or self._price(key, rate)
        return seconds, _Merge(queued, places, now_s, number, staleness)

    def end(self, task: Begun) -> None:
        """Record a merge; with the last of a push, answer it, and let go whoever waits for that."""
        seconds, (queued, places, start_s, kind, staleness) = task
        push, setting, recorder = queued.push, self._setting, self._setting.recorder
        end_s = setting.clock.now if seconds else start_s
        noted = staleness if self._is_gradient else NO_STALENESS
        recorder.spans.append((kind, start_s, end_s, noted, (push.batches.first,), queued.cause))
        queued.cause = cause = recorder.span_number()
        if self.memory is not None:
            self.memory.give(MESSAGES, sum(map(self._sent_bytes.__getitem__, places)))
        push.merges.append((*push.under_way.pop(self.index), end_s))
        push.locks.append(start_s > queued.arrived_s)
        if queued.left:
            return
        del push.unmerged[self.index]
        if self._is_gradient and not push.unmerged:
            setting.batches.close(push.batches)
        if self._answers_merge:
            self.answer(push, cause)
        if not push.unmerged:
            for go_on in push.following:
                go_on(cause)

    def ask(self, push: Push, cause: Cause) -> None:
        """Answer with the weights of now, merged or not, or of when the device is up again."""
        self.free.append(partial(self.answer, push, cause))
        self.processor.tasks.do_free(self._setting.clock.now)

    def answer(self, push: Push, cause: Cause) -> None:
        """Send this server's part of the centre: as it is, or what weights were merged with."""
        setting, centre = self._setting, self._setting.centre
        for place in self.places:
            push.versions[place] = centre.versions[place], self._merges[place]
            push.reply.setdefault(place, None if setting.is_abstract else centre.thetas[place])
        tells = push.locks and setting.decisions.servers > 1  # which answer of several is the last
        arrive = partial(push.receive, push.locks[-1]) if tells else push.resume
        for server, worker, size_bytes, _sent in push.parts:
            if server is self:
                setting.fabric.send((self.worker, worker), size_bytes, self._nodes, cause, arrive)

    def _merge(self, push: Push, places: Sequence[int], now_s: float) -> int:
        """Change the centre; return the most updates between what was read and what is merged."""
        setting, solver, centre = self._setting, self._setting.solver, self._setting.centre
        stalest = NO_STALENESS if self._is_gradient else 0
        for place in places:
            staleness = centre.versions[place] - push.read[place][0]
            stalest = max(stalest, staleness)
            if not setting.is_abstract:
                vector = push.vectors[place]
                assert vector is not None
                if not self._is_gradient and not setting.decisions.asks_first:
                    self._note_weights(push, place, vector)
                rate = solver.merge_rate(setting.rate(push.batches.at), staleness)
                step = partial(centre.step, place, rate, now_s)
                theta = solver.merge(centre.thetas[place], vector, setting.pull, step)
                centre.thetas[place] = theta
            if self._is_gradient:
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

    def _price(self, key: tuple[tuple[int, ...], bool], rate: float) -> tuple[float, int]:
        """Seconds of a merge of nodes in a stage of the optimizer, 0 of none; its span's kind."""
        setting, (places, _stage) = self._setting, key
        for place in places if self._is_gradient else ():
            setting.centre.optimizer.charge(setting.nodes[place], rate)
        work = reduce(add, map(setting.merge_work, places), Work(operations=0))
        known = (self.worker, setting.centre_place, Direction.UPDATE)
        kind = (*known, work.flop, work.bytes, work.operations)
        hosted, stage = self._hosted_bytes, setting.centre.optimizer.stage(rate)
        updated = (2 + stage.arrays * self._is_gradient) * hosted
        seconds_on = partial(
            occupancy_s, work=work, is_light=False, resident_bytes=hosted, updated_bytes=updated
        )
        price = seconds_on(self._device) if places else 0.0, setting.recorder.kinds.number(kind)
        if places:
            setting.recorder.kinds.seconds_on[price[1]] = seconds_on
        self._prices[key] = price
        return price


def parts_of(rank: Rank, servers: Sequence[Server], setting: Setting) -> list[PushPart]:
    """List what a rank sends or gets at once, server by server."""
    parts: list[PushPart] = []
    for server in servers:
        for worker, places in rank.vectors_on().items():
            own = [place for place in places if place in server.places]
            sizes = [sum(map(one, own)) for one in (setting.bytes_of, setting.sent_bytes_of)]
            if sizes[0]:
                parts.append(PushPart(server, worker, *sizes))
    return parts
