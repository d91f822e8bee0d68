"""Ranks, servers and the links between them, played by SimPy: every exchange's times, and weights.

The play knows how solvers are published, that a link takes one message after the other, and what a
product costs (Appendix C); it shares no code with the engine. Times are drawn so that no two things
happen at one instant by chance.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import simpy
from plain_solvers import drawn
from solver_cases import batches_of

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.hardware import Cluster, Device, Link
from ampsim.hardware.topology import Route

SHAPES = [(3, 3), (3, 3), (3, 2)]
SIZES = [12, 12, 8]  # with biases
UPDATES = [9, 9, 6]  # FLOP of a step of plain descent: weights alone
RATE, PULL = 0.05, 0.1
PLACES = range(3)

Vectors = list[np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]
Process = Generator[Any, Any, None]


def gradients(thetas: Vectors, taken: Sequence[Batch]) -> Vectors:
    """The mean over the batches that a rank takes at once."""
    found = [gradient(thetas, *one) for one in taken]
    return [np.mean(layer, axis=0) for layer in zip(*found, strict=True)]


def gradient(thetas: Vectors, x: np.ndarray, y: np.ndarray) -> Vectors:
    """Of half the mean squared error of layers in a row; biases are the last rows."""
    inputs, found = [], []
    for theta in thetas:
        inputs.append(np.hstack([x, np.ones((len(x), 1))]))
        x = inputs[-1] @ theta
    g = (x - y) / len(x)
    for theta, full in zip(reversed(thetas), reversed(inputs), strict=True):
        found.append(full.T @ g)
        g = g @ theta[:-1].T
    return found[::-1]


@dataclass(kw_only=True)
class Case:
    """A cluster of ranks and then servers, and what the solver decides.

    `ways` has the seconds of a byte and of latency, between every two workers.
    """

    speeds: list[float]
    ranks: int
    ways: dict[tuple[int, int], tuple[float, float]]
    batches: list[list[Batch]]  # that a rank takes at once
    thetas: Vectors
    sends_gradient: bool
    locks_update: bool = True
    has_turns: bool = False
    overlaps: bool = False
    bound: float = math.inf
    compression: float | None = None
    asks_first: bool = False
    period: int = 1


@dataclass(eq=False)
class Push:
    """What is under way from a rank, and what comes back."""

    rank: int
    vectors: Vectors
    answered: list[Any]
    unmerged: int
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    reply: dict[int, np.ndarray] = field(default_factory=dict)
    following: list[Callable[[], Any]] = field(default_factory=list)


class Play:
    """A run up to the end of the last batch of `case.batches`; ranks go on to others meanwhile.

    Attributes:
        rows: of each exchange when its rank was ready, when it left, the first merge, the last, and
            when the answer had come.
        weights: the centre at the end, `end_s`.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.env = case, simpy.Environment()
        self.centre = list(case.thetas)
        self.link_free_s: dict[tuple[int, int], float] = {}
        self.batches, self.open = enumerate(itertools.cycle(case.batches)), len(case.batches)
        self.stopped = self.env.event()
        self.rows: list[tuple[float, ...]] = []
        servers = len(case.speeds) - case.ranks
        self.shards: list[list[int]] = [[] for _ in range(servers)]
        for place in sorted(PLACES, key=lambda one: -SIZES[one]):
            min(self.shards, key=lambda one: sum(SIZES[p] for p in one)).append(place)
        self.queues = [deque[tuple[Push, list[int]]]() for _ in self.shards]
        self.woken = [self.env.event() for _ in self.shards]
        self.clocks, self.held = [0] * case.ranks, list[Push]()
        self.turn, self.is_locked, self.waiting = 0, False, dict[int, Any]()
        for index in range(servers):
            self.env.process(self.serve(index))
        make = self.push_gradients if case.sends_gradient else self.push_weights
        for rank in range(case.ranks):
            self.env.process(make(rank))
        self.env.run(until=self.stopped)

    # what a batch, a message and a merge take

    def compute_s(self, rank: int, taken: Sequence[Batch]) -> float:
        rows = sum(len(x) for x, _y in taken)
        products = [2 * rows * one * other for one, other in SHAPES]
        selected = 0 if self.case.compression is None else 5 * sum(SIZES)
        return (3 * sum(products) - products[0] + selected) / self.case.speeds[rank]

    def flight(self, source: int, target: int, size_bytes: float) -> Any:
        byte_s, latency_s = self.case.ways[source, target]
        left_s = max(self.env.now, self.link_free_s.get((source, target), 0.0))
        self.link_free_s[source, target] = left_s = left_s + size_bytes * byte_s
        return self.env.timeout(left_s + latency_s - self.env.now)

    def entries(self, place: int) -> int:
        return math.ceil((self.case.compression or 0) * SIZES[place])

    def sent_bytes(self, index: int) -> int:
        each = 8 if self.case.compression is None else 12
        count = SIZES.__getitem__ if self.case.compression is None else self.entries
        return each * sum(map(count, self.shards[index]))

    def merge_flop(self, place: int) -> int:
        if self.case.sends_gradient:
            return UPDATES[place] + self.entries(place)
        return SIZES[place] * (1 if self.case.asks_first else 3)

    def close(self, number: int) -> None:
        self.open -= number < len(self.case.batches)
        if not self.open and not self.stopped.triggered:
            self.end_s, self.weights = self.env.now, list(self.centre)
            self.stopped.succeed()

    # servers

    def serve(self, index: int) -> Process:
        case, queue, worker = self.case, self.queues[index], self.case.ranks + index
        while True:
            if not queue:
                self.woken[index] = self.env.event()
                yield self.woken[index]
            push, left = queue.popleft()
            now = list(left) if case.locks_update else left[:1]
            del left[: len(now)]
            if left:
                queue.append((push, left))
            push.starts.append(self.env.now)
            for place in now:
                self.merge(place, push)
            yield self.env.timeout(sum(map(self.merge_flop, now)) / case.speeds[worker])
            push.ends.append(self.env.now)
            if left:
                continue
            push.unmerged -= 1
            if not push.unmerged:
                for follow in push.following:
                    follow()
            if case.bound == math.inf and not push.answered[index].triggered:
                self.answer(index, push)

    def merge(self, place: int, push: Push) -> None:
        case, centre, vector = self.case, self.centre[place], push.vectors[place]
        if case.sends_gradient:
            self.centre[place] = centre - RATE * vector
        elif case.asks_first:
            self.centre[place] = centre + vector
        else:
            if case.locks_update:
                push.reply[place] = centre
            self.centre[place] = centre + PULL * (vector - centre)

    def answer(self, index: int, push: Push) -> None:
        for place in self.shards[index]:
            push.reply.setdefault(place, self.centre[place])
        push.answered[index].succeed()

    def visit(self, index: int, push: Push, size_bytes: float, *, is_question: bool) -> Process:
        """Go to a server with something, or to ask; and come back with its part of the centre."""
        case, worker = self.case, self.case.ranks + index
        yield self.flight(push.rank, worker, size_bytes)
        if is_question or not (case.sends_gradient or case.asks_first or case.locks_update):
            self.answer(index, push)
        if not is_question:
            self.queues[index].append((push, list(self.shards[index])))
            if not self.woken[index].triggered:
                self.woken[index].succeed()
        if is_question or not case.asks_first:
            yield push.answered[index]
            yield self.flight(worker, push.rank, 8 * sum(SIZES[p] for p in self.shards[index]))

    def visits(self, push: Push, *, is_question: bool = False) -> Any:
        sizes = [0 if is_question else self.sent_bytes(one) for one in range(len(self.shards))]
        return self.env.all_of([
            self.env.process(self.visit(index, push, size, is_question=is_question))
            for index, size in enumerate(sizes)
        ])  # fmt: skip

    def push_of(self, rank: int, vectors: Vectors) -> Push:
        return Push(rank, vectors, [self.env.event() for _ in self.shards], len(self.shards))

    # ranks that push gradients

    def push_gradients(self, rank: int) -> Process:
        thetas = list(self.centre)
        for number, taken in self.batches:
            yield self.env.timeout(self.compute_s(rank, taken))
            ready_s, push = self.env.now, self.push_of(rank, gradients(thetas, taken))
            push.following.append(lambda of=(number, push): self.note_merged(*of))
            yield self.visits(push)
            thetas = [push.reply[place] for place in PLACES]
            self.rows.append((ready_s, ready_s, min(push.starts), max(push.ends), self.env.now))

    def note_merged(self, number: int, push: Push) -> None:
        self.close(number)
        self.clocks[push.rank] += 1
        held, self.held = [*self.held, push], []
        for one in held:
            if self.clocks[one.rank] - min(self.clocks) > self.case.bound:
                self.held.append(one)
            elif self.case.bound < math.inf:
                for index in range(len(self.shards)):
                    self.answer(index, one)

    # ranks that push weights

    def push_weights(self, rank: int) -> Process:
        case, thetas, last = self.case, list(self.centre), None
        for steps, (number, taken) in enumerate(self.batches, 1):
            push = exchanged = None
            is_due = steps % case.period == 0
            if is_due and case.overlaps:
                push = self.push_of(rank, list(thetas))
                exchanged = self.env.process(self.exchange(push, last))
            yield self.env.timeout(self.compute_s(rank, taken))
            found = gradients(thetas, taken)
            if is_due and push is None:
                push = self.push_of(rank, list(thetas))
                exchanged = self.env.process(self.exchange(push, last))
            flop, before = sum(UPDATES), thetas
            thetas = [theta - RATE * each for theta, each in zip(thetas, found, strict=True)]
            if push is not None:
                yield exchanged
                last, flop = push, flop + 3 * sum(SIZES)
                for place in PLACES:
                    thetas[place] = thetas[place] - PULL * (before[place] - push.reply[place])
            yield self.env.timeout(flop / case.speeds[rank])
            if case.asks_first and last is not None and last.unmerged:
                last.following.append(lambda number=number: self.close(number))
            else:
                self.close(number)

    def exchange(self, push: Push, last: Push | None) -> Process:
        """End when the answer is there; the next may wait until all is merged."""
        case, ready_s = self.case, self.env.now
        if case.overlaps and last is not None and last.unmerged:
            merged = self.env.event()
            last.following.append(merged.succeed)
            yield merged
        if case.has_turns:
            self.waiting[push.rank] = granted = self.env.event()
            self.grant()
            yield granted
        sent_s = self.env.now
        if case.asks_first:
            yield self.visits(push, is_question=True)
            push.vectors = [PULL * (theta - push.reply[p]) for p, theta in enumerate(push.vectors)]
            if case.has_turns:
                push.following.append(self.pass_on)
            self.visits(push)
        else:
            yield self.visits(push)
            if case.has_turns:
                self.pass_on()
        end_s = self.env.now

        def note() -> None:
            self.rows.append((ready_s, sent_s, min(push.starts), max(push.ends), end_s))

        if push.unmerged:
            push.following.append(note)
        else:
            note()

    def pass_on(self) -> None:
        self.is_locked, self.turn = False, (self.turn + 1) % self.case.ranks
        self.grant()

    def grant(self) -> None:
        if not self.is_locked and self.turn in self.waiting:
            self.is_locked = True
            self.waiting.pop(self.turn).succeed()


