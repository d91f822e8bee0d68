"""Elastic averaging in whole runs: where it is stable, and against loops that share no code."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from solver_cases import cluster, model, quadratic, replace, residual, stacked, watched

import ampsim
from ampsim.optim import OPTIMIZERS, sgd

CURVATURE = 2.0
"""h of `quadratic`, which `test_the_curvature_is_what_bounds_are_worked_out_with` measures."""


def path_of(kind: type[Any], ranks: int, workers: int, strength: float, **options: Any) -> Any:
    """Distance of the centre from the bottom before each merge, of rate times curvature."""
    chosen, seen = watched(kind, ranks=ranks, **options)
    made = quadratic(60 * ranks, strength / CURVATURE)
    ampsim.simulate(made, cluster([1e9] * workers), chosen)
    return np.array([residual(centre) for centre, _parcel in seen])


def test_the_curvature_is_what_bounds_are_worked_out_with():
    path = path_of(ampsim.AsyncSGD, 1, 2, 0.25)
    assert path[1] == pytest.approx(0.75 * path[0], rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "ranks", "bound"),
    [
        (ampsim.EASGD, 1, lambda h, _p: (4 - 2 * h) / (4 - h)),
        (ampsim.EASGD, 3, lambda h, _p: (4 - 2 * h) / (4 - h)),
        (ampsim.SyncEASGD, 4, lambda h, p: (4 - 2 * h) / (2 + 2 * p - p * h)),
    ],
)
def test_a_run_is_stable_up_to_the_bound_of_its_moving_rate(kind, ranks, bound):
    """Bounds of Zhang, Choromanska and LeCun (2015), Section 4, by bisection over whole runs."""
    strength = 1.0
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        path = path_of(kind, ranks, ranks + 1, strength, moving_rate=middle)
        path, third = np.abs(path), len(path) // 3
        is_shrinking = path[2 * third :].max() < max(path[third : 2 * third].max(), 1e-9 * path[0])
        low, high = (middle, high) if is_shrinking else (low, middle)
    assert low == pytest.approx(bound(strength, ranks), abs=2**-6)


def test_without_gradients_the_mean_comes_nearer_by_one_less_p_plus_one_alpha():
    """Mean(w) - centre shrinks by exactly 1 - (P + 1) alpha in an exchange of all ranks."""
    ranks, alpha = 3, 0.15
    rate = sgd(lambda epoch: 0.05 if epoch == 0 else 1e-300)
    made = replace(model(3 * ranks, 1), optimizer=rate)
    chosen, seen = watched(ampsim.SyncEASGD, ranks=ranks, moving_rate=alpha)
    ampsim.simulate(made, cluster([1e9, 2e9, 3e9]), chosen, epochs=4)
    apart = [parcel - centre for centre, parcel in seen]
    assert np.abs(apart[3]).max() > 1e-4
    for before, after in itertools.pairwise(apart[3:]):
        assert np.allclose(after, (1 - (ranks + 1) * alpha) * before, rtol=1e-9, atol=1e-15)


class Loop:
    """Elastic averaging of one linear layer, by an event queue.

    In turn: a rank has its gradient, waits for its turn, sends weights and gets the centre. Beside:
    it sends when it begins, and the server merges first come, first served.
    """

    def __init__(
        self, batches: list[Any], theta: np.ndarray, times: tuple[list[float], list[float], float],
        alpha: float, step: Callable[[int, np.ndarray, np.ndarray], np.ndarray], *, in_turn: bool,
    ) -> None:  # fmt: skip
        self.compute_s, self.update_s, self.merge_s = times
        self.batches, self.alpha, self.step, self.in_turn = batches, alpha, step, in_turn
        ranks = len(self.compute_s)
        self.centre, self.theta = theta, [theta] * ranks
        self.order, self.deals = itertools.count(), itertools.count()
        self.events: list[tuple[float, int, str, int]] = []
        self.gradient: list[Any] = [None] * ranks
        self.reply: list[Any] = [None] * ranks
        self.waiting: list[int] = []
        self.turn, self.is_busy = 0, False
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []
        for rank in range(ranks):
            self.begin(rank, 0.0)

    def after(self, now: float, what: str, rank: int) -> None:
        heapq.heappush(self.events, (now, next(self.order), what, rank))

    def begin(self, rank: int, now: float) -> None:
        self.gradient[rank] = self.reply[rank] = None
        deal = next(self.deals)
        if deal >= len(self.batches):
            return
        self.after(now + self.compute_s[rank], f"gradient {deal}", rank)
        if not self.in_turn:
            self.ask(rank, now)

    def ask(self, rank: int, now: float) -> None:
        self.waiting.append(rank)
        self.serve(now)

    def serve(self, now: float) -> None:
        if self.is_busy or not self.waiting:
            return
        rank = self.turn if self.in_turn else self.waiting[0]
        if rank not in self.waiting:
            return
        self.waiting.remove(rank)
        self.turn = (rank + 1) % len(self.theta)
        self.is_busy, self.reply[rank] = True, self.centre
        self.seen.append((self.centre, self.theta[rank]))
        self.centre = self.centre + self.alpha * (self.theta[rank] - self.centre)
        self.after(now + self.merge_s, "merged", rank)
        self.replied = rank

    def run(self, until: int) -> list[tuple[np.ndarray, np.ndarray]]:
        came: set[int] = set()
        while len(self.seen) < until and self.events:
            now, _order, what, rank = heapq.heappop(self.events)
            if what.startswith("gradient"):
                x, y = self.batches[int(what.split()[1])]
                full = np.hstack([x, np.ones((len(x), 1))])
                self.gradient[rank] = CURVATURE / 2 * full.T @ (full @ self.theta[rank] - y)
                self.gradient[rank] /= len(x)
                if self.in_turn:
                    self.ask(rank, now)
            elif what == "merged":
                came.add(rank)
                self.is_busy = False
                self.serve(now)
            else:
                self.begin(rank, now)
            if rank in came and self.gradient[rank] is not None:
                came.remove(rank)
                theta, pull = self.theta[rank], self.alpha * (self.theta[rank] - self.reply[rank])
                self.theta[rank] = self.step(rank, self.gradient[rank], theta) - pull
                self.gradient[rank] = None
                self.after(now + self.update_s[rank], "updated", rank)
        return self.seen


def steps_of(name: str, ranks: int) -> Callable[[int, np.ndarray, np.ndarray], np.ndarray]:
    """SGD, or SGD with a velocity of each rank."""
    velocity: list[Any] = [0.0] * ranks

    def step(rank: int, gradient: np.ndarray, theta: np.ndarray) -> np.ndarray:
        velocity[rank] = gradient + (0.9 * velocity[rank] if name == "momentum" else 0.0)
        return theta - 0.05 * velocity[rank]

    return step


def lasting(result: ampsim.Result, ranks: int) -> tuple[list[float], list[float], float]:
    """Seconds of each rank's gradient and update, and of a merge, as the trace has them."""
    spans = result.spans
    spans = spans.assign(lasting=spans["end_s"] - spans["start_s"])
    kinds = spans.groupby(["worker", "direction"], observed=True)["lasting"].max()
    compute = [
        float(kinds[worker, "forward"] + kinds[worker, "backward"]) for worker in range(ranks)
    ]
    update = [float(kinds[worker, "update"]) for worker in range(ranks)]
    return compute, update, float(spans.loc[spans["node"] == "centre", "lasting"].iloc[0])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("kind", [ampsim.EASGD, ampsim.AsyncEASGD])
