"""Exchanges with servers: each rank by itself, as the solver's locks and waits say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from ampsim.data_parallel.lock import TurnLock
from ampsim.data_parallel.rank import Rank
from ampsim.data_parallel.server import Server
from ampsim.data_parallel.setting import ELASTIC, Setting
from ampsim.data_parallel.shards import shards_of
from ampsim.data_parallel.visit import Visit
from ampsim.machine import Processor
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
            Server(index, _processor(worker, setting), places, setting, self._merged)
            for index, (worker, places) in enumerate(
                zip(workers, shards_of(setting, len(workers)), strict=True)
            )
        ]
        self._lock = TurnLock(len(ranks)) if solver.locks == "exchange" else None
        self._pending: list[Visit | None] = [None] * len(ranks)
        self._waits_for_reply = [False] * len(ranks)
        self._read = [list(setting.centre.versions) for _ in ranks]
        self._clocks = [0] * len(ranks)
        self._held: list[tuple[Visit, Cause]] = []
        self._parts = [self._parts_of(rank) for rank in ranks]

    def begun(self, rank: Rank, cause: Cause) -> None:
        """Send weights beside the gradient, where the solver does."""
        if self._lock is not None:
            self._lock.set_active(rank.number, True)
        if self._setting.solver.overlaps and self._is_exchanging(rank):
            visit = self._visit(rank, cause)
            self._pending[rank.number] = visit
            self._go(visit, cause)

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
        rank.close()
        self._go_on(rank, cause)

    def ended(self, rank: Rank) -> None:
        """Let nobody wait for a rank that has no batch left."""
        if self._lock is not None:
            self._lock.set_active(rank.number, False)
        self._let_go()

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
                step = rank.own.step(place, setting.rate(rank.deal.epoch), now_s)
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
            setting.rate(deal.epoch),
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

    def _parts_of(self, rank: Rank) -> list[tuple[int, int, int]]:
        """What a rank sends at once: (server, worker that has it, bytes)."""
        parts: list[tuple[int, int, int]] = []
        for server in self.servers:
            for worker, places in rank.vectors_on().items():
                size_bytes = sum(self._setting.bytes_of(p) for p in places if p in server.places)
                if size_bytes:
                    parts.append((server.index, worker, size_bytes))
        return parts

    def _go(self, visit: Visit, cause: Cause) -> None:
        """Send a parcel."""
        setting, parts = self._setting, self._parts[visit.rank.number]
        visit.sent_s, visit.cause = setting.clock.now, cause
        visit.answers = len(parts)
        visit.servers_left = len({server for server, _worker, _bytes in parts})
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
        if not self._is_gradient and self._setting.solver.locks == "nothing":
            self._answer(visit, index, cause)  # the weights of this moment, merged or not
        server.arrived(visit)

    def _merged(self, visit: Visit, index: int, cause: Cause) -> None:
        """Answer what a server has merged; close the deal when all have."""
        solver, was_over = self._setting.solver, visit.is_over
        visit.servers_left -= 1
        is_bound = solver.bound is not None
        if self._is_gradient and not visit.servers_left:
            visit.rank.close()
        if not is_bound and (self._is_gradient or solver.locks != "nothing"):
            self._answer(visit, index, cause)
        if visit.servers_left:
            return
        if is_bound:
            self._clocks[visit.rank.number] += 1
            self._held.append((visit, cause))
            self._let_go(cause)
        if was_over:
            self._note(visit)

    def _let_go(self, cause: Cause | None = None) -> None:
        """Answer ranks that are not too far ahead of the slowest any more."""
        bound = self._setting.solver.bound
        if bound is None:
            return
        slowest = min(
            (self._clocks[one.number] for one in self._ranks if not one.is_idle), default=math.inf
        )
        held, self._held = self._held, []
        for visit, own in held:
            if self._clocks[visit.rank.number] - slowest > bound:
                visit.is_held = True
                self._held.append((visit, own))
                continue
            for server in self.servers:
                self._answer(visit, server.index, own if cause is None else cause)

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
        """Take a part of the answer; with the last, the rank goes on."""
        visit.answers -= 1
        if visit.answers:
            return
        rank, setting = visit.rank, self._setting
        visit.is_over, visit.end_s = True, setting.clock.now
        is_waiting = self._waits_for_reply[rank.number] or not setting.solver.overlaps
        self._waits_for_reply[rank.number] = False
        if is_waiting:
            visit.stalled_s = visit.end_s - rank.ready_s
        if not visit.servers_left:
            self._note(visit)
        self._read[rank.number] = visit.versions
        if self._lock is not None:
            self._lock.release(cause)
        if not self._is_gradient:
            rank.stash_centre(visit.reply)
            if is_waiting:
                self._step(visit, cause)
            return
        for place, reply in enumerate(visit.reply):
            rank.adopt(place, None if reply is None else setting.solver.adopt(reply, reply))
        self._go_on(rank, cause)

    def _step(self, visit: Visit, cause: Cause) -> None:
        """Let a rank make its own step, now that it has gradient and centre."""
        visit.rank.apply(cause, range(len(self._setting.nodes)))

    def _note(self, visit: Visit) -> None:
        """Record an exchange of which merge and answer are over."""
        setting = self._setting
        numbers = visit.rank.number, self._where, SENDS.index(setting.solver.sends)
        times = (
            visit.ready_s, visit.sent_s, visit.start_s, visit.merged_s, visit.end_s,
            visit.stalled_s,
        )  # fmt: skip
        size_bytes = sum(size for _server, _worker, size in self._parts[visit.rank.number])
        is_known = not self._is_gradient and not setting.is_abstract
        distance = math.sqrt(visit.square) if is_known else math.nan
        is_mixed = len(set(visit.versions)) > 1
        setting.recorder.exchanges.append(
            (*numbers, *times, self._why(visit), size_bytes, visit.staleness, distance, is_mixed)
        )

    @property
    def _where(self) -> int:
        return self.servers[0].worker if len(self.servers) == 1 else SEVERAL

    def _why(self, visit: Visit) -> int:
        """The code of what held the rank up, the first of what did."""
        why = "reply"
        if not visit.stalled_s:
            why = "nothing"
        elif self._lock is not None and visit.sent_s > visit.ready_s:
            why = "turn"
        elif visit.is_held:
            why = "bound"
        elif self._setting.solver.locks == "update" and visit.start_s > visit.arrived_s:
            why = "lock"
        return WAITS.index(why)


def _processor(worker: int, setting: Setting) -> Processor:
    return Processor(worker, setting.clock, setting.instant)
