"""Linear: the fully connected layer, the heavy operation of the paper's Appendix C."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from ampsim.errors import GraphError
from ampsim.ir import Direction, ParameterizedNode, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require

ROWS_HELD: Final = 8192  # chosen: bounds the memory of waiting pairs; a GEMM gains nothing beyond


class Linear(ParameterizedNode):
    """y = x W + b, for x of k rows and d_in columns and W of d_in x d_out.

    Gradients accumulate as pairs (x, g), and Xᵀ G is formed once per update from all of them: one
    large product instead of one per message (`tests/benchmark/bench_linear.py`).
    """

    def __init__(self, name: str, d_in: int, d_out: int) -> None:
        """Map `d_in` columns to `d_out`.

        Raises:
            GraphError: a width is below 1.
        """
        if d_in < 1 or d_out < 1:
            raise GraphError(f"{name}: widths must be >= 1, got d_in={d_in}, d_out={d_out}")
        super().__init__(name, {"weight": (d_in, d_out), "bias": (d_out,)})
        self.d_in = d_in
        self.d_out = d_out
        self._saved: dict[State, tuple[np.ndarray, int]] = {}
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self._rows = 0
        self._folded: np.ndarray | None = None

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw weights and bias uniformly from ±1/√d_in, as PyTorch's Linear does."""
        bound = 1.0 / math.sqrt(self.d_in)
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        views = self.views(theta)
        self.weight, self.bias = views["weight"], views["bias"]
        self.weight_transposed = self.weight.T

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send x W + b; record x and the version of W under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        if self.is_abstract:
            return ((0, state, Standin((payload.shape[0], self.d_out), payload.itemsize)),)
        output = payload @ self.weight
        output += self.bias
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate the parameter gradient and send g Wᵀ, with the weights of the moment."""
        saved, version = self._saved.pop(state)
        self.count_gradient(state, version)
        is_needed = self.input_needs_gradient[0]
        if self.is_abstract:
            return ((0, state, saved if is_needed else None),)
        self._pairs.append((saved, gradient))
        self._rows += len(gradient)
        if self._rows > ROWS_HELD:
            self._folded = self.take_gradient()
        return ((0, state, gradient @ self.weight_transposed if is_needed else None),)

    def take_gradient(self) -> np.ndarray:
        """Form (Xᵀ G, column sums of G) over all accumulated messages, flat."""
        if not self._pairs:
            flat = np.zeros_like(self.theta)
        else:
            flat = np.empty_like(self.theta)
            inputs, gradients = _stack(self._pairs)
            views = self.views(flat)
            np.matmul(inputs.T, gradients, out=views["weight"])
            np.matmul(np.ones(len(gradients), flat.dtype), gradients, out=views["bias"])
        if self._folded is not None:
            flat += self._folded
        self._pairs, self._rows, self._folded = [], 0, None
        return flat

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count 2·k·d_in·d_out for each matrix product and d_in·d_out for an update (Appendix C).

        Backward is the gradient accumulation, and the input gradient only where it is needed.
        """
        itemsize = self.theta.itemsize
        weights = self.d_in * self.d_out
        if direction is Direction.UPDATE:
            return Work(weights, 3 * self.parameter_count * itemsize)
        assert shape is not None
        rows = shape[0]
        product = 2 * rows * weights
        moved = (rows * (self.d_in + self.d_out) + self.parameter_count) * itemsize
        if direction is Direction.FORWARD:
            return Work(product, moved)
        products = 1 + self.input_needs_gradient[0]
        return Work(products * product, products * moved)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, d_in); return (rows, d_out)."""
        (shape,) = known(shapes)
        fits = len(shape) == 2 and shape[1] == self.d_in
        require(fits, self, f"(rows, {self.d_in})", shape)
        return ((shape[0], self.d_out),)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()


def _stack(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Stack the inputs, and the gradients, of all pairs; a single pair needs no copy."""
    if len(pairs) == 1:
        return pairs[0]
    inputs, gradients = zip(*pairs, strict=True)
    return np.concatenate(inputs), np.concatenate(gradients)
