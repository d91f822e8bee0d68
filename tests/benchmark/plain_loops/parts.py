"""What the loops share: layers, their optimizers, an LSTM cell, and a softmax."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ampsim.constant import constant


class Sgd:
    """theta <- theta - rate * gradient."""

    def __init__(self, theta: np.ndarray, rate: float) -> None:
        self.theta, self.rate = theta, rate

    def step(self, gradient: np.ndarray) -> None:
        gradient *= self.rate
        self.theta -= gradient


class Adam:
    """Kingma and Ba (2014), Algorithm 1, of sums where that has means: ten calls, as the package's.

    `mean` is the mean gradient over 1 - 0.9, `square` the mean square over 1 - 0.999.
    """

    def __init__(self, theta: np.ndarray, rate: float) -> None:
        self.theta, self.rate, self.count = theta, rate, 0
        self.mean, self.square = np.zeros_like(theta), np.zeros_like(theta)

    def step(self, gradient: np.ndarray) -> None:
        self.theta -= self._step(gradient, self.mean, self.square)

    def step_rows(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """Change some rows of a table and what is kept of them; the others rest."""
        mean, square = self.mean[rows], self.square[rows]
        self.theta[rows] -= self._step(gradient, mean, square)
        self.mean[rows], self.square[rows] = mean, square

    def _step(self, gradient: np.ndarray, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
        self.count += 1
        scale = math.sqrt(0.001 / (1 - 0.999**self.count))
        mean *= 0.9
        mean += gradient
        square *= 0.999
        np.square(gradient, out=gradient)
        square += gradient
        step = np.sqrt(square, out=gradient)
        step += 1e-8 / scale
        np.divide(mean, step, out=step)
        step *= self.rate * 0.1 / (1 - 0.9**self.count) / scale
        return step


LARGE_ROWS = 32  # from which on a pair gains nothing from one product with others


class Layer:
    """x W + b, with pairs of few rows kept until one product of all of them.

    Pairs of many rows are added up as they come. W and b are views of one vector, which the
    optimizer steps.
    """

    def __init__(self, parameters: dict[str, np.ndarray], name: str, optimizer, rate: float):
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        self.theta = np.concatenate([weight.reshape(-1), bias])
        self.gradient = np.empty_like(self.theta)
        size, shape = weight.size, weight.shape
        self.weight, self.bias = self.theta[:size].reshape(shape), self.theta[size:]
        self.to_weight, self.to_bias = self.gradient[:size].reshape(shape), self.gradient[size:]
        self.optimizer = optimizer(self.theta, rate)
        self.d_out = len(bias)
        self.inputs: list[np.ndarray] = []
        self.gradients: list[np.ndarray] = []
        self.has_sum = False
        parameters[f"{name}.weight"], parameters[f"{name}.bias"] = self.weight, self.bias

    def forward(self, x: np.ndarray) -> np.ndarray:
        y = x @ self.weight
        y += self.bias
        return y

    def keep(self, x: np.ndarray, gradient: np.ndarray) -> None:
        """All of the backward pass where nothing before the layer needs a gradient."""
        if len(x) >= LARGE_ROWS:
            self._add(x, gradient)
        else:
            self.inputs.append(x)
            self.gradients.append(gradient)

    def backward(self, x: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        self.keep(x, gradient)
        return gradient @ self.weight.T

    def update(self) -> None:
        """Step by the sum over all pairs; by 0 if there are none, as Adam's means go on."""
        if len(self.inputs) > 1:
            self._add(np.concatenate(self.inputs), np.concatenate(self.gradients))
        elif self.inputs:
            self._add(self.inputs[0], self.gradients[0])
        elif not self.has_sum:
            self.gradient[...] = 0
        self.inputs, self.gradients, self.has_sum = [], [], False
        self.optimizer.step(self.gradient)

    def _add(self, x: np.ndarray, gradient: np.ndarray) -> None:
        """Add a product and, as nodes do, column sums as a product too: half as long as a sum."""
        ones = row_of_ones(len(x), gradient.dtype)
        if self.has_sum:
            self.to_weight += x.T @ gradient
            self.to_bias += ones @ gradient
        else:
            np.matmul(x.T, gradient, out=self.to_weight)
            np.matmul(ones, gradient, out=self.to_bias)
            self.has_sum = True


class Table:
    """An embedding of which an update changes the rows that were looked up."""

    def __init__(self, parameters: dict[str, np.ndarray], name: str, rate: float) -> None:
        self.weight = parameters[f"{name}.weight"] = parameters[f"{name}.weight"].copy()
        self.optimizer = Adam(self.weight, rate)

    def update(self, indices: np.ndarray, gradient: np.ndarray) -> None:
        rows, place = np.unique(indices, return_inverse=True)
        one_hot = np.zeros((len(rows), len(place)), gradient.dtype)
        one_hot[place, np.arange(len(place))] = 1
        self.optimizer.step_rows(rows, one_hot @ gradient)

    def rest(self) -> None:
        """An update of no rows."""
        self.optimizer.count += 1


@cache
def row_of_ones(count: int, dtype) -> np.ndarray:
    return np.ones(count, dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    half = constant(0.5, x.dtype)
    y = x * half
    np.tanh(y, out=y)
    y *= half
    y += half
    return y


def softmax_gradient(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """The gradient of the mean cross-entropy, and the cross-entropy itself."""
    rows = np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True)
    gradient = np.exp(shifted)
    total = gradient.sum(axis=1, keepdims=True)
    loss = (np.log(total).sum() - shifted[rows, labels].sum()) / len(labels)
    gradient /= total
    gradient[rows, labels] -= 1
    gradient /= len(labels)
    return gradient, loss


class Kept(NamedTuple):
    """What the backward pass of an LSTM's step needs."""

    joined: np.ndarray
    cells: tuple[np.ndarray, ...]
    gates: np.ndarray
    candidate: np.ndarray
    bent: np.ndarray


def lstm_forward(
    layer: Layer, joined: np.ndarray, cells: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, Kept]:
    """h, c, and what is kept; columns are o, i, a forget gate for each of `cells`, candidate."""
    product = layer.forward(joined)
    units = product.shape[1] // (3 + len(cells))
    gates, candidate = sigmoid(product[:, :-units]), np.tanh(product[:, -units:])
    c = gates[:, units : 2 * units] * candidate
    for place, cell in enumerate(cells, 2):
        c += gates[:, place * units : (place + 1) * units] * cell
    bent = np.tanh(c)
    return gates[:, :units] * bent, c, Kept(joined, cells, gates, candidate, bent)


def lstm_backward(
    layer: Layer, kept: Kept, d_h: np.ndarray, d_c: np.ndarray | None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The gradient of what was joined, and of each cell."""
    joined, cells, gates, candidate, bent = kept
    units = int(bent.shape[1])
    one = constant(1.0, bent.dtype)
    through = one - bent * bent
    through *= gates[:, :units]
    through *= d_h
    if d_c is not None:
        through += d_c
    slopes = np.empty((len(bent), layer.d_out), bent.dtype)
    np.multiply(d_h, bent, out=slopes[:, :units])
    np.multiply(through, candidate, out=slopes[:, units : 2 * units])
    to_cells = []
    for place, cell in enumerate(cells, 2):
        columns = slice(place * units, (place + 1) * units)
        np.multiply(through, cell, out=slopes[:, columns])
        to_cells.append(through * gates[:, columns])
    slopes[:, :-units] *= gates - gates * gates
    slope = one - candidate * candidate
    slope *= through
    np.multiply(slope, gates[:, units : 2 * units], out=slopes[:, -units:])
    return layer.backward(joined, slopes), to_cells
