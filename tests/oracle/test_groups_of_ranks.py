"""Solvers inside solvers: what a group computes, against large batches, limits and loops."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np
import pytest
from solver_cases import (
    Link,
    batches_of,
    cluster,
    model,
    replace,
    solver,
    stacked,
    watched,
    weights,
)

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.optim import OPTIMIZERS

SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
SPEEDS = [1e9, 2.3e9, 0.4e9, 1.7e9, 5e8, 1.1e9, 0.9e9, 3e9, 1e9]
Sync = ampsim.SyncSGD


def slope(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean over rows and outputs of the squared error."""
    full = np.hstack([x, np.ones((len(x), 1))])
    return 2 * full.T @ (full @ theta - y) / y.size


NESTED = {
    "two of two": (Sync(2, inner=Sync(2)), 4),
    "four of one": (Sync(4, inner=Sync(1)), 4),
    "one of four": (Sync(1, inner=Sync(4)), 4),
    "three of two": (Sync(3, inner=Sync(2, collective="tree")), 6),
    "two of two of two": (Sync(2, inner=Sync(2, inner=Sync(2))), 8),
    "with overlap inside": (Sync(2, inner=Sync(2, overlap=True, bucket_bytes=0)), 4),
}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "lars"])
@pytest.mark.parametrize("name", NESTED)
def test_groups_of_sync_sgd_are_one_large_batch(name, optimizer):
    """Rows that fill all batches, and rows that leave groups and ranks without any."""
    chosen, copies = NESTED[name]
    for rows in (6 * copies, 6 * copies + 5):
        made = model(rows, 3, layers=2, optimizer=optimizer)
        hosts = cluster(SPEEDS[:copies], link=SLOW)
        found = ampsim.simulate(made, hosts, chosen, epochs=2)
        flat = ampsim.simulate(made, hosts, Sync(copies), epochs=2)
        large = model(rows, 3 * copies, layers=2, optimizer=optimizer)
        plain = ampsim.simulate(large, cluster([1e9]), ampsim.Sequential(), epochs=2)
        for other in (flat, plain):
            assert np.allclose(weights(found), weights(other), rtol=1e-12, atol=1e-14)
        assert len(found.updates) == len(flat.updates)


