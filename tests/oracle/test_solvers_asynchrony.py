"""What asynchrony does to learning: staleness by speed, the momentum it begets, and stability."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from solver_cases import (
    cluster,
    draw_exponential,
    memoryless,
    model,
    quadratic,
    residual,
    solver,
    watched,
)

import ampsim


@cache
def curvature() -> float:
    """h of `quadratic`, from one step of gradient descent: u <- u - rate h u."""
    chosen, seen = watched(ampsim.AsyncSGD, ranks=1)
    ampsim.simulate(quadratic(2, 0.1), cluster([1e9] * 2), chosen)
    before, after = (residual(centre) for centre, _gradient in seen)
    return (1 - after / before) / 0.1


@pytest.mark.parametrize("name", ["async-sgd", "hogwild"])
def test_with_jitter_too_staleness_adds_up_to_the_last_merges_less_the_merges(name):
    hosts = cluster([1e9, 2.3e9, 0.4e9, 1.7e9, 5e8], jitter_cv=0.5)
    chosen = solver(name, ranks=4)
    result = ampsim.simulate(model(200, 1), hosts, chosen, epochs=2)
    exchanges = result.exchanges.sort_values("merge_start_s", kind="stable").reset_index(drop=True)
    last = {rank: place + 1 for place, rank in enumerate(exchanges["rank"])}
    assert int(exchanges["staleness"].sum()) == sum(last.values()) - len(exchanges)


def test_a_rank_is_as_stale_as_others_merge_while_it_computes_once():
    """Of rates r_j and R in all, the mean staleness of rank j is R / r_j - 1."""
    speeds = [1e8, 2.3e8, 0.4e8, 1.7e8]
    hosts = cluster([*speeds, 1e15])
    result = ampsim.simulate(model(3000, 1), hosts, ampsim.AsyncSGD(ranks=4), mode="sleep")
    found = result.exchanges.groupby("rank")["staleness"].mean()
    for rank, speed in enumerate(speeds):
        assert found[rank] == pytest.approx(sum(speeds) / speed - 1, rel=0.02)


@pytest.mark.slow
def test_memoryless_ranks_beget_momentum(monkeypatch):
    """E v <- (1 - 1/P) E v - (rate h / P) E w, from v = -rate h w, on a quadratic.

    Source: Mitliagkas, Zhang, Hadjis and Ré, "Asynchrony begets momentum" (2016), Theorem 3.
    """
    draw_exponential(monkeypatch, {0.5: (1, 0)})
    ranks, steps, runs = 4, 20, 120
    rate = 0.3 / curvature()
    paths = np.empty((runs, steps))
    for seed in range(runs):
        chosen, seen = watched(ampsim.AsyncSGD, ranks=ranks)
        made = quadratic(steps + 2 * ranks, rate)
        ampsim.simulate(made, memoryless(ranks, 1e15, 0), chosen, seed=seed)
        path = [residual(centre) for centre, _gradient in seen[:steps]]
        paths[seed] = np.array(path) / path[0]
    error = paths.std(axis=0, ddof=1) / math.sqrt(runs)
    expected = momentum_path(0.3, 1 - 1 / ranks, 0.3 / ranks, steps)
    assert (np.abs(paths.mean(axis=0) - expected) <= 4.5 * error + 1e-12).all()
    plain = momentum_path(0.3, 0.0, 0.3, steps)
    assert (np.abs(paths.mean(axis=0) - plain)[2:12] > 8 * error[2:12]).all()


def momentum_path(first: float, kept: float, pull: float, steps: int) -> np.ndarray:
    """w from 1, with v = -first at first, and then v <- kept v - pull w."""
    place, velocity, path = 1.0, -first, [1.0]
    for _ in range(steps - 1):
        place += velocity
        velocity = kept * velocity - pull * place
        path.append(place)
    return np.array(path)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_equal_ranks_are_stable_up_to_the_bound_of_their_delay(ranks):
    """rate h < 2 sin(pi / (2 (2 t + 1))) with t = P - 1, found by bisection over whole runs."""
    bound = 2 * math.sin(math.pi / (2 * (2 * (ranks - 1) + 1)))
    low, high = math.log(0.02), math.log(3.0)
    for _ in range(9):
        middle = (low + high) / 2
        if is_shrinking(ranks, math.exp(middle)):
            low = middle
        else:
            high = middle
    assert math.exp(low) == pytest.approx(bound, rel=0.02)


def is_shrinking(ranks: int, strength: float) -> bool:
    """Whether a run with such a rate times curvature comes nearer to the bottom."""
    chosen, seen = watched(ampsim.AsyncSGD, ranks=ranks)
    made = quadratic(240, strength / curvature())
    ampsim.simulate(made, cluster([1e9] * (ranks + 1)), chosen)
    path = np.abs([residual(centre) for centre, _gradient in seen])
    return bool(path[160:].max() < max(path[80:160].max(), 1e-9 * path[0]))
