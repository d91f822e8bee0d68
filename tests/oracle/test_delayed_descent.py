"""What report `delayed-descent` says of late gradients, against closed forms and plain loops."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = runpy.run_path(str(Path(__file__).parents[2] / "reports/delayed-descent/program.py"))


@pytest.mark.parametrize("delay", range(5))
def test_without_momentum_the_bound_is_that_of_delayed_gradient_descent(delay):
    expected = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    assert PROGRAM["bound"](delay, 0.0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kept", [-0.4, 0.5, 0.9])
def test_momentum_nearly_doubles_the_bound_in_time_and_divides_it_one_update_late(kept):
    """z² - (1 + m - s) z + m = 0 in time, and z² - (1 + m) z + m + s = 0 one update late."""
    bound = PROGRAM["bound"]
    assert bound(0, kept) == pytest.approx(2 * (1 + kept), rel=1e-6)
    assert bound(1, kept) == pytest.approx(1 - kept, rel=1e-6)


@pytest.mark.parametrize("delay", range(5))
@pytest.mark.parametrize("kept", [0.0, 0.9])
def test_factors_are_those_of_the_characteristic_polynomial(delay, kept):
    """w' = w - v', v' = m v + s w(late): z^d (z - 1) (z - m) + s z = 0."""
    for strength in (0.01, 0.3, 1.7):
        terms = np.polymul([1.0, -1.0], [1.0, -kept, *[0.0] * delay])
        roots = np.roots(np.polyadd(terms, [strength, 0.0]))
        assert PROGRAM["factor"](strength, delay, kept) == pytest.approx(abs(roots).max())


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("kept", [0.0, 0.9])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_amp_makes_the_steps_of_a_loop_whose_gradients_come_so_late(delay, kept, ahead):
    rate, updates = 0.07, 40
    result: Any = PROGRAM["trained"](rate, delay, kept, is_ahead=ahead, updates=updates)
    late = [min(place, delay) for place in range(updates)]
    assert result.updates["staleness"].tolist() == late
    weight, velocity, smooth, read = 1.0, 0.0, 0.0, [1.0] * (delay + 1)
    for place in range(updates):
        velocity = kept * velocity + rate * read[place]
        weight, smooth = weight - velocity, 0.9 * smooth + 0.1 * velocity
        read.append(weight - late[place] * smooth if ahead else weight)
    found = result.model.parameters()["layer.weight"]
    assert found.item() == pytest.approx(weight, rel=1e-10)


@pytest.mark.parametrize("ranks", [2, 4])
def test_delays_without_memory_make_the_momentum_of_mitliagkas(ranks):
    """Of geometric delays, mean P - 1, it is 1 - 1/P, and a gradient pulls with 1/P of the rate."""
    late = np.random.default_rng(0).geometric(1 / ranks, 12_000) - 1
    momentum, pull, _missed = PROGRAM["implied"](late.tolist(), 0.3)
    assert momentum == pytest.approx(1 - 1 / ranks, abs=0.01)
    assert pull == pytest.approx(0.3 / ranks, abs=0.005)
