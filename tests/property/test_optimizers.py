"""What holds for every optimizer in `OPTIMIZERS`; a new one is tested by being listed."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watched import watched, watching

from ampsim.errors import DivergenceError, OptionError
from ampsim.optim import OPTIMIZERS, Optimizer, adagrad, adam, exponential, momentum
from ampsim.optim.two_stage import StagedRate

every_optimizer = pytest.mark.parametrize("name", sorted(OPTIMIZERS))
every_elementwise = pytest.mark.parametrize(
    "name", sorted(name for name, make in OPTIMIZERS.items() if make(0.1).is_elementwise)
)
every_with_decay = pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"adagrad"}))
SETTINGS: dict[str, tuple[Any, dict[str, float]]] = {
    "adagrad": (1.0, {}),
    "lars": (exponential(3.0, 0.93), {"trust": 0.05}),
}
"""With which a minimum is found. Adagrad's steps become shorter by themselves; the length of one of
LARS depends on its rate and on the weights alone."""


def _walk(optimizer: Optimizer, theta: np.ndarray, gradients: np.ndarray) -> list[np.ndarray]:
    """Weights before and after each step."""
    state, path = optimizer.init(theta), [theta]
    for gradient in gradients:
        theta, state = optimizer.update(gradient, state, theta, optimizer.rate(0))
        path.append(theta)
    return path


def _arrays(state: tuple[Any, ...]) -> list[np.ndarray]:
    return [part for part in state if isinstance(part, np.ndarray)]


@every_optimizer
def test_its_name_is_the_one_it_is_listed_under(name: str) -> None:
    assert OPTIMIZERS[name](0.1).name == name


@every_optimizer
@pytest.mark.parametrize("block", [4, 100])
def test_a_step_in_place_has_the_bits_of_update(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampsim.optim.base.BLOCK", block)
    optimizer, random = OPTIMIZERS[name](0.1), np.random.default_rng(7)
    theta, gradients = random.standard_normal(10), random.standard_normal((5, 10))
    *_, expected = _walk(optimizer, theta, gradients)
    state = optimizer.init(theta)
    for gradient in gradients:
        theta, state = optimizer.step(gradient.copy(), state, theta, optimizer.rate(0), str)
    assert theta.tobytes() == expected.tobytes()


@every_elementwise
@pytest.mark.parametrize("block", [4, 100])
def test_a_step_to_a_weight_that_is_not_finite_says_so(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ampsim.optim.base.BLOCK", block)
    optimizer, theta = OPTIMIZERS[name](0.1), np.zeros(10)
    theta[9] = np.nan
    with pytest.raises(DivergenceError, match="weights of the last layer"):
        optimizer.step(
            np.ones(10), optimizer.init(theta), theta, 0.1, lambda: "weights of the last layer"
        )


@every_optimizer
@given(seed=st.integers(0, 2**32), size=st.integers(1, 50), steps=st.integers(1, 5))
def test_it_writes_into_none_of_its_arguments_and_returns_none(
    name: str, seed: int, size: int, steps: int
) -> None:
    random = np.random.default_rng(seed)
    optimizer = OPTIMIZERS[name](0.1)
    theta = random.standard_normal(size)
    theta.setflags(write=False)
    state = optimizer.init(theta)
    for _ in range(steps):
        gradient = random.standard_normal(size)
        given_arrays = [gradient, theta, *_arrays(state)]
        for array in given_arrays:
            array.setflags(write=False)
        before = [array.copy() for array in given_arrays]
        new_theta, new_state = optimizer.update(gradient, state, theta, 0.1)
        for array, copy in zip(given_arrays, before, strict=True):
            np.testing.assert_array_equal(array, copy)
        results = [new_theta, *_arrays(new_state)]
        assert not any(np.shares_memory(a, b) for a in results for b in given_arrays)
        theta, state = new_theta, new_state


@every_elementwise
@given(seed=st.integers(0, 2**32), cut=st.integers(1, 8))
def test_parts_stepped_in_place_of_their_gradient_have_the_bits_of_a_whole_step(
    name: str, seed: int, cut: int
) -> None:
    random = np.random.default_rng(seed)
    theta, gradients = random.standard_normal(9), random.standard_normal((3, 9))
    optimizer = OPTIMIZERS[name](0.1)
    whole = _walk(optimizer, theta, gradients)[-1]
    for part in (slice(None, cut), slice(cut, None)):
        weights, state = theta[part], optimizer.init(theta[part])
        for gradient in gradients.copy():
            out, arrays = gradient[part], _arrays(state)
            weights, state = optimizer.update(out, state, weights, 0.1, in_place=True)
            assert weights is out
            assert all(a is b for a, b in zip(arrays, _arrays(state), strict=True))
        np.testing.assert_array_equal(weights, whole[part])


@every_optimizer
@given(seed=st.integers(0, 2**32))
def test_the_same_step_twice_gives_the_same_bits(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    theta, gradients = random.standard_normal(9), random.standard_normal((4, 9))
    optimizer = OPTIMIZERS[name](0.1)
    first, second = _walk(optimizer, theta, gradients), _walk(optimizer, theta, gradients)
    np.testing.assert_array_equal(first, second)


@every_optimizer
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rate", [0.1, np.float64(0.1)])
def test_weights_and_state_keep_the_data_type(
    name: str, dtype: type[np.floating[Any]], rate: float
) -> None:
    optimizer = OPTIMIZERS[name](0.1)
    theta = np.ones(5, dtype)
    state = optimizer.init(theta)
    for _ in range(3):
        theta, state = optimizer.update(np.full(5, 0.5, dtype), state, theta, rate)
    assert {array.dtype for array in [theta, *_arrays(state)]} == {np.dtype(dtype)}


@every_optimizer
def test_float32_stays_near_float64(name: str) -> None:
    random = np.random.default_rng(0)
    theta, gradients = random.standard_normal(50), random.standard_normal((50, 50))
    optimizer = OPTIMIZERS[name](0.01)
    exact = _walk(optimizer, theta, gradients)[-1]
    single = _walk(optimizer, theta.astype(np.float32), gradients.astype(np.float32))[-1]
    np.testing.assert_allclose(single, exact, rtol=1e-4, atol=1e-5)


@every_optimizer
def test_it_finds_the_minimum_of_a_quadratic(name: str) -> None:
    """f = sum(c (theta - goal)^2 / 2) with curvatures c from 0.5 to 2."""
    rate, options = SETTINGS.get(name, (exponential(0.1, 0.98), {}))
    optimizer = OPTIMIZERS[name](rate, **options)
    curvature, goal = np.linspace(0.5, 2, 6), np.arange(6.0) - 3
    theta = np.zeros(6)
    state = optimizer.init(theta)
    for step in range(400):
        gradient = curvature * (theta - goal)
        theta, state = optimizer.update(gradient, state, theta, optimizer.rate(step // 4))
    np.testing.assert_allclose(theta, goal, atol=1e-3)


@every_optimizer
def test_no_gradient_at_the_start_is_no_step(name: str) -> None:
    theta = np.arange(4.0)
    path = _walk(OPTIMIZERS[name](0.1), theta, np.zeros((3, 4)))
    np.testing.assert_array_equal(path, [theta] * 4)


@every_optimizer
def test_its_rate_follows_the_epoch_and_scales_the_step(name: str) -> None:
    optimizer = OPTIMIZERS[name](exponential(0.2, 0.5))
    assert [optimizer.rate(epoch) for epoch in range(3)] == [0.2, 0.1, 0.05]
    theta, gradient = np.zeros(3), np.array([1.0, -2.0, 0.5])
    steps = [
        optimizer.update(gradient, optimizer.init(theta), theta, optimizer.rate(epoch))[0]
        for epoch in range(3)
    ]
    np.testing.assert_allclose(steps[0], 2 * steps[1], rtol=1e-15)
    np.testing.assert_allclose(steps[0], 4 * steps[2], rtol=1e-15)


@every_optimizer
def test_it_can_be_sent_to_another_process(name: str) -> None:
    optimizer = OPTIMIZERS[name](0.1)
    copy = pickle.loads(pickle.dumps(optimizer))
    theta, gradients = np.ones(3), np.ones((2, 3))
    np.testing.assert_array_equal(_walk(copy, theta, gradients), _walk(optimizer, theta, gradients))


@every_optimizer
@pytest.mark.parametrize("gradient", [np.zeros(1), np.zeros(3, np.float32), np.zeros((1, 3))])
def test_a_gradient_that_does_not_fit_is_a_programming_mistake(
    name: str, gradient: np.ndarray
) -> None:
    optimizer, theta = OPTIMIZERS[name](0.1), np.zeros(3)
    with pytest.raises(AssertionError, match=r"gradient float.* does not fit theta float64\(3,\)"):
        optimizer.update(gradient, optimizer.init(theta), theta, 0.1)


@every_optimizer
@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf])
def test_its_rate_is_above_zero(name: str, rate: float) -> None:
    with pytest.raises(OptionError, match=r"learning rate must be a number > 0, got .*; try"):
        OPTIMIZERS[name](rate)


@pytest.mark.parametrize(
    ("make", "option"), [(adam, "beta1"), (adam, "beta2"), (momentum, "momentum")]
)
@pytest.mark.parametrize("value", [-0.1, 1, 1.5, math.nan, "0.9", True])
def test_what_remains_of_the_past_is_from_zero_to_below_one(
    make: Callable[..., Optimizer], option: str, value: object
) -> None:
    with pytest.raises(OptionError, match=rf"{option} must be a number >= 0 and < 1, got .*; try"):
        make(0.1, **{option: value})


@pytest.mark.parametrize("epsilon", [0, -1e-8, math.nan, math.inf, "small"])
def test_adams_epsilon_is_above_zero(epsilon: Any) -> None:
    with pytest.raises(OptionError, match=r"adam: epsilon must be a number > 0, got .*; try 1e-08"):
        adam(0.1, epsilon=epsilon)


@pytest.mark.parametrize("start", [0, -0.1, math.nan, math.inf, "small", True])
def test_adagrads_sum_starts_above_zero(start: Any) -> None:
    with pytest.raises(OptionError, match=r"adagrad: start must be a number > 0, got .*; try 0.1"):
        adagrad(0.1, start=start)


@every_with_decay
def test_a_decay_is_a_part_of_the_gradient(name: str) -> None:
    """One step from the start, with the weights of one vector as its only gradient, and both."""
    random = np.random.default_rng(0)
    theta, gradient = random.standard_normal((2, 30))
    decayed, plain = OPTIMIZERS[name](0.1, weight_decay=0.5), OPTIMIZERS[name](0.1)
    if name == "lars":  # whose decay is in the length of the step too
        expected = 0.1 * 0.001 * np.linalg.norm(theta) * (gradient + 0.5 * theta)
        expected /= np.linalg.norm(gradient) + 0.5 * np.linalg.norm(theta)
        expected = theta - expected
    else:
        expected = _walk(plain, theta, (gradient + 0.5 * theta)[None])[-1]
    np.testing.assert_allclose(_walk(decayed, theta, gradient[None])[-1], expected, rtol=1e-12)
    assert decayed.touches_all


@every_with_decay
@pytest.mark.parametrize("decay", [-1e-4, math.nan, math.inf, "0.1", True])
def test_a_decay_is_at_least_zero(name: str, decay: object) -> None:
    with pytest.raises(OptionError, match=r"weight_decay must be a number >= 0, got .*; try"):
        OPTIMIZERS[name](0.1, weight_decay=decay)


@every_elementwise
@given(seed=st.integers(0, 2**32))
def test_in_place_with_a_decay_has_the_bits_of_a_step_that_is_not(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    theta, gradients = random.standard_normal(9), random.standard_normal((3, 9))
    options = {} if name == "adagrad" else {"weight_decay": 0.1}
    optimizer = OPTIMIZERS[name](0.1, **options)
    whole = _walk(optimizer, theta, gradients)[-1]
    state = optimizer.init(theta)
    for gradient in gradients.copy():
        theta, state = optimizer.update(gradient, state, theta, 0.1, in_place=True)
    np.testing.assert_array_equal(theta, whole)


@every_optimizer
def test_a_steps_calls_are_as_many_as_it_says_and_pass_over_as_many_arrays(name: str) -> None:
    rate = StagedRate(0.1, is_second=True) if name == "two-stage" else 0.1
    for options in ({}, {} if name == "adagrad" else {"weight_decay": 0.1}):
        method = OPTIMIZERS[name](0.1, **options)
        theta, gradient = np.ones(50, np.float32), np.ones(50, np.float32)
        state = tuple(map(watched, method.init(theta)))
        method.update(gradient, method.init(theta), theta, rate)  # keeps its constants
        with watching() as calls:
            method.update(watched(gradient), state, watched(theta), rate)
        passed = sum(one.bytes for one in calls) / theta.nbytes
        roots = sum(one.name == "sqrt" for one in calls)
        assert method.calls == (len(calls), passed, roots)