def drawn_case(name: str, seed: int) -> tuple[Case, ampsim.Result]:
    """A small cluster of workers and links that all differ, and a solver on it."""
    draw = random.Random(f"{name} {seed}")
    kind = SOLVERS[name]
    ranks, servers, scale_s = draw.randint(1, 4), draw.randint(1, 3), 10 ** draw.uniform(-8, -5)
    workers, batch, epochs = ranks + servers, draw.randint(1, 4), draw.randint(1, 2)
    speeds = [10 ** draw.uniform(7, 9) for _ in range(workers)]
    ways = {
        pair: (scale_s * draw.random() / 64, scale_s * draw.random())
        for pair in itertools.permutations(range(workers), 2)
    }
    rows = draw.randint(1, 14) * batch - draw.randint(0, batch - 1)
    made = drawn(seed, rows, batch, layers=3, rate=RATE)
    decided: dict[str, Any] = {"sends_gradient": kind.sends == "gradient"}
    options: dict[str, Any] = {"ranks": ranks, "servers": servers}
    if decided["sends_gradient"]:
        options["compression"] = decided["compression"] = draw.choice([None, 0.3])
        if name == "ssp":
            options["staleness_bound"] = decided["bound"] = draw.randint(0, 2)
    else:
        options |= {"elastic": draw.choice(["server", "worker"]), "moving_rate": PULL}
        options["period"] = decided["period"] = draw.randint(1, 3)
        decided["asks_first"] = options["elastic"] == "worker"
    together, batches = draw.choice([1, 1, 3]), batches_of(made)
    if together > 1:
        options["inner"] = ampsim.Pipeline(together)
    taken = [batches[first : first + together] for first in range(0, len(batches), together)]
    case = Case(
        speeds=speeds, ranks=ranks, ways=ways, batches=taken * epochs,
        thetas=stacks(made), locks_update=name not in ("hogwild", "ea-wild"),
        has_turns=name == "easgd", overlaps=name in ("async-easgd", "ea-wild"), **decided,
    )  # fmt: skip
    result = ampsim.simulate(made, cluster_of(speeds, ways), kind(**options), epochs=epochs)
    return case, result


