"""What every solver has learned at the end of each epoch, against loops in NumPy of their own.

Ranks are of unlike speeds and batches do not divide among them, so that ranks are at different
places in the data, and in different epochs, when one ends.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np
import pytest
from covering import pairwise
from plain_solvers import Problem, problem
from solver_cases import FREE, Link, cluster, model, solver

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.data_parallel.engine import SolverEngine

RATE, BATCH, EPOCHS = 0.05, 3, 4
PASS, STEP, PULL = 36, 6, 24
"""FLOP of each of the two passes of a batch of three rows, of an update, and of a pull: 3 x 2
weights and 2 biases, of which an update counts the weights."""

SPEEDS = {
    "alike but for a little": (1.0, 0.93, 1.071),
    "one is slow": (1.0, 0.0507, 1.37),
    "all differ": (1.0, 2.13, 5.41, 10.7),
    "last is slow": (1.0, 0.0501),
}
SERVERS = (50.0, 0.71)
"""Speeds of a server: faster than its ranks can send, and slower."""

TIED = ((1, 1), (1, 0.05), (1, 0.05, 1.37), (1, 1, 1), (0.1, 1, 0.5), (0.25, 0.25, 0.125, 1))
"""Speeds that are multiples of each other, so that ranks send to a server at one instant."""

TIED_SERVERS = (50.0, 1.0)
MEETING = [name for name in SOLVERS if SOLVERS[name].meets == "all"]
SERVED = [name for name in SOLVERS if SOLVERS[name].meets == "server"]


def with_periods(names: list[str], *periods: int) -> list[tuple[str, int]]:
    """Each solver with each of these periods that it can have."""
    return [
        (name, period)
        for name in names
        for period in periods
        if period == 1 or "period" in SOLVERS[name].__dataclass_fields__
    ]


def ends_of_run(
    name: str,
    batches: int,
    speeds: tuple[float, ...],
    monkeypatch: Any,
    link: Link = FREE,
    **options: Any,
) -> tuple[ampsim.Result, list[np.ndarray]]:
    """A run, and the weights that are validated after each epoch."""
    seen: list[np.ndarray] = []
    validate = SolverEngine.validate

    def watching(self: Any, given: Any) -> Any:
        (theta,) = (node.theta for node in self._setting.nodes)
        seen.append(theta.reshape(4, 2).copy())
        return validate(self, given)

    monkeypatch.setattr(SolverEngine, "validate", watching)
    ranks = len(speeds) - (name in SERVED)
    made, hosts = model(BATCH * batches, BATCH), cluster([1e9 * one for one in speeds], link=link)
    chosen = solver(name, ranks=ranks, **options)
    return ampsim.simulate(made, hosts, chosen, epochs=EPOCHS), seen


def slopes_of(plain: Problem, own: Any, numbers: list[int]) -> Any:
    """The gradient of each rank's batch, by its number; nought where there is none."""
    pairs, count = zip(own, numbers, strict=True), len(plain.batches)
    return [plain.gradient(w, n) if n < count else np.zeros_like(w) for w, n in pairs]


def mean_of(own: Any, rows: list[int]) -> Any:
    """The mean of the ranks' weights, by the rows that each has seen."""
    return sum(w * n for w, n in zip(own, rows, strict=True)) / sum(rows)


