"""Push/pull exchanges with servers: whose turn it is, who must wait, and what is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ampsim.data_parallel.coroutine import Resume, run, until
from ampsim.data_parallel.decisions import Vector
from ampsim.data_parallel.rank import Answer, Rank
from ampsim.data_parallel.server import Push, Server, parts_of
from ampsim.data_parallel.setting import ELASTIC, PULL, Setting
from ampsim.errors import OptionError
from ampsim.model_parallel.footprint import MESSAGES
from ampsim.model_parallel.price import Charged
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS, WAITS


class Bound:
    """Holds back the answers to ranks that are too far ahead.

    Args:
        ranks: all of them; those that are idle hold up nobody.
        most: batches that a rank may be ahead.
        answer: lets all servers answer.
    """

    def __init__(
        self, ranks: Sequence[Rank], most: int, answer: Callable[[Push, Cause], None]
    ) -> None:
        self._ranks, self._most, self._answer = ranks, most, answer
        self._clocks = [0] * len(ranks)
        self._held: list[tuple[Push, Cause]] = []

    def merged(self, push: Push, cause: Cause) -> None:
        """Count a batch of a rank; its answer is held until it may go on."""
        self._clocks[push.rank.number] += 1
        self._held.append((push, cause))
        self.let_go(cause)

    def let_go(self, cause: Cause | None = None) -> None:
        """Answer ranks that are not too far ahead of the slowest any more."""
        slowest = min(
            (self._clocks[one.number] for one in self._ranks if not one.is_idle), default=math.inf
        )
        held, self._held = self._held, []
        for push, own in held:
            if self._clocks[push.rank.number] - slowest > self._most:
                push.hold()
                self._held.append((push, own))
            else:
                self._answer(push, own if cause is None else cause)


class TurnLock:
    """A lock that goes from rank to rank in their order; those that have ended are left out.

    That it passes on takes no time.

    Args:
        ranks: how many there are.
    """

    def __init__(self, ranks: int) -> None:
        self._active = [True] * ranks
        self._turn = 0
        self._is_held = False
        self._waiting: dict[int, tuple[Cause, Resume]] = {}

    def acquire(self, rank: int, cause: Cause, granted: Resume) -> None:
        """Call `granted` when it is the turn of `rank`, with what it waited for."""
        self._waiting[rank] = (cause, granted)
        self._grant(None)

    def release(self, cause: Cause) -> None:
        """Pass it on, after `cause`."""
        self._is_held = False
        self._turn = (self._turn + 1) % len(self._active)
        self._grant(cause)

    def set_active(self, rank: int, is_active: bool) -> None:
        """Let a rank have turns, or not any more."""
        self._active[rank] = is_active
        if not is_active:
            self._grant(None)

    def _grant(self, cause: Cause | None) -> None:
        """Give it to whose turn it is, if that rank waits."""
        if self._is_held or not any(self._active):
            return
        while not self._active[self._turn]:
            self._turn = (self._turn + 1) % len(self._active)
        if self._turn in self._waiting:
            own, granted = self._waiting.pop(self._turn)
            self._is_held = True
            granted(own if cause is None else cause)


def shards_of(setting: Setting, servers: int) -> list[list[int]]:
    """The vectors of each server: the largest first, to who has the fewest parameters.

    Raises:
        OptionError: there are more servers than nodes that learn.
    """
    count = len(setting.nodes)
    if servers > count:
        raise OptionError(
            f"{setting.solver.name}: each server needs a node that learns, got servers={servers} "
            f"and {count} node{'s' * (count != 1)}; take fewer servers"
        )
    sizes = [setting.bytes_of(place) for place in range(count)]
    shards: list[list[int]] = [[] for _ in range(servers)]
    for place in sorted(range(count), key=lambda one: (-sizes[one], one)):
        least = min(range(servers), key=lambda one: (sum(sizes[p] for p in shards[one]), one))
        shards[least].append(place)
    return [sorted(shard) for shard in shards]


SEVERAL = -2
"""In place of a server's worker: a rank exchanges with several at once."""


