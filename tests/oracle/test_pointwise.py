"""Functions of each element, by the table: values and slopes are PyTorch's, in both precisions."""

from __future__ import annotations

import numpy as np
import pytest
from torch_oracle import torch

from ampsim.errors import OptionError, UnknownNameError
from ampsim.nodes import COMPARISONS, FUNCTIONS, Compare, Pointwise, Softmax

POINTS = np.concatenate([np.linspace(-30, 30, 241), [-3.0, -1.0, -0.5, 0.5, 1.0, 3.0, 20.0]])
POSITIVE = ("log", "log1p", "reciprocal", "root", "rsqrt", "sqrt")
NUMBERS = {"pow": (3.0,), "clamp_max": (0.7,), "elu": (0.5, 1.2, 0.8), "softplus": (2.0, 5.0)}
OPERATORS = {"gelu_tanh": "gelu", "root": "sqrt"}
BENT = {"clamp_max": (1.0,), "clamp_min": (0.0,)}


def pytorch_s(
    name: str, x: np.ndarray, numbers: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    given = torch.from_numpy(x.copy()).requires_grad_()
    operator = getattr(torch.ops.aten, OPERATORS.get(name, name))
    y = operator(given, *numbers, **({"approximate": "tanh"} if name == "gelu_tanh" else {}))
    y.sum().backward()
    return y.detach().numpy(), given.grad.numpy()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_slope_are_pytorch_s(name, dtype):
    x = np.abs(POINTS) + 0.01 if name in POSITIVE else POINTS
    x = np.minimum(x, 10) if name in ("exp", "expm1") else x
    x = x.astype(dtype)
    for numbers in (FUNCTIONS[name].numbers, NUMBERS.get(name, FUNCTIONS[name].numbers)):
        node = Pointwise("node", name, numbers)
        ((_port, _state, y),) = node.forward(0, (0,), x)
        ((_port, _state, slope),) = node.backward(0, (0,), np.ones_like(x))
        expected, gradient = pytorch_s(name, x, numbers)
        of_value, of_slope = (1e-12, 1e-10) if dtype == "float64" else (1e-5, 1e-4)
        np.testing.assert_allclose(y, expected, rtol=of_value, atol=of_value)
        np.testing.assert_allclose(slope, gradient, rtol=of_slope, atol=of_slope)
        assert y.dtype == slope.dtype == dtype


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_number_stays_none(name):
    node = Pointwise("node", name)
    ((_port, _state, y),) = node.forward(0, (0,), np.array([np.nan, 1.0]))
    assert np.isnan(y).tolist() == [True, False]


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_a_power_of_nothing_has_pytorch_s_slope(exponent):
    x = np.array([0.0, -1.0, 2.0])
    node = Pointwise("node", "pow", (exponent,))
    ((_port, _state, y),) = node.forward(0, (0,), x)
    ((_port, _state, slope),) = node.backward(0, (0,), np.ones_like(x))
    expected, gradient = pytorch_s("pow", x, (exponent,))
    np.testing.assert_array_equal((y, slope), (expected, gradient))


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_pytorch_s_along_any_axis(axis, is_log):
    x = 50 * np.random.default_rng(0).standard_normal((3, 4, 5))
    given = torch.from_numpy(x).requires_grad_()
    expected = (torch.log_softmax if is_log else torch.softmax)(given, axis)
    (expected * given.detach()).sum().backward()
    node = Softmax("node", axis, is_log=is_log)
    ((_port, _state, y),) = node.forward(0, (0,), x)
    ((_port, _state, slope),) = node.backward(0, (0,), x)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(slope, given.grad.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_pytorch_s(name):
    x = np.arange(5)
    ((_port, _state, mask),) = Compare("node", name, 2).forward(0, (0,), x)
    assert (mask == getattr(torch, name)(torch.from_numpy(x), 2).numpy()).all()


def test_a_wrong_name_or_count_of_numbers_is_told():
    with pytest.raises(
        UnknownNameError, match="node: no function named 'gelo'; did you mean 'gelu"
    ):
        Pointwise("node", "gelo")
    with pytest.raises(UnknownNameError, match="node: no comparison named 'equal'"):
        Compare("node", "equal", 1)
    with pytest.raises(
        OptionError, match=r"numbers of elu must be 3, such as \(1.0, 1.0, 1.0\), got"
    ):
        Pointwise("node", "elu", (1.0,))