def met(name: str, plain: Problem, ranks: int, period: int) -> list[np.ndarray]:
    """Ranks that meet: rounds, whatever the speeds; weights at the end of each epoch."""
    batches, alpha = len(plain.batches), 0.9 / ranks
    centre, velocity = plain.theta, np.zeros_like(plain.theta)
    own: list[Any] = [centre] * ranks
    rows, ends = [0] * ranks, []
    rounds = -(-batches // ranks)
    for turn in range(EPOCHS * rounds):
        numbers = [turn % rounds * ranks + rank for rank in range(ranks)]
        has = [number < batches for number in numbers]
        slopes = slopes_of(plain, own, numbers)
        is_meeting = name == "sync-sgd" or (turn + 1) % period == 0
        rows = [one + is_there for one, is_there in zip(rows, has, strict=True)]
        if name == "sync-sgd":
            centre = centre - RATE * sum(slopes) / sum(has)
            own = [centre] * ranks
        elif name == "sync-easgd":
            stretched = [w - centre for w in own]
            own = [w - RATE * g for w, g in zip(own, slopes, strict=True)]
            if is_meeting:
                own = [w - alpha * d for w, d in zip(own, stretched, strict=True)]
                centre = centre + alpha * sum(stretched)
        else:
            own = [w - RATE * g for w, g in zip(own, slopes, strict=True)]
            if is_meeting:
                mean = mean_of(own, rows)
                if name == "diloco":
                    velocity = 0.9 * velocity + (centre - mean)
                    centre = centre - 0.7 * (centre - mean + 0.9 * velocity)
                else:
                    centre = mean
                own, rows = [centre] * ranks, [0] * ranks
        if (turn + 1) % rounds == 0:
            steps_first = name in ("local-sgd", "diloco")
            ends.append(sum(own) / ranks if steps_first and not is_meeting else centre)
    return ends


class Serving:
    """Ranks that exchange with one server, event by event; links take no time.

    Within an instant (docs/decisions/0004-instants.md), what ends does so in the order in which it
    began, and what that leads to without time happens before the next ends; the server takes up a
    merge when all have ended. Times are whole attoseconds, so that equal instants are equal.
    """

    def __init__(
        self, name: str, plain: Problem, speeds: tuple[float, ...], period: int, bound: int
    ) -> None:
        self.name, self.plain, self.period, self.bound = name, plain, period, bound
        *self.speeds, self.server = [1e9 * one for one in speeds]
        self.ranks = range(len(self.speeds))
        self.alpha = 0.9 / len(self.ranks)
        self.sends_gradient = name in ("async-sgd", "hogwild", "ssp")
        self.overlaps = name in ("async-easgd", "ea-wild")
        self.centre, self.now = plain.theta, 0
        self.own: dict[int, Any] = dict.fromkeys(self.ranks, plain.theta)
        self.reply: dict[int, Any] = dict.fromkeys(self.ranks)
        self.before: dict[int, Any] = {}
        self.deal: dict[int, int] = {}
        self.steps = dict.fromkeys(self.ranks, 0)
        self.clocks = dict.fromkeys(self.ranks, 0)
        self.unmerged: set[int] = set()
        self.follows: dict[int, Any] = {}
        self.ready: set[int] = set()
        self.waiting: set[int] = set()
        self.held: list[int] = []
        self.turn, self.is_locked, self.is_busy = 0, False, False
        self.queue: list[tuple[int, Any]] = []
        self.events: list[tuple[int, int, str, int]] = []
        self.order, self.deals = itertools.count(), itertools.count()
        self.left = [len(plain.batches)] * EPOCHS
        self.ends: list[tuple[float, np.ndarray]] = []

    def run(self) -> list[tuple[float, np.ndarray]]:
        """When each epoch ended, in seconds, and the centre then."""
        for rank in self.ranks:
            self.take(rank)
        self.serve()
        while len(self.ends) < EPOCHS:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] == self.now:
                _now, _order, what, rank = heapq.heappop(self.events)
                getattr(self, what)(rank)
            self.serve()
        return self.ends

    def later(self, seconds: float, what: str, rank: int) -> None:
        time = self.now + round(seconds * 10**18)
        heapq.heappush(self.events, (time, next(self.order), what, rank))

    def is_exchanging(self, rank: int) -> bool:
        return (self.steps[rank] + 1) % self.period == 0

    def take(self, rank: int) -> None:
        self.deal[rank], self.reply[rank] = next(self.deals), None
        self.later(PASS / self.speeds[rank], "passed", rank)
        if self.overlaps and self.is_exchanging(rank):
            if rank in self.unmerged:
                self.follows[rank] = self.own[rank]
            else:
                self.send(rank, self.own[rank])

    def send(self, rank: int, parcel: Any) -> None:
        self.unmerged.add(rank)
        if self.name == "ea-wild":
            self.reply[rank] = self.centre
        self.queue.append((rank, parcel))

    def serve(self) -> None:
        if self.is_busy or not self.queue:
            return
        rank, parcel = self.queue.pop(0)
        self.is_busy, self.before[rank] = True, self.centre
        if self.sends_gradient:
            self.centre = self.centre - RATE * parcel
        else:
            self.centre = self.centre + self.alpha * (parcel - self.centre)
        self.later((STEP if self.sends_gradient else PULL) / self.server, "merged", rank)

    def slope(self, rank: int) -> Any:
        return self.plain.gradient(self.own[rank], self.deal[rank])

    def passed(self, rank: int) -> None:
        self.later(PASS / self.speeds[rank], "computed", rank)

    def computed(self, rank: int) -> None:
        if self.sends_gradient:
            self.queue.append((rank, self.slope(rank)))
        elif not self.is_exchanging(rank) or self.reply[rank] is not None:
            self.step(rank)
        elif self.overlaps:
            self.ready.add(rank)
        else:
            self.waiting.add(rank)
            self.grant()

    def grant(self) -> None:
        if not self.is_locked and self.turn in self.waiting:
            self.is_locked = True
            self.waiting.discard(self.turn)
            self.queue.append((self.turn, self.own[self.turn]))

    def merged(self, rank: int) -> None:
        self.is_busy = False
        self.unmerged.discard(rank)
        if self.sends_gradient:
            self.close(rank)
            self.clocks[rank] += 1
            self.held.append(rank)
            waiting, self.held = self.held, []
            for one in waiting:
                ahead = self.clocks[one] - min(self.clocks.values())
                if self.name == "ssp" and ahead > self.bound:
                    self.held.append(one)
                else:
                    self.own[one] = self.centre
                    self.take(one)
            return
        if self.name == "ea-wild":
            if rank in self.follows:
                self.send(rank, self.follows.pop(rank))
        else:
            self.reply[rank] = self.before[rank]
        if self.name == "easgd":
            self.is_locked, self.turn = False, (self.turn + 1) % len(self.ranks)
            self.grant()
            self.step(rank)
        elif rank in self.ready and self.reply[rank] is not None:
            self.ready.discard(rank)
            self.step(rank)

    def step(self, rank: int) -> None:
        reply, theta = self.reply[rank], self.own[rank]
        stepped = theta - RATE * self.slope(rank)
        if reply is not None:
            stepped = stepped - self.alpha * (theta - reply)
        self.own[rank] = stepped
        flop = STEP if reply is None else STEP + PULL
        self.later(flop / self.speeds[rank], "stepped", rank)

    def stepped(self, rank: int) -> None:
        self.close(rank)
        self.steps[rank] += 1
        self.take(rank)

    def close(self, rank: int) -> None:
        epoch = self.deal[rank] // len(self.plain.batches)
        if epoch < EPOCHS:
            self.left[epoch] -= 1
        while len(self.ends) < EPOCHS and not self.left[len(self.ends)]:
            self.ends.append((self.now * 1e-18, self.centre))