class PushPull:
    """An exchange of each rank with servers; an `Exchange`.

    Args:
        setting: what ranks have in common.
        ranks: all of them.
        workers: those of the servers.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], workers: Sequence[int]) -> None:
        self._setting = setting
        decisions = setting.decisions
        self._is_gradient = decisions.sends == "gradient"
        self._asks_first = decisions.asks_first
        self._period = setting.solver.assignments_per_exchange
        self.servers = [
            Server(index, worker, places, setting, self._merged)
            for index, (worker, places) in enumerate(
                zip(workers, shards_of(setting, len(workers)), strict=True)
            )
        ]
        sends_weights = not self._is_gradient and not self._asks_first
        self._answers_at_once = sends_weights and decisions.locks == "nothing"
        self._waits_for_merge = not self._asks_first and decisions.locks == "update"
        self._lock = TurnLock(len(ranks)) if decisions.locks == "exchange" else None
        self._early: dict[int, Push] = {}
        self._latest: dict[int, Push] = {}
        self._noted: set[Push] = set()
        self._read = [list(setting.centre.versions) for _ in ranks]
        self._bound = None
        if decisions.staleness_bound is not None:
            self._bound = Bound(ranks, decisions.staleness_bound, self._answer_all)
        self._parts = [parts_of(rank, self.servers, setting.bytes_of) for rank in ranks]
        self._sent = [parts_of(rank, self.servers, setting.sent_bytes_of) for rank in ranks]

    # what a rank awaits

    async def with_others(self, rank: Rank, cause: Cause) -> Answer:
        """Exchange the gradient or the weights of a rank, or let it step alone."""
        setting = self._setting
        if not self._is_gradient and not self._is_exchanging(rank):
            return Answer(cause, rank.touched, self._step)
        push = self._early.pop(rank.number, None)
        if push is None:
            push = Push(rank, setting, self._read[rank.number])
            cause = await self._exchange(push, cause)
        elif not push.is_answered:
            cause = await until(push.until_answered)
        if not self._is_gradient:
            return Answer(cause, range(len(setting.nodes)), self._step)
        for place, reply in enumerate(push.reply):
            rank.adopt(place, None if reply is None else setting.solver.adopt(reply, reply))
        return Answer(cause)

    async def _exchange(self, push: Push, cause: Cause) -> Cause:
        """Let a push go when it may, and wait until the rank has the answer."""
        setting, rank = self._setting, push.rank
        decisions, before = setting.decisions, self._latest.get(rank.number)
        if decisions.overlaps and before is not None and before.servers_left:
            cause = await until(before.let_follow)  # servers have room for one push of each rank
        if self._lock is not None:
            cause = await until(partial(self._lock.acquire, rank.number, cause))
        self._latest[rank.number] = push
        first = self._pull if self._asks_first else self._send
        cause = await until(partial(first, push, cause))
        if self._asks_first:
            self._make(push)
            self._send(push, cause)
        elif self._lock is not None:
            self._lock.release(cause)
        if rank.members:
            cause = await rank.broadcast(cause)
        push.end(setting.clock.now, is_alone=not decisions.overlaps)
        if not push.servers_left and push not in self._noted:
            self._note(push, push.end_s)
        self._read[rank.number] = push.versions
        if not self._is_gradient:
            rank.stash_centre(list(push.vectors) if self._asks_first else push.reply)
        return cause

    def begin(self, rank: Rank, cause: Cause) -> None:
        """Let a push of weights go beside the gradient, where the solver does."""
        if self._lock is not None:
            self._lock.set_active(rank.number, True)
        if self._setting.decisions.overlaps and self._is_exchanging(rank):
            push = Push(rank, self._setting, self._read[rank.number])
            self._early[rank.number] = push
            run(self._exchange(push, cause), push.go_on)

    def finish(self, rank: Rank) -> None:
        """Let go of what the step needed, and count its batches as done unless servers do."""
        if rank.centre is not None:
            rank.forget_centre()
        if not self._is_gradient:
            push = self._latest.get(rank.number)
            assert rank.assignment is not None
            if self._asks_first and push is not None and push.servers_left:
                push.close_later(rank.assignment)
            else:
                self._setting.batches.close(rank.assignment)
        rank.forget_gradients()
        rank.steps += 1

    def end(self, rank: Rank) -> None:
        """Let nobody wait for a rank that has no batches left."""
        if self._lock is not None:
            self._lock.set_active(rank.number, False)
        if self._bound is not None:
            self._bound.let_go()

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Do nothing before the gradients of all vectors are there."""

    def note_unanswered(self, end_s: float) -> None:
        """Record exchanges that are merged, and not answered when the run ends at `end_s`."""
        for push in self._latest.values():
            is_merged = not push.servers_left and math.isfinite(push.start_s)
            if is_merged and not push.is_answered and push not in self._noted:
                self._noted.add(push)
                self._note(push, end_s)

    def weights(self, part: int) -> list[Vector]:
        """The centre's weights, whatever the part."""
        return list(self._setting.centre.thetas)

    def _is_exchanging(self, rank: Rank) -> bool:
        return (rank.steps + 1) % self._period == 0

    def _step(self, rank: Rank, place: int, now_s: float) -> Charged:
        """Make a rank's own step, with a pull towards the centre where it has exchanged."""
        centre = rank.centre
        rank.step(place, now_s, None if centre is None else centre[place])
        if centre is None:
            return None
        return ELASTIC if place in rank.touched else PULL

    # a push to the servers, and their answers

    def _pull(self, push: Push, cause: Cause, resume: Resume) -> None:
        """Ask every server for its part of the centre."""
        parts = self._parts[push.rank.number]
        push.leave(self._setting.clock.now, parts, resume)
        for server in sorted({server for server, _worker, _bytes in parts}):
            worker = next(worker for one, worker, _bytes in parts if one == server)
            ends = (worker, self.servers[server].worker)
            self._setting.send(ends, 0, cause, partial(self._answer, push, server))

    def _make(self, push: Push) -> None:
        """Make what a rank sends that has asked for the centre."""
        setting, rank = self._setting, push.rank
        vectors = list(push.vectors)
        for place, reply in enumerate(push.reply):
            if reply is not None:
                theta = rank.theta(place)
                vectors[place] = setting.solver.push(theta, reply, setting.pull)
                push.measure(theta, reply)
        push.make(vectors)

    def _send(self, push: Push, cause: Cause, resume: Resume | None = None) -> None:
        """Send a push; `resume` where the rank has not asked for the answer."""
        parts = self._sent[push.rank.number]
        if resume is not None:
            push.leave(self._setting.clock.now, self._parts[push.rank.number], resume)
        for server, worker, size_bytes in parts:
            ends = (worker, self.servers[server].worker)
            arrive = partial(self._arrived, push, server, size_bytes)
            self._setting.send(ends, size_bytes, cause, arrive)

    def _arrived(self, push: Push, index: int, size_bytes: int, cause: Cause) -> None:
        """Take a part of a push; when all of a server's is there, it is merged."""
        server = self.servers[index]
        if server.memory is not None:
            server.memory.take(MESSAGES, size_bytes)
        if push.arrive(index, self._setting.clock.now):
            if self._answers_at_once:
                self._answer(push, index, cause)  # the weights of this moment, merged or not
            server.put(push, cause)

    def _merged(self, push: Push, index: int, cause: Cause) -> None:
        """Answer what a server has merged; with the last, let go whoever waits for that."""
        was_answered, is_last = push.is_answered, not push.servers_left
        if self._is_gradient and is_last:
            assert push.rank.assignment is not None
            self._setting.batches.close(push.rank.assignment)
        if not (self._bound or self._answers_at_once or self._asks_first):
            self._answer(push, index, cause)
        if not is_last:
            return
        if self._asks_first and self._lock is not None:
            self._lock.release(cause)
        for batches in push.closing:
            self._setting.batches.close(batches)
        if push.following is not None:
            push.following(cause)
        if self._bound is not None:
            self._bound.merged(push, cause)
        if was_answered:
            self._note(push, push.end_s)

    def _answer_all(self, push: Push, cause: Cause) -> None:
        """Let all servers answer."""
        for server in self.servers:
            self._answer(push, server.index, cause)

    def _answer(self, push: Push, index: int, cause: Cause) -> None:
        """Send a server's part of the centre."""
        setting, server = self._setting, self.servers[index]
        centre = setting.centre
        for place in server.places:
            theta = None if setting.is_abstract else centre.thetas[place]
            push.versions[place] = centre.versions[place]
            if push.reply[place] is None:
                push.reply[place] = theta
        for part, worker, size_bytes in self._parts[push.rank.number]:
            if part == index:
                setting.send((server.worker, worker), size_bytes, cause, push.part_came)

    def _note(self, push: Push, end_s: float) -> None:
        """Record an exchange that is merged, with when its answer or the end of the run came."""
        setting = self._setting
        where = self.servers[0].worker if len(self.servers) == 1 else SEVERAL
        numbers = push.rank.first, where, SENDS.index(setting.decisions.sends)
        times = (push.ready_s, push.sent_s, push.start_s, push.merged_s, end_s)
        waited = (push.stalled_s, WAITS.index(self._held_by(push)))
        size_bytes = sum(size for _server, _worker, size in self._sent[push.rank.number])
        is_known = not self._is_gradient and not setting.is_abstract
        distance = math.sqrt(push.square) if is_known else math.nan
        is_mixed = len(set(push.versions)) > 1
        setting.recorder.exchanges.append(
            (*numbers, *times, *waited, size_bytes, push.staleness, distance, is_mixed)
        )

    def _held_by(self, push: Push) -> str:
        """Name what held the rank up, the first of what did."""
        if not push.stalled_s:
            return "nothing"
        if self._lock is not None and push.sent_s > push.ready_s:
            return "turn"
        if push.is_held:
            return "bound"
        return "lock" if self._waits_for_merge and push.start_s > push.arrived_s else "reply"