@pytest.mark.parametrize("seed", range(10))
def test_elastic_averaging_is_an_event_loop_to_the_last_merge(kind, optimizer, seed):
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 6))
    speeds = random.uniform(0.3e9, 3e9, ranks).tolist()
    alpha = float(random.uniform(0.05, 0.4))
    made = replace(model(120, 3), optimizer=OPTIMIZERS[optimizer](0.05))
    chosen, seen = watched(kind, ranks=ranks, moving_rate=alpha)
    result = ampsim.simulate(made, cluster([*speeds, 4e8]), chosen)
    data: Any = made.make_data(0, None)
    batches = [(one.x, one.y) for one in data.batches("train", epoch=0, seed=0)]
    loop = Loop(
        batches, stacked(made), lasting(result, ranks), alpha, steps_of(optimizer, ranks),
        in_turn=kind is ampsim.EASGD,
    )  # fmt: skip
    enough = len(batches) - ranks  # while no rank has run out of batches
    assert len(seen) >= enough
    for (centre, parcel), (other, weights) in zip(seen, loop.run(enough), strict=False):
        assert np.allclose(centre, other.ravel(), rtol=1e-12, atol=1e-14)
        assert np.allclose(parcel, weights.ravel(), rtol=1e-12, atol=1e-14)


def test_without_elasticity_each_rank_is_plain_sgd_with_a_velocity_of_its_own():
    """The weights that two ranks send are those of two workers that know nothing of each other."""
    made = replace(model(60, 3), optimizer=OPTIMIZERS["momentum"](0.05))
    chosen, seen = watched(ampsim.EASGD, ranks=2, moving_rate=0.0)
    hosts = cluster([1e9, 1e9, 1e9])
    errors = ampsim.simulate(made, hosts, chosen, epochs=1).epochs["error"].tolist()
    data: Any = made.make_data(0, None)
    batches = list(data.batches("train", epoch=0, seed=0))
    step = steps_of("momentum", 2)
    alone = [stacked(made), stacked(made)]
    for place, (_centre, parcel) in enumerate(seen):
        rank = place % 2
        assert np.allclose(parcel, alone[rank].ravel(), rtol=1e-12, atol=1e-14)
        full = np.hstack([batches[place].x, np.ones((3, 1))])
        gradient = CURVATURE / 2 * full.T @ (full @ alone[rank] - batches[place].y) / 3
        alone[rank] = step(rank, gradient, alone[rank])
    more = ampsim.simulate(made, hosts, ampsim.EASGD(ranks=2, moving_rate=0.0), epochs=3)
    assert more.epochs["error"].tolist() == errors * 3  # of the centre, which never moves


def test_merges_that_take_no_time_make_ea_wild_and_async_easgd_the_same():
    made, speeds = model(60, 3), [1e9, 2.3e9, 0.4e9]
    hosts = cluster([*speeds, 1e18], jitter_cv=0.3)
    one, other = (
        ampsim.simulate(made, hosts, kind(ranks=3), epochs=2)
        for kind in (ampsim.EAWild, ampsim.AsyncEASGD)
    )
    assert stacked(one.model).tobytes() == stacked(other.model).tobytes()
    assert one.makespan_s == pytest.approx(other.makespan_s, rel=1e-6)