BATCHES = (1, 5, 7)


@pytest.mark.parametrize(
    ("method", "speeds", "batches"), pairwise(with_periods(MEETING, 1, 2, 3, 50), SPEEDS, BATCHES)
)
def test_an_epoch_of_ranks_that_meet_ends_with_the_last_step_of_each(
    method, speeds, batches, monkeypatch
):
    name, period = method
    _result, seen = ends_of_run(name, batches, SPEEDS[speeds], monkeypatch, period=period)
    plain = problem(model(BATCH * batches, BATCH))
    expected = met(name, plain, len(SPEEDS[speeds]), period)
    assert len(seen) == EPOCHS
    assert np.allclose(seen, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("name", ["local-sgd", "diloco"])
def test_a_mean_that_is_on_its_way_to_a_rank_without_a_batch_is_its_weights(
    name, batches, monkeypatch
):
    """An epoch has no batch for the last ranks, and the next ends before the tree reaches them."""
    how: dict[str, Any] = {"period": 2, "collective": "tree", "link": Link(latency_s=1e-6)}
    _result, seen = ends_of_run(name, batches, (1.0, 0.93, 1.071, 1.1), monkeypatch, **how)
    expected = met(name, problem(model(BATCH * batches, BATCH)), 4, 2)
    assert np.allclose(seen, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("method", "ranks", "server", "batches"),
    pairwise(with_periods(SERVED, 1, 2, 3), SPEEDS.values(), SERVERS, BATCHES),
)
def test_an_epoch_at_a_server_ends_with_the_centre_of_its_last_merge_or_step(
    method, ranks, server, batches, monkeypatch
):
    (name, period), hosts = method, (*ranks, server)
    options = {"period": period, "staleness_bound": 1}
    result, seen = ends_of_run(name, batches, hosts, monkeypatch, **options)
    plain = problem(model(BATCH * batches, BATCH))
    expected = Serving(name, plain, hosts, period, 1).run()
    assert result.epochs["time_s"].tolist() == pytest.approx([end_s for end_s, _w in expected])
    assert np.allclose(seen, [centre for _s, centre in expected], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("hosts", [(*ranks, server) for ranks in TIED for server in TIED_SERVERS])
@pytest.mark.parametrize(("name", "period"), with_periods(SERVED, 1, 2))
def test_a_server_is_first_sent_to_by_whose_step_began_first_of_those_that_end_at_one_instant(
    name, hosts, period, monkeypatch
):
    """Two ranks at speeds of 1 and 1/20: the slow one's step began first, whichever number it has.

    The fast one is through with its twentieth batch when the slow one is with its first, and both
    send. In floating-point seconds, the fast one's twenty batches end a little sooner or later.
    """
    result, seen = ends_of_run(name, 7, hosts, monkeypatch, period=period, staleness_bound=1)
    expected = Serving(name, problem(model(BATCH * 7, BATCH)), hosts, period, 1).run()
    times_s = [end_s for end_s, _w in expected]
    assert result.epochs["time_s"].tolist() == pytest.approx(times_s, rel=1e-12)
    assert np.allclose(seen, [centre for _s, centre in expected], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("name", "period"), with_periods([*SOLVERS], 1, 2, 3))
def test_a_rank_without_a_batch_steps_for_nobody(name, period, monkeypatch):
    """Two batches for four ranks in an epoch: where rounds are dealt, two ranks have none."""
    speeds = (1.0, 0.9, 1.1, 1.2, *([20.0] if name in SERVED else []))
    result, _seen = ends_of_run(name, 2, speeds, monkeypatch, period=period)
    spans = result.spans
    meetings = EPOCHS if name == "sync-sgd" else EPOCHS // period
    outer = STEP + PULL // 3  # a step, from one subtraction for each parameter
    of_own = {"sync-easgd": 2 * PULL, "sync-sgd": STEP, "diloco": outer, "local-sgd": 0}
    for rank in range(4):
        own = spans[spans["worker"] == rank]
        updates = own[own["direction"] == "update"]["flop"].tolist()
        batches = int((own["direction"] == "backward").sum())
        if name in SERVED:
            assert len(updates) <= batches, "of steps that it has not made"
            assert set(updates) <= {STEP, STEP + PULL}
        elif rank < 2:
            assert batches == EPOCHS
        else:
            assert not batches
            assert updates == [of_own[name]] * meetings
