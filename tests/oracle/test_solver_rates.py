"""Learning rates under solvers: within an epoch, and over the staleness of a gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_solvers import Problem, async_loop, problem
from solver_cases import Link, cluster, model, solver, stacked, weights

import ampsim
from ampsim.optim import polynomial, sgd, warmup
from ampsim.study.learning_rates import Rate

SLOW = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e8)
EPOCHS = 3
RATE = warmup(polynomial(0.08, epochs=4), epochs=1.5, start=0.25)


def worked_out(at: float) -> float:
    """`RATE` by hand, at a time in epochs."""
    return 0.08 * (1 - at / 4) * min(1.0, 0.25 + 0.75 * at / 1.5)


def growing(rows: int, batch: int, **options: Any) -> ampsim.Model:
    """A linear model whose rate changes with each step."""
    return replace(model(rows, batch, **options), optimizer=sgd(RATE))


@pytest.mark.parametrize("rows", [48, 41])
def test_ranks_that_meet_have_the_rate_of_the_first_batch_of_their_round(rows):
    """A plain loop: four batches of three rows are one step, and so is what is left."""
    made = growing(rows, 3)
    hosts = cluster([1e9, 3e9, 2e9, 5e8], link=SLOW)
    result = ampsim.simulate(made, hosts, ampsim.SyncSGD(ranks=4), epochs=EPOCHS)
    plain, count = problem(made), -(-rows // 3)
    theta = plain.theta
    for epoch in range(EPOCHS):
        for first in range(0, count, 4):
            x, y = (np.vstack(part) for part in zip(*plain.batches[first : first + 4], strict=True))
            whole = Problem(theta, [(x, y)])
            theta = theta - worked_out(epoch + first / count) * whole.gradient(theta, 0)
    np.testing.assert_allclose(stacked(result.model), theta, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sync-sgd", "async-sgd", "hogwild", "ssp", "local-sgd"])
def test_one_rank_has_the_rates_of_sequential_sgd_to_the_bit(name):
    made = growing(40, 3, layers=2, dtype="float32")
    plain = ampsim.simulate(made, cluster([1e9]), ampsim.Sequential(), epochs=EPOCHS)
    hosts = cluster([1e9, 1e9], link=SLOW)
    one = ampsim.simulate(made, hosts, solver(name, ranks=1), epochs=EPOCHS)
    assert weights(one).tobytes() == weights(plain).tobytes()
    still = replace(made, optimizer=sgd(0.02))
    other = ampsim.simulate(still, cluster([1e9]), ampsim.Sequential(), epochs=EPOCHS)
    assert weights(one).tobytes() != weights(other).tobytes()


@pytest.mark.parametrize("inner", [ampsim.Amp(1), ampsim.Amp(3)])
def test_a_schedule_that_never_drains_has_its_rates_inside_a_rank_too(inner):
    made = growing(40, 4, layers=2)
    hosts = cluster([1e9, 1e9])
    plain = ampsim.simulate(made, hosts, inner, epochs=2)
    chosen = ampsim.LocalSGD(ranks=1, workers_per_rank=2, inner=inner, period=10)
    one = ampsim.simulate(made, hosts, chosen, epochs=2)
    assert weights(one).tobytes() == weights(plain).tobytes()


def test_elastic_ranks_have_the_rate_of_their_own_batch():
    """Two ranks of six batches each are asked for all twelve places of an epoch."""
    made, asked = growing(24, 2), []

    def noted(at: float) -> float:
        asked.append(at)
        return 0.05

    noted.is_within_epochs = True  # pyright: ignore[reportFunctionMemberAccess]  # as a user may
    made = replace(made, optimizer=sgd(noted))
    hosts = cluster([1e9] * 3)
    ampsim.simulate(made, hosts, ampsim.EASGD(ranks=2), epochs=2)
    found = sorted({round(one, 9) for one in asked})
    assert found == [round(epoch + place / 12, 9) for epoch in (0, 1) for place in range(12)]


@pytest.mark.parametrize("is_divided", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_async_sgd_applies_each_gradient_with_the_rate_of_its_batch_and_staleness(seed, is_divided):
    random = np.random.default_rng(seed)
    speeds = random.uniform(0.3e9, 3e9, int(random.integers(3, 6))).tolist()
    made = growing(60, 3)
    chosen = ampsim.AsyncSGD(ranks=len(speeds), staleness_rate=is_divided)
    result = ampsim.simulate(made, cluster([*speeds, 4e8]), chosen, epochs=EPOCHS)
    spans = result.spans
    is_linear = spans["node"] == "linear-1"
    ways = (
        spans[(spans["direction"] == way) & is_linear]["flop"] for way in ("forward", "backward")
    )
    flop = sum(int(one.iloc[0]) for one in ways)
    merges = spans[spans["node"] == "centre"]

    def rate_of(at: float, staleness: int) -> float:
        return worked_out(at) / (max(1, staleness) if is_divided else 1)

    theta, stale = async_loop(
        problem(made), [flop / one for one in speeds], int(merges["flop"].iloc[0]) / 4e8,
        len(merges), rate_of,
    )  # fmt: skip
    assert merges["staleness"].tolist() == stale
    assert max(stale) > 2
    np.testing.assert_allclose(stacked(result.model), theta, rtol=1e-12, atol=1e-14)


def test_the_rate_over_staleness_is_that_of_each_gradient_and_changes_no_time():
    hosts, made = cluster([1e9] * 5), model(60, 3, optimizer="adam")
    plain, divided = (
        ampsim.simulate(made, hosts, ampsim.AsyncSGD(ranks=4, staleness_rate=one), epochs=2)
        for one in (False, True)
    )
    assert plain.spans.equals(divided.spans)
    assert weights(plain).tobytes() != weights(divided).tobytes()
    one = ampsim.AsyncSGD(ranks=1, staleness_rate=True)
    fresh = ampsim.simulate(made, hosts, one)
    other = ampsim.simulate(made, hosts, replace(one, staleness_rate=False))
    assert weights(fresh).tobytes() == weights(other).tobytes()


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_rate_that_a_row_scales_ends_at_zero_under_a_momentum_of_the_solver(factor):
    """As "polynomial" does, whose rate is 0 from then on."""
    chosen, hosts = ampsim.AsyncSGD(ranks=1, momentum=0.5), cluster([1e9, 1e9])
    made = replace(model(24, 3), optimizer=sgd(polynomial(0.08, epochs=1.5)))
    plain = replace(made, optimizer=sgd(polynomial(0.08 * factor, epochs=1.5)))
    found, expected = (
        ampsim.simulate(one, hosts, chosen, epochs=3) for one in (Rate(factor).applied(made), plain)
    )
    assert weights(found).tobytes() == weights(expected).tobytes()
