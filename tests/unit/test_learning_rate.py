"""Learning rates as functions of the epoch."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from ampsim.errors import OptionError
from ampsim.optim import as_schedule, constant, exponential, multistep
from ampsim.optim.learning import rate_of

NOT_POSITIVE = [10**400, 0, -1e-3, math.nan, math.inf, "0.1", None, True]


def test_a_constant_rate_stays() -> None:
    assert [constant(0.1)(epoch) for epoch in (0, 1, 50)] == [0.1, 0.1, 0.1]


def test_an_exponential_rate_starts_with_its_initial_value_in_epoch_0() -> None:
    schedule = exponential(2e-3, 0.8)
    assert [schedule(epoch) for epoch in range(3)] == [2e-3, 2e-3 * 0.8, 2e-3 * 0.8**2]


def test_a_schedule_comes_from_a_number_or_a_function() -> None:
    assert as_schedule(0.1)(9) == 0.1
    assert as_schedule(lambda epoch: 1 / (epoch + 1))(3) == 0.25
    assert as_schedule(exponential(1.0, 0.5))(2) == 0.25


def test_rates_are_python_floats_so_that_float32_weights_stay_float32() -> None:
    given = (as_schedule(np.float32(0.5)), as_schedule(lambda _: float(np.float64(0.5))))  # pyright: ignore[reportArgumentType] -- NumPy's numbers are no float to a type checker
    assert [type(schedule(0)) for schedule in given] == [float, float]


def test_a_schedule_can_be_sent_to_another_process() -> None:
    schedule = exponential(0.1, 0.5)
    assert pickle.loads(pickle.dumps(schedule)) == schedule


@pytest.mark.parametrize("rate", NOT_POSITIVE)
def test_a_rate_is_a_finite_number_above_zero(rate: object) -> None:
    expected = r"learning rate must be a number > 0, got .*; try 0\.001"
    with pytest.raises(OptionError, match="^" + expected):
        constant(rate)  # pyright: ignore[reportArgumentType] -- the wrong type is the test
    with pytest.raises(OptionError, match="^" + expected):
        as_schedule(rate)  # pyright: ignore[reportArgumentType] -- the wrong type is the test
    with pytest.raises(OptionError, match="^initial " + expected):
        exponential(rate, 0.8)  # pyright: ignore[reportArgumentType] -- the wrong type is the test


@pytest.mark.parametrize("decay", NOT_POSITIVE)
def test_a_decay_is_a_finite_number_above_zero(decay: object) -> None:
    with pytest.raises(OptionError, match=r"learning rate decay must be a number > 0, got .*; try"):
        exponential(0.1, decay)  # pyright: ignore[reportArgumentType] -- the wrong type is the test


def test_a_rate_does_not_grow() -> None:
    with pytest.raises(OptionError, match=r"learning rate decay must be at most 1, got 1\.1; try"):
        exponential(0.1, 1.1)


@pytest.mark.parametrize("initial", [1e-300, 1e200])
def test_a_rate_that_grows_in_steps_stays_finite(initial: float) -> None:
    assert multistep(initial, [1], 1e100)(1) == initial * 1e100
    expected = r"^factor of a multistep rate must leave the rate finite, got 1e\+200, 2 times over "
    with pytest.raises(OptionError, match=expected):
        multistep(initial, [1, 2], 1e200)
    with pytest.raises(OptionError, match=expected):
        rate_of("multistep:1,2:1e200", initial)


def test_a_function_that_gives_no_rate_is_told_with_the_epoch() -> None:
    schedule = as_schedule(lambda epoch: 0.1 - 0.05 * epoch)
    assert schedule(1) == 0.05
    with pytest.raises(OptionError, match=r"learning rate of epoch 2 must be a number > 0, got 0"):
        schedule(2)


@pytest.mark.parametrize("schedule", [constant(0.1), exponential(0.1, 0.5), as_schedule(abs)])
def test_epochs_count_from_zero(schedule: object) -> None:
    assert callable(schedule)
    with pytest.raises(AssertionError, match="epochs count from 0, got -1"):
        schedule(-1)
