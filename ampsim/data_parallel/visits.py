"""Exchanges with servers: each rank by itself, as the solver's locks and waits say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from ampsim.data_parallel.bound import Bound
from ampsim.data_parallel.lock import TurnLock
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.server import Server, parts_of
from ampsim.data_parallel.setting import ELASTIC, Setting
from ampsim.data_parallel.shards import shards_of
from ampsim.data_parallel.solver import Vector
from ampsim.data_parallel.visit import Visit
from ampsim.trace import Cause
from ampsim.trace.recorder import SENDS, WAITS

SEVERAL = -2
"""In place of a server's worker: a rank exchanges with several at once."""


class Visits:
    """What ranks exchange with servers.

    Args:
        setting: what all have in common.
        ranks: all of them.
        workers: those of the servers.
    """

    def __init__(self, setting: Setting, ranks: Sequence[Rank], workers: Sequence[int]) -> None:
        self._setting, self._ranks = setting, ranks
        solver = setting.solver
        self._is_gradient = solver.sends == "gradient"
        self.servers = [
            Server(index, worker, places, setting, self._merged)
            for index, (worker, places) in enumerate(
                zip(workers, shards_of(setting, len(workers)), strict=True)
            )
        ]
        sends_weights = not self._is_gradient and not solver.asks_first
        self._answers_at_once = sends_weights and solver.locks == "nothing"
        self._waits_for_merge = not solver.asks_first and solver.locks == "update"
        self._lock = TurnLock(len(ranks)) if solver.locks == "exchange" else None
        self._pending: list[Visit | None] = [None] * len(ranks)
        self._latest: list[Visit | None] = [None] * len(ranks)
        self._waits_for_reply = [False] * len(ranks)
        self._read = [list(setting.centre.versions) for _ in ranks]
        self._bound = None
        if solver.bound is not None:
            self._bound = Bound(ranks, solver.bound, self._answer_all)
        self._parts = [parts_of(rank, self.servers, setting.bytes_of) for rank in ranks]
        self._sent = [parts_of(rank, self.servers, setting.sent_bytes_of) for rank in ranks]

    def weights(self) -> list[Vector]:
        """The centre's."""
        return list(self._setting.centre.thetas)

    def begun(self, rank: Rank, cause: Cause) -> None:
        """Send weights beside the gradient, where the solver does."""
        if self._lock is not None:
            self._lock.set_active(rank.number, True)
        if self._setting.solver.overlaps and self._is_exchanging(rank):
            before, visit = self._latest[rank.number], self._visit(rank, cause)
            self._pending[rank.number] = visit
            if before is not None and before.servers_left:
                before.following = visit  # servers have room for one parcel of each rank
            else:
                self._go(visit, cause)

    def computed(self, rank: Rank, place: int, cause: Cause) -> None:
        """Nothing is sent before the gradients of all are there."""

    def drained(self, rank: Rank, cause: Cause) -> None:
        """Exchange, or step alone."""
        if not self._is_gradient and not self._is_exchanging(rank):
            rank.apply(cause, rank.touched)
            return
        visit = self._pending[rank.number]
        if visit is None:
            self._request(self._visit(rank, cause), cause)
        elif visit.is_over:
            self._step(visit, cause)
        else:
            self._waits_for_reply[rank.number] = True

    def updated(self, rank: Rank, cause: Cause) -> None:
        """Take the next deal."""
        if rank.centre is not None:
            rank.forget_centre()
        visit = self._latest[rank.number]
        if self._setting.solver.asks_first and visit is not None and visit.servers_left:
            visit.to_close = rank.deal  # its parcel is still on its way
        else:
            rank.close()
        self._go_on(rank, cause)

    def ended(self, rank: Rank) -> None:
        """Let nobody wait for a rank that has no batch left."""
        if self._lock is not None:
            self._lock.set_active(rank.number, False)
        if self._bound is not None:
            self._bound.let_go()

    def update(self, rank: Rank, place: int, now_s: float) -> tuple[int, ...] | None:
        """A rank's own step, with a pull towards the centre where it has exchanged."""
        setting, centre = self._setting, rank.centre
        gradient = rank.gradients[place]
        if not setting.is_abstract:
            theta, pulled = rank.theta(place), None if centre is None else centre[place]
            assert rank.deal is not None
            if gradient is None:
                theta = setting.solver.local(theta, theta, pulled, setting.pull, lambda _g, w: w)
            else:
                step = rank.own.step(place, setting.rate_of(rank.deal), now_s)
                theta = setting.solver.local(theta, gradient, pulled, setting.pull, step)
                rank.own.versions[place] += 1
            rank.adopt(place, theta)
        if place in rank.touched:
            row = (setting.places[place], now_s, rank.counts[place], 0.0, 0)
            setting.recorder.updates.append(row)
        return None if centre is None else ELASTIC

    def _is_exchanging(self, rank: Rank) -> bool:
        return (rank.steps + 1) % self._setting.solver.deals_per_exchange == 0

    def _go_on(self, rank: Rank, cause: Cause) -> None:
        self._pending[rank.number] = None
        rank.forget_gradients()
        rank.steps += 1
        rank.begin(cause)

    def _visit(self, rank: Rank, cause: Cause) -> Visit:
        setting, deal = self._setting, rank.deal
        assert deal is not None
        vectors = range(len(setting.nodes))
        parcel = rank.gradients if self._is_gradient else [rank.theta(one) for one in vectors]
        return Visit(
            rank,
            deal.first,
            setting.rate_of(deal),
            setting.clock.now,
            [None for _ in vectors] if setting.is_abstract else list(parcel),
            set(rank.touched),
            list(rank.counts),
            self._read[rank.number],
            cause,
            reply=[None for _ in vectors],
            versions=[0 for _ in vectors],
        )

    def _request(self, visit: Visit, cause: Cause) -> None:
        if self._lock is None:
            self._go(visit, cause)
        else:
            self._lock.acquire(visit.rank.number, cause, partial(self._go, visit))

    def _go(self, visit: Visit, cause: Cause) -> None:
        """Send a parcel, or ask for the centre first."""
        setting, parts = self._setting, self._parts[visit.rank.number]
        visit.sent_s, visit.cause = setting.clock.now, cause
        self._latest[visit.rank.number] = visit
        visit.answers = len(parts)
        visit.servers_left = len({server for server, _worker, _bytes in parts})
        if not setting.solver.asks_first:
            self._send(visit, cause)
            return
        for server in sorted({server for server, _worker, _bytes in parts}):
            worker = next(worker for one, worker, _bytes in parts if one == server)
            ends = (worker, self.servers[server].worker)
            setting.send(ends, 0, cause, partial(self._answer, visit, server))

    def _send(self, visit: Visit, cause: Cause) -> None:
        """Send a parcel."""
        setting, parts = self._setting, self._sent[visit.rank.number]
        for server, _worker, _bytes in parts:
            visit.parts[server] = visit.parts.get(server, 0) + 1
        for server, worker, size_bytes in parts:
            ends = (worker, self.servers[server].worker)
            arrive = partial(self._arrived, visit, server, size_bytes)
            setting.send(ends, size_bytes, cause, arrive)

    def _arrived(self, visit: Visit, index: int, size_bytes: int, cause: Cause) -> None:
        """Take a part of a parcel; when all of a server's is there, it is merged."""
        server = self.servers[index]
        server.take(visit, size_bytes)
        visit.parts[index] -= 1
        if visit.parts[index]:
            return
        visit.cause = cause
        if math.isnan(visit.arrived_s):
            visit.arrived_s = self._setting.clock.now
        if self._answers_at_once:
            self._answer(visit, index, cause)  # the weights of this moment, merged or not
        server.arrived(visit)

    def _merged(self, visit: Visit, index: int, cause: Cause) -> None:
        """Answer what a server has merged; close the deal when all have."""
        solver, was_over = self._setting.solver, visit.is_over
        visit.servers_left -= 1
        if self._is_gradient and not visit.servers_left:
            visit.rank.close()
        if not (self._bound or self._answers_at_once or solver.asks_first):
            self._answer(visit, index, cause)
        if visit.servers_left:
            return
        if solver.asks_first and self._lock is not None:
            self._lock.release(cause)
        if visit.to_close is not None:
            self._setting.dealer.close(visit.to_close)
        if visit.following is not None:
            self._go(visit.following, cause)
        if self._bound is not None:
            self._bound.merged(visit, cause)
        if was_over:
            self._note(visit)

    def _answer_all(self, visit: Visit, cause: Cause) -> None:
        """Let all servers answer."""
        for server in self.servers:
            self._answer(visit, server.index, cause)

    def _answer(self, visit: Visit, index: int, cause: Cause) -> None:
        """Send a server's part of the centre."""
        setting, server = self._setting, self.servers[index]
        centre = setting.centre
        for place in server.places:
            visit.versions[place] = centre.versions[place]
            if visit.reply[place] is None and not setting.is_abstract:
                visit.reply[place] = centre.thetas[place]
        for part, worker, size_bytes in self._parts[visit.rank.number]:
            if part == index:
                ends = (server.worker, worker)
                setting.send(ends, size_bytes, cause, partial(self._came, visit))

    def _came(self, visit: Visit, cause: Cause) -> None:
        """Take a part of the answer; with the last, others need not wait for this rank."""
        visit.answers -= 1
        if visit.answers:
            return
        if self._setting.solver.asks_first:
            self._answered(visit, cause)
        elif self._lock is not None:
            self._lock.release(cause)
        visit.rank.hand_out(cause, partial(self._has_answer, visit))

    def _has_answer(self, visit: Visit, cause: Cause) -> None:
        """Let a rank go on, of which each copy has the answer."""
        rank, setting = visit.rank, self._setting
        visit.is_over, visit.end_s = True, setting.clock.now
        is_waiting = self._waits_for_reply[rank.number] or not setting.solver.overlaps
        self._waits_for_reply[rank.number] = False
        visit.stalled_s = visit.end_s - rank.ready_s if is_waiting else 0.0
        if not visit.servers_left:
            self._note(visit)
        self._read[rank.number] = visit.versions
        if not self._is_gradient:
            rank.stash_centre(visit.parcel if setting.solver.asks_first else visit.reply)
            if is_waiting:
                self._step(visit, cause)
            return
        for place, reply in enumerate(visit.reply):
            rank.adopt(place, None if reply is None else setting.solver.adopt(reply, reply))
        self._go_on(rank, cause)

    def _answered(self, visit: Visit, cause: Cause) -> None:
        """Make the parcel of a rank that has asked for the centre, and send it."""
        setting, rank = self._setting, visit.rank
        visit.read = visit.versions
        for place, reply in enumerate(visit.reply):
            if reply is not None:
                theta = rank.theta(place)
                visit.parcel[place] = setting.solver.parcel(theta, reply, setting.pull)
                apart = theta - reply
                visit.square += float(apart.dot(apart))
        self._send(visit, cause)

    def _step(self, visit: Visit, cause: Cause) -> None:
        """Let a rank make its own step, now that it has gradient and centre."""
        visit.rank.apply(cause, range(len(self._setting.nodes)))

    def _note(self, visit: Visit) -> None:
        """Record an exchange of which merge and answer are over."""
        setting = self._setting
        where = self.servers[0].worker if len(self.servers) == 1 else SEVERAL
        numbers = visit.rank.first, where, SENDS.index(setting.solver.sends)
        times = (visit.ready_s, visit.sent_s, visit.start_s, visit.merged_s, visit.end_s)
        why = visit.held_by(self._lock is not None, self._waits_for_merge)
        waited = (visit.stalled_s, WAITS.index(why))
        size_bytes = sum(size for _server, _worker, size in self._sent[visit.rank.number])
        is_known = not self._is_gradient and not setting.is_abstract
        distance = math.sqrt(visit.square) if is_known else math.nan
        is_mixed = len(set(visit.versions)) > 1
        setting.recorder.exchanges.append(
            (*numbers, *times, *waited, size_bytes, visit.staleness, distance, is_mixed)
        )