def cluster_of(speeds: list[float], ways: dict[tuple[int, int], tuple[float, float]]) -> Cluster:
    """Workers of these speeds, and their links; those of the host are free."""
    return Cluster(
        name="test",
        devices=tuple(Device(name=f"d{n}", flop_per_s=one) for n, one in enumerate(speeds)),
        links=tuple(
            Route(source=s, target=t, link=Link(latency_s=a, bandwidth_bytes_per_s=1 / b))
            for (s, t), (b, a) in ways.items()
        ),
    )


def stacks(made: ampsim.Model) -> Vectors:
    """The parameters of the layers, biases as last rows."""
    found = made.parameters()
    names = [f"linear-{one}" for one in (1, 2, 3)]
    return [np.vstack([found[f"{one}.weight"], found[f"{one}.bias"]]) for one in names]


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("name", [name for name, kind in SOLVERS.items() if kind.meets == "server"])
def test_every_exchange_takes_its_time_and_leaves_its_weights(name, seed):
    case, result = drawn_case(name, seed)
    play = Play(case)
    assert result.makespan_s == pytest.approx(play.end_s, rel=1e-9)
    columns = ["ready_s", "start_s", "merge_start_s", "merge_end_s", "end_s"]
    found, expected = (
        np.array(sorted(tuple(row) for row in rows if max(row) < play.end_s * (1 - 1e-9)))
        for rows in (result.exchanges[columns].to_numpy(), play.rows)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if case.compression is None:
        for one, other in zip(stacks(result.model), play.weights, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
