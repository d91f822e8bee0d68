"""Linear: the fully connected layer, the heavy operation of the paper's Appendix C."""

from __future__ import annotations

import math

import numpy as np

from ampsim.arguments import checked
from ampsim.errors import GraphError
from ampsim.ir import NO_WORK, Direction, Payload, Sends, Shape, Standin, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.accumulate import MatrixNode, Pairs
from ampsim.nodes.weights import Start, Transposed


class Linear(MatrixNode):
    """y = x W + b, for x of k rows and d_in columns and W of d_in x d_out.

    Args:
        name: the node's name.
        d_in: columns of x.
        d_out: columns of y.
        start: draws the first W, (d_in, d_out), and b starts at 0; or both, (d_in + 1, d_out), of
            which b is the last row. By default both are drawn uniformly from ±1/√d_in, as
            PyTorch's Linear does.
    """

    @checked
    def __init__(self, name: str, d_in: int, d_out: int, *, start: Start | None = None) -> None:
        """Map `d_in` columns to `d_out`.

        Raises:
            GraphError: a width is below 1.
        """
        if d_in < 1 or d_out < 1:
            raise GraphError(f"{name}: widths must be >= 1, got d_in={d_in}, d_out={d_out}")
        super().__init__(name, {"weight": (d_in, d_out), "bias": (d_out,)}, (d_in,), d_out)
        self._pairs = Pairs()
        self._start = start

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Draw the parameters that training starts from, flat."""
        if self._start is not None:
            drawn = self._start(generator)
            if drawn.shape == (self.d_in, self.d_out):
                drawn = np.vstack([drawn, np.zeros(self.d_out)])
            assert drawn.shape == (self.d_in + 1, self.d_out), (
                f"{self.name}: start drew {drawn.shape}"
            )
            return drawn.reshape(-1)
        bound = 1.0 / math.sqrt(self.d_in)
        return generator.uniform(-bound, bound, self.parameter_count)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, self.bias = self.parts(theta)
        self._transposed = Transposed(self.weight)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send x W + b; record x and the version of W under the state."""
        if self.is_training:
            self._saved[state] = (payload, self.version)
        if self.is_abstract:
            return ((0, state, Standin((payload.shape[0], self.d_out), payload.itemsize)),)
        if not len(payload):  # as of a type of bond that a molecule has not: no product
            return ((0, state, np.empty((0, self.d_out), payload.dtype)),)
        output = payload @ self.weight
        output += self.bias
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate the parameter gradient and send g Wᵀ, with the weights of the moment."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        is_needed = self.input_needs_gradient[0]
        if self.is_abstract:
            return ((0, state, saved if is_needed else None),)
        self._pairs.add(saved, gradient)
        return ((0, state, self._transposed.after(gradient) if is_needed else None),)

    def backward_input(self, state: State, gradient: Payload) -> Sends:
        """The first half of `backward`, for schedules that split it: send g Wᵀ."""
        if gradient is None or not self.input_needs_gradient[0]:
            return ((0, state, None),)
        if self.is_abstract:
            return ((0, state, self._saved[state][0]),)
        return ((0, state, self._transposed.after(gradient)),)

    def backward_weight(self, state: State, gradient: Payload) -> None:
        """The second half, any time after the first: accumulate the parameter gradient."""
        saved, version = self._saved.pop(state)
        if gradient is None:
            return
        self.count_gradient(state, version)
        if not self.is_abstract:
            self._pairs.add(saved, gradient)

    def work_of_halves(self, shape: tuple[int, ...] | None) -> tuple[Work, Work]:
        """What the two halves of a backward step cost; together, what the whole does."""
        if shape is None:
            return NO_WORK, NO_WORK
        whole = self.work(Direction.BACKWARD, shape)
        moved = shape[0] * (self.d_in + self.d_out) * self.theta.itemsize
        flop = 2 * shape[0] * self.d_in * self.d_out
        weight = Work(flop, moved, pass_bytes=whole.pass_bytes)
        flop, moved = whole.flop - weight.flop, whole.bytes - weight.bytes
        return Work(flop, moved, weight_bytes=whole.weight_bytes), weight

    def take_gradient(self) -> np.ndarray:
        """Form (Xᵀ G, column sums of G) over all accumulated messages, flat."""
        flat = np.empty_like(self.theta)
        self._pairs.take(*self.parts(flat))
        return flat

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, d_in); return (rows, d_out)."""
        (shape,) = known(shapes)
        fits = len(shape) == 2 and shape[1] == self.d_in
        require(fits, self, f"(rows, {self.d_in})", shape)
        return ((shape[0], self.d_out),)
