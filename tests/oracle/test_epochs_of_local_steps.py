"""Where an epoch ends under solvers whose ranks step before they meet, against loops in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from solver_cases import Link, Points, cluster, model, replace, solver, stacked

import ampsim

RANKS, BATCH, ROWS, RATE = 2, 2, 24, 0.05  # six rounds an epoch
ROUNDS = ROWS // BATCH // RANKS
SLOW = Link(latency_s=1e-8, bandwidth_bytes_per_s=1e10)
OUTER = {"local-sgd": (1.0, 0.0), "diloco": (0.7, 0.9)}
"""Rate and momentum of the outer step; local SGD takes the mean itself."""


def run(name: str, period: int, epochs: int, made: ampsim.Model | None = None) -> ampsim.Result:
    made = model(ROWS, BATCH) if made is None else made
    chosen = solver(name, ranks=RANKS, period=period)
    return ampsim.simulate(made, cluster([1e9] * RANKS, link=SLOW), chosen, epochs=epochs)


def learned(name: str, period: int, rounds: int) -> np.ndarray:
    """Weights after so many rounds: the centre, or the mean of ranks that have stepped since."""
    made = model(ROWS, BATCH)
    data: Any = made.make_data(0, None)
    x = np.hstack([data.x, np.ones((ROWS, 1))])
    outer_rate, momentum = OUTER[name]
    centre = stacked(made)
    own, velocity = [centre] * RANKS, np.zeros_like(centre)
    for turn in range(rounds):
        for rank in range(RANKS):
            start = (turn % ROUNDS * RANKS + rank) * BATCH
            rows = slice(start, start + BATCH)
            gap = x[rows] @ own[rank] - data.y[rows]
            own[rank] = own[rank] - RATE * 2 * x[rows].T @ gap / gap.size
        if (turn + 1) % period == 0:
            delta = centre - sum(own) / RANKS
            velocity = momentum * velocity + delta
            centre = centre - outer_rate * (delta + momentum * velocity)
            own = [centre] * RANKS
    mean: Any = sum(own) / RANKS
    return mean


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("period", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("name", OUTER)
def test_an_epoch_gives_the_weights_of_its_last_meeting_or_the_mean_of_steps_since(
    name, period, epochs
):
    found = run(name, period, epochs)
    expected = learned(name, period, epochs * ROUNDS)
    assert np.allclose(stacked(found.model), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("period", [1, 2, 3, 6])
@pytest.mark.parametrize("name", OUTER)
def test_an_epoch_whose_last_steps_fill_a_period_ends_when_ranks_have_met(name, period):
    found = run(name, period, 3)
    ends = found.collectives["end_s"].to_numpy()[ROUNDS // period - 1 :: ROUNDS // period]
    spans = found.spans
    step_s = (spans["end_s"] - spans["start_s"])[spans["direction"] == "update"].max()
    outer_s = step_s if name == "diloco" else 0.0  # each rank makes the outer step
    assert found.epochs["time_s"].to_numpy() == pytest.approx(ends + outer_s, rel=1e-12)


@pytest.mark.parametrize("name", OUTER)
def test_an_epoch_within_a_period_ends_with_its_last_step(name):
    """Six steps of an epoch of eight of a period: nobody meets for the end of the first."""
    found = run(name, 8, 2)
    updates = found.spans[found.spans["direction"] == "update"].groupby("worker")["end_s"]
    sixth = updates.nth(ROUNDS - 1).max()
    assert found.epochs["time_s"].iloc[0] == pytest.approx(sixth, rel=1e-12)
    assert found.collectives["start_s"].tolist() == pytest.approx([updates.nth(7).max()])


@pytest.mark.parametrize("period", [4, 5, 8, 50])
@pytest.mark.parametrize("name", OUTER)
def test_the_ends_of_epochs_bend_no_period(name, period):
    """Three epochs are one epoch of three times the rows, step by step."""
    made = model(ROWS, BATCH)
    data: Any = made.make_data(0, None)
    thrice = Points(np.tile(data.x, (3, 1)), np.tile(data.y, (3, 1)), BATCH)
    long = replace(made, make_data=lambda _seed, _count: thrice)
    three, one = run(name, period, 3), run(name, period, 1, long)
    assert three.spans["start_s"].equals(one.spans["start_s"])
    assert three.collectives.equals(one.collectives)
    assert three.makespan_s == one.makespan_s
    assert stacked(three.model).tobytes() == stacked(one.model).tobytes()