def test_pipelines_inside_groups_are_one_large_batch():
    chosen = Sync(2, inner=Sync(2, inner=ampsim.Pipeline(2), workers_per_rank=2))
    found = ampsim.simulate(model(48, 3, layers=2), cluster(SPEEDS[:8], link=SLOW), chosen)
    plain = ampsim.simulate(model(48, 24, layers=2), cluster([1e9]), ampsim.Sequential())
    assert np.allclose(weights(found), weights(plain), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "inner", [Sync(2), ampsim.LocalSGD(2, period=1)], ids=["sync-sgd", "local-sgd"]
)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_local_sgd_that_meets_at_each_step_is_sync_sgd_over_groups_too(inner, optimizer):
    made, hosts = model(36, 3, optimizer=optimizer), cluster(SPEEDS[:4], link=SLOW)
    one = ampsim.simulate(made, hosts, ampsim.LocalSGD(2, period=1, inner=inner), epochs=2)
    two = ampsim.simulate(made, hosts, Sync(4), epochs=2)
    assert np.allclose(weights(one), weights(two), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("inner", [Sync(2), ampsim.LocalSGD(2, period=3)], ids=["sync", "local"])
def test_diloco_with_a_plain_outer_step_is_local_sgd_over_groups_too(inner):
    made, hosts = model(72, 3), cluster(SPEEDS[:4], link=SLOW)
    plain: dict[str, Any] = {"outer_rate": 1.0, "outer_momentum": 0.0}
    one = ampsim.simulate(made, hosts, ampsim.DiLoCo(2, period=2, inner=inner, **plain))
    two = ampsim.simulate(made, hosts, ampsim.LocalSGD(2, period=2, inner=inner))
    assert np.allclose(weights(one), weights(two), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("inner", [Sync(1), Sync(1, inner=Sync(1))], ids=["once", "twice"])
@pytest.mark.parametrize("name", SOLVERS)
def test_groups_of_one_are_no_groups(name, inner):
    """Every record and every weight, to the bit."""
    made = model(41, 3, layers=2, optimizer="momentum")
    hosts = cluster(SPEEDS[:4], link=SLOW, jitter_cv=0.3)
    how: dict[str, Any] = {"epochs": 2, "counts_memory": True}
    one = ampsim.simulate(made, hosts, solver(name, ranks=3, period=2), **how)
    two = ampsim.simulate(made, hosts, solver(name, ranks=3, period=2, inner=inner), **how)
    assert one.digest == two.digest
    assert one.waits.equals(two.waits)
    assert one.peak_memory.equals(two.peak_memory)
    assert one.wait_share == two.wait_share


def test_local_sgd_of_local_sgd_is_a_loop_in_numpy():
    """Ranks meet in their group every H1 steps, and groups every H2 of these meetings.

    Source: T. Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020, hierarchical
    local SGD.
    """
    groups, each, inside, outside, rate = 2, 2, 3, 2, 0.05
    made = model(96, 2)  # 48 batches: 4 ranks take 12 each
    chosen = ampsim.LocalSGD(groups, period=outside, inner=ampsim.LocalSGD(each, period=inside))
    found = ampsim.simulate(made, cluster([1e9] * 4), chosen)
    batches, own = batches_of(made), [[stacked(made)] * each for _ in range(groups)]
    dealt = iter(range(len(batches)))
    for meeting in range(len(batches) // (groups * each * inside)):
        for group in own:
            deal = list(itertools.islice(dealt, each * inside))
            for turn in range(inside):
                for rank in range(each):
                    x, y = batches[deal[turn * each + rank]]
                    group[rank] = group[rank] - rate * slope(group[rank], x, y)
            group[:] = [np.mean(group, axis=0)] * each
        if (meeting + 1) % outside == 0:
            mean = np.mean([group[0] for group in own], axis=0)
            own = [[mean] * each for _ in range(groups)]
    assert np.allclose(stacked(found.model), own[0][0], rtol=1e-12, atol=1e-13)


def test_a_group_of_diloco_pulls_and_is_pulled_after_its_outer_step():
    """Under synchronous elastic averaging; weights of before on both sides."""
    period, rate, alpha, momentum = 2, 0.05, 0.2, 0.9
    made = model(48, 2)
    inner = ampsim.DiLoCo(2, period=period, outer_rate=0.7, outer_momentum=momentum)
    chosen = ampsim.SyncEASGD(2, inner=inner, moving_rate=alpha)
    found = ampsim.simulate(made, cluster([1e9] * 4), chosen)
    batches, centre = batches_of(made), stacked(made)
    held, velocity = [centre] * 2, [np.zeros_like(centre)] * 2
    dealt = iter(range(len(batches)))
    for _meeting in range(len(batches) // (2 * 2 * period)):
        for group in range(2):
            deal = list(itertools.islice(dealt, 2 * period))
            own = [held[group]] * 2
            for turn, rank in itertools.product(range(period), range(2)):
                x, y = batches[deal[2 * turn + rank]]
                own[rank] = own[rank] - rate * slope(own[rank], x, y)
            delta = held[group] - (own[0] + own[1]) / 2
            velocity[group] = momentum * velocity[group] + delta
            held[group] = held[group] - 0.7 * (delta + momentum * velocity[group])
        before, sent = centre, list(held)
        centre = before + alpha * sum(one - before for one in sent)
        held = [one - alpha * (one - before) for one in sent]
    assert np.allclose(stacked(found.model), centre, rtol=1e-12, atol=1e-13)


class Groups:
    """EA-wild over groups of sync-sgd, one linear layer and free links, by an event queue.

    A group sends its weights when it takes batches, gets the centre of that moment, has its mean
    gradient when its slowest rank has, steps, and goes on when its slowest rank has updated.
    """

    def __init__(self, made: ampsim.Model, times: Any, each: int, alpha: float) -> None:
        self.gradient_s, self.update_s, self.merge_s = times
        self.batches, self.each, self.alpha = batches_of(made), each, alpha
        groups = len(self.gradient_s) // each
        self.centre, self.theta = stacked(made), [stacked(made)] * groups
        self.reply: list[Any] = [None] * groups
        self.dealt = 0
        self.order = itertools.count()
        self.events: list[tuple[float, int, str, int, Any]] = []
        self.queue: list[tuple[int, np.ndarray]] = []
        self.is_merging = False
        self.to_merge: set[int] = set()
        self.held: set[int] = set()
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def slowest(self, group: int, times: list[float]) -> float:
        return max(times[group * self.each : (group + 1) * self.each])

    def later(self, at_s: float, what: str, group: int, more: Any = None) -> None:
        heapq.heappush(self.events, (at_s, next(self.order), what, group, more))

    def begin(self, group: int, now_s: float) -> None:
        own = self.batches[self.dealt : self.dealt + self.each]
        self.dealt += len(own)
        if len(own) == self.each:  # the end of the data is not compared
            self.reply[group] = None
            if group in self.to_merge:
                self.held.add(group)
            else:
                self.send(group)
            ready_s = now_s + self.slowest(group, self.gradient_s)
            self.later(ready_s, "gradient", group, own)

    def send(self, group: int) -> None:
        self.reply[group] = self.centre
        self.to_merge.add(group)
        self.queue.append((group, self.theta[group]))

    def merge(self, now_s: float) -> None:
        if self.is_merging or not self.queue:
            return
        self.is_merging = True
        group, parcel = self.queue.pop(0)
        self.seen.append((self.centre, parcel))
        self.centre = self.centre + self.alpha * (parcel - self.centre)
        self.later(now_s + self.merge_s, "merged", group)

    def run(self, until: int) -> list[tuple[np.ndarray, np.ndarray]]:
        waiting: dict[int, Any] = {}
        for group in range(len(self.theta)):
            self.begin(group, 0.0)
        self.merge(0.0)
        while len(self.seen) < until and self.events:
            now_s, _order, what, group, own = heapq.heappop(self.events)
            if what == "gradient":
                waiting[group] = own
            elif what == "merged":
                self.is_merging = False
                self.to_merge.discard(group)
                if group in self.held:
                    self.held.discard(group)
                    self.send(group)
            else:
                self.begin(group, now_s)
            for ready in [one for one in waiting if self.reply[one] is not None]:
                theta, parts = self.theta[ready], waiting.pop(ready)
                mean = sum(slope(theta, x, y) for x, y in parts) / self.each
                pull = self.alpha * (theta - self.reply[ready])
                self.theta[ready] = theta - 0.05 * mean - pull
                self.later(now_s + self.slowest(ready, self.update_s), "updated", ready)
            self.merge(now_s)
        return self.seen


@pytest.mark.parametrize("seed", range(12))
def test_ea_wild_over_groups_is_an_event_loop_to_the_last_merge(seed):
    random = np.random.default_rng(seed)
    groups, each = int(random.integers(2, 4)), int(random.integers(2, 4))
    speeds = random.uniform(0.3e9, 3e9, groups * each).tolist()
    alpha = float(random.uniform(0.05, 0.4))
    server = [4e9, 3e8][seed % 2]  # one that is fast enough for all, and one that is not
    made = replace(model(360, 3), optimizer=OPTIMIZERS["sgd"](0.05))
    chosen, seen = watched(ampsim.EAWild, ranks=groups, moving_rate=alpha, inner=Sync(each))
    result = ampsim.simulate(made, cluster([*speeds, server]), chosen)
    spans = result.spans.assign(lasting=result.spans["end_s"] - result.spans["start_s"])
    kinds = spans.groupby(["worker", "direction"], observed=True)["lasting"].max()
    copies = range(groups * each)
    gradient_s = [float(kinds[one, "forward"] + kinds[one, "backward"]) for one in copies]
    update_s = [float(kinds[one, "update"]) for one in copies]
    merge_s = float(spans.loc[spans["node"] == "centre", "lasting"].iloc[0])
    loop = Groups(made, (gradient_s, update_s, merge_s), each, alpha)
    enough = 120 // each - 2 * groups
    assert len(seen) >= enough
    for (centre, parcel), (other, sent) in zip(seen, loop.run(enough), strict=False):
        assert np.allclose(centre, other.ravel(), rtol=1e-12, atol=1e-14)
        assert np.allclose(parcel, sent.ravel(), rtol=1e-12, atol=1e-14)
