"""Synchronous SGD that waits for the first K ranks: its steps, and what they cost."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from solver_cases import Points, batches_of, cluster, draw_exponential, model, stacked, weights

import ampsim
from ampsim.hardware import Event
from ampsim.ir import Direction, Graph, Work
from ampsim.nodes import Linear, SquaredError

RATE = 0.05


class ForwardAlone(Linear):
    """A linear layer of which only the forward step takes time."""

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return super().work(direction, shape) if direction is Direction.FORWARD else Work()


def one_step(rows: int) -> ampsim.Model:
    """A model whose batches take one step that takes time."""

    def graph() -> Graph:
        made = Graph("linear")
        wire, target = made.controller(x=("rows", 3), y=("rows", 2))
        made.end(SquaredError("loss"), made.add(ForwardAlone("linear-1", 3, 2), wire), target)
        return made

    return replace(model(rows, 1), make_graph=graph)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "backups"), [(4, 1), (8, 2), (8, 4)])
def test_a_step_of_exponential_ranks_costs_a_difference_of_harmonic_numbers(
    ranks, backups, monkeypatch
):
    """The K-th of P exponential times: C (H_P - H_(P-K)), of mean and variance as known."""
    draw_exponential(monkeypatch, {0.5: (1,)})
    steps, awaited = 1800, ranks - backups
    made, hosts = one_step(steps * awaited), cluster([1e8] * ranks, jitter_cv=0.5)
    chosen = ampsim.SyncSGD(ranks=ranks, backup_ranks=backups)
    result = ampsim.simulate(made, hosts, chosen, mode="sleep")
    starts = result.collectives["start_s"].to_numpy()
    compute_s = 2 * 3 * 2 / 1e8
    expected = sum(1 / k for k in range(backups + 1, ranks + 1))
    spread = math.sqrt(sum(1 / k**2 for k in range(backups + 1, ranks + 1)) / len(starts))
    found = starts[-1] / len(starts) / compute_s
    assert len(starts) >= steps
    assert found == pytest.approx(expected, abs=4 * spread)
    assert 4 * spread < 0.06 * expected


@dataclass
class Loop:
    """K-sync SGD by a heap: what ranks do from event to event, on one linear layer.

    Args:
        theta: weights and, in the last row, biases.
        batches: of an epoch.
        compute_s, update_s: of a batch and of an update, for each rank.
        awaited: K.
    """

    theta: np.ndarray
    batches: list[tuple[np.ndarray, np.ndarray]]
    compute_s: list[float]
    update_s: list[float]
    awaited: int
    ends_s: list[float] = field(default_factory=list[float])
    behind: int = 0

    def run(self, epochs: int) -> None:
        """Go on until the last step of so many epochs."""
        self.epochs, self.left = epochs, list[int]()
        self.events: list[Any] = []
        self.order = itertools.count()
        self.made, self.steps = [0] * len(self.compute_s), 0
        self._deal()
        for rank in range(len(self.compute_s)):
            self._go_on(rank, 0.0)
        while self.hands:
            self._next()

    def _deal(self) -> None:
        """Give each rank a batch of the round, as far as there are any."""
        if not self.left and self.epochs:
            self.epochs -= 1
            self.left = list(range(len(self.batches)))
        count = len(self.compute_s)
        taken, self.left = self.left[:count], self.left[count:]
        self.hands = dict(enumerate(taken))
        self.due = min(self.awaited, len(taken))
        self.there: list[int] = []

    def _go_on(self, rank: int, now: float) -> None:
        """Compute, or update once more."""
        if self.made[rank] < self.steps:
            self._update(rank, now)
        elif rank in self.hands:
            what = ("gradient", self.steps)
            heapq.heappush(self.events, (now + self.compute_s[rank], next(self.order), rank, what))

    def _update(self, rank: int, now: float) -> None:
        what = ("updated", self.steps)
        heapq.heappush(self.events, (now + self.update_s[rank], next(self.order), rank, what))

    def _next(self) -> None:
        now, _order, rank, (what, step) = heapq.heappop(self.events)
        if what == "updated":
            self.made[rank] = step
            self.behind += step < self.steps
            self._go_on(rank, now)
        elif step == self.steps:  # others have been called off
            self.there.append(rank)
            if len(self.there) == self.due:
                self._step(now)

    def _step(self, now: float) -> None:
        gradient, rows = np.zeros_like(self.theta), 0
        for rank in sorted(self.there):
            x, y = self.batches[self.hands.pop(rank)]
            full = np.hstack([x, np.ones((len(x), 1))])
            gradient += full.T @ (full @ self.theta - y)
            rows += len(x)
        self.theta = self.theta - RATE * gradient / rows
        busy = {event[2] for event in self.events if event[3][0] == "updated"}
        self.left = sorted([*self.left, *self.hands.values()])
        self.ends_s.append(now)
        self.steps += 1
        self._deal()
        for rank in range(len(self.compute_s)):
            if rank not in busy:
                self._update(rank, now)


def seconds(speeds: list[float]) -> tuple[list[float], list[float]]:
    """What a batch of three rows, and an update, take each rank: FLOP over speed."""
    gradient, update = 2 * 2 * 3 * 3 * 2, 3 * 2
    return [gradient / one for one in speeds], [update / one for one in speeds]


@pytest.mark.parametrize("seed", range(12))
def test_the_first_ranks_make_the_steps_of_a_loop_by_a_heap(seed):
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 7))
    backups = int(random.integers(1, ranks))
    speeds = (1e9 * random.uniform(0.3, 3, ranks)).tolist()
    if seed % 3 == 0:
        speeds[int(random.integers(ranks))] = 2e7  # late even with its updates
    made = model(81, 3)
    chosen = ampsim.SyncSGD(ranks=ranks, backup_ranks=backups)
    result = ampsim.simulate(made, cluster(speeds), chosen, epochs=3)
    loop = Loop(stacked(made), batches_of(made), *seconds(speeds), ranks - backups)
    loop.run(3)
    assert result.collectives["start_s"].tolist() == pytest.approx(loop.ends_s, rel=1e-9)
    np.testing.assert_allclose(stacked(result.model), loop.theta, rtol=1e-12, atol=1e-14)
    assert (loop.behind > 0) or seed % 3


def test_where_no_more_ranks_have_batches_than_are_awaited_a_step_is_that_of_all():
    """Two batches an epoch, and two of three ranks awaited."""
    hosts = cluster([1e9, 0.2e9, 3e9])
    made = model(6, 3, optimizer="momentum")
    first = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=3, backup_ranks=1), epochs=4)
    every = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=3), epochs=4)
    assert weights(first).tobytes() == weights(every).tobytes()
    assert first.collectives["start_s"].tolist() == every.collectives["start_s"].tolist()


def test_the_mean_is_of_the_items_of_those_that_came():
    """One step, by hand: the slowest of three ranks is left out, and a short batch weighs less."""
    x = np.arange(24.0).reshape(8, 3) / 10
    y = np.ones((8, 2))
    made = replace(model(8, 3), make_data=lambda _seed, _count: Points(x, y, 3))
    hosts = cluster([1e9, 1e6, 1e9])
    chosen = ampsim.SyncSGD(ranks=3, backup_ranks=1)
    result = ampsim.simulate(made, hosts, chosen)
    theta = stacked(made)
    for rows in ([0, 1, 2, 6, 7], [3, 4, 5]):  # what was left out comes by itself
        full = np.hstack([x[rows], np.ones((len(rows), 1))])
        theta = theta - RATE * full.T @ (full @ theta - y[rows]) / len(rows)
    np.testing.assert_allclose(stacked(result.model), theta, rtol=1e-12)
    assert result.epochs["instances"].tolist() == [8]


def test_a_late_rank_is_cut_short_and_holds_up_nobody():
    """A rank a thousand times slower costs no step anything, and its spans end with the round."""
    hosts = cluster([1e9, 1e9, 1e9, 1e6])
    chosen = ampsim.SyncSGD(ranks=4, backup_ranks=1)
    result = ampsim.simulate(model(27, 3), hosts, chosen, mode="sleep")
    three = ampsim.simulate(model(27, 3), hosts, ampsim.SyncSGD(ranks=3), mode="sleep")
    ends = result.collectives["start_s"].to_numpy()
    late = result.spans[(result.spans["worker"] == 3) & (result.spans["node"] == "linear-1")]
    assert late["direction"].tolist()[0] == "forward"
    assert late["end_s"].iloc[0] == ends[0] == three.collectives["start_s"].iloc[0]
    assert len(ends) == len(three.collectives)
    assert ends == pytest.approx(three.collectives["start_s"].to_numpy(), rel=1e-12)


@pytest.mark.parametrize("until", [0.4, 40.0])
@pytest.mark.parametrize(("kind", "factor"), [("pause", None), ("stop", None), ("slow", 4.0)])
def test_an_outage_beyond_a_step_that_was_cut_short_comes_when_it_comes(kind, factor, until):
    """The step would have lasted beyond it: it was forgotten, or there at once."""
    hosts, chosen = cluster([1e9, 1e9, 1e9, 1e8]), ampsim.SyncSGD(ranks=4, backup_ranks=1)

    def late(*events: Event) -> Any:
        varying = hosts.model_copy(update={"events": events})
        spans = ampsim.simulate(model(90, 3), varying, chosen, mode="sleep").spans
        steps = spans[(spans["worker"] == 3) & (spans["end_s"] > spans["start_s"])]
        return steps[["direction", "start_s", "end_s"]].reset_index(drop=True)

    usual = late()
    whole_s = usual["end_s"].max()
    from_s, until_s = 0.3 * whole_s, until * whole_s
    found = late(Event(kind=kind, worker=3, factor=factor, from_s=from_s, until_s=until_s))
    before = int((usual["end_s"] < from_s).sum())
    assert before > 2 and found[:before].equals(usual[:before])
    assert found["start_s"][before] < from_s < found["end_s"][before]
    begun = found[before + 1 :]
    if factor is None:
        assert (begun["start_s"] > until_s * (1 - 1e-9)).all() and (len(begun) > 0) == (until < 1)
        return
    start_s, end_s = begun[begun["direction"] == "update"].iloc[0, 1:]
    lasting_s = (usual["end_s"] - usual["start_s"])[usual["direction"] == "update"].iloc[0]
    slow_s = min(factor * lasting_s, until_s - start_s)
    assert end_s - start_s == pytest.approx(slow_s + lasting_s - slow_s / factor, rel=1e-9)
