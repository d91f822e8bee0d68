"""Convolutions and pools equal PyTorch's, forward and backward, for any geometry."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from torch_oracle import torch

from ampsim.nodes import Conv2d, Flatten, MaxPool

pytestmark = pytest.mark.slow  # PyTorch takes over a second to load


class State(NamedTuple):
    instance: int


CONVOLUTIONS = [
    (1, 20, 5, 1, 0, (3, 28, 28)),
    (20, 50, 5, 1, 0, (2, 12, 12)),
    (3, 8, 3, 2, 1, (4, 9, 8)),
    (3, 8, 11, 4, 0, (2, 35, 31)),
    (2, 4, 1, 1, 0, (5, 1, 1)),
    (2, 4, 1, 2, 0, (5, 7, 6)),
    (4, 2, 4, 3, 3, (3, 8, 5)),
    (64, 4, 7, 1, 3, (40, 14, 14)),  # more images than columns are laid out of at once
]
POOLS = [
    (2, 2, 0, (3, 4, 8, 8)),
    (2, 2, 0, (3, 4, 9, 7)),
    (3, 2, 1, (2, 5, 8, 7)),
    (3, 1, 1, (2, 5, 6, 6)),
    (2, 3, 0, (2, 1, 7, 8)),
    (5, 2, 2, (1, 2, 11, 9)),
    (17, 17, 0, (1, 1, 17, 34)),  # more pixels in a window than a byte can count
]


def normal(*shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def served(node: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(output, what was sent back, the output's gradient) of one message."""
    ((_port, _state, output),) = node.forward(0, State(0), x)
    weight = normal(*output.shape, dtype=output.dtype.name)
    ((_port, _state, returned),) = node.backward(0, State(0), weight)
    return output, returned, weight


def differentiated(function: Any, x: np.ndarray, weight: np.ndarray) -> tuple[Any, Any]:
    leaf = torch.tensor(x, requires_grad=True)
    output = function(leaf)
    output.backward(torch.tensor(weight))
    return output.detach().numpy(), leaf.grad.numpy()


def close(found: Any, expected: Any, dtype: str) -> None:
    tolerance = {"float64": 1e-11, "float32": 2e-5}[dtype]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_a_convolution_is_pytorchs(case, dtype):
    channels, filters, kernel, stride, padding, size = case
    node = Conv2d("n", channels, filters, kernel, stride=stride, padding=padding)
    node.adopt(node.initialise(np.random.default_rng(0)).astype(dtype))
    rows, *extents = size
    output, returned, weight = served(node, normal(rows, channels, *extents, dtype=dtype))
    torch_node = torch.nn.Conv2d(channels, filters, kernel, stride, padding)
    torch_node = torch_node.double() if dtype == "float64" else torch_node
    with torch.no_grad():
        torch_node.weight.copy_(torch.tensor(node.weight))
        torch_node.bias.copy_(torch.tensor(node.bias))
    x = normal(rows, channels, *extents, dtype=dtype)
    expected, of_input = differentiated(torch_node, x, weight)
    close(output, expected, dtype)
    close(returned, of_input, dtype)
    weight_gradient, bias_gradient = node.parts(node.take_gradient())
    close(weight_gradient, torch_node.weight.grad.numpy(), dtype)
    close(bias_gradient, torch_node.bias.grad.numpy(), dtype)


@pytest.mark.parametrize("has_ties", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "size"), POOLS)
def test_a_pool_is_pytorchs_and_of_equal_pixels_the_first_counts(
    kernel, stride, padding, size, has_ties
):
    x = np.round(normal(*size)) if has_ties else normal(*size)
    node = MaxPool("n", kernel, stride=stride, padding=padding)
    output, returned, weight = served(node, x)
    pool = torch.nn.MaxPool2d(kernel, stride, padding)
    expected, of_input = differentiated(pool, x, weight)
    assert (output == expected).all()
    np.testing.assert_allclose(returned, of_input, rtol=1e-14)
    node.is_training = False
    ((_port, _state, validated),) = node.forward(0, State(0), x)
    assert (validated == expected).all()


def test_to_flatten_is_pytorchs_whatever_the_order_in_memory():
    x = normal(3, 2, 4, 5)
    for given in (x, np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)):
        output, returned, weight = served(Flatten("n"), given)
        expected, of_input = differentiated(torch.nn.Flatten(), x, weight)
        assert (output == expected).all()
        assert (returned == of_input).all()


def test_a_convolution_starts_within_the_bounds_of_pytorchs():
    node, oracle = Conv2d("n", 3, 64, 5), torch.nn.Conv2d(3, 64, 5)
    node.adopt(node.initialise(np.random.default_rng(0)))
    for drawn, theirs in ((node.weight, oracle.weight), (node.bias, oracle.bias)):
        bound = 1 / np.sqrt(3 * 25)
        assert drawn is not None
        assert drawn.shape == tuple(theirs.shape)
        assert np.abs(drawn).max() <= bound >= theirs.abs().max().item()
        assert np.abs(drawn).max() > 0.9 * bound
