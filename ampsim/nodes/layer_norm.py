"""LayerNorm and RMSNorm: columns of each row brought to one size, then scaled and shifted."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ampsim.arguments import checked
from ampsim.ir.message import Direction, Payload, Sends, State
from ampsim.ir.node import CachingNode, ParameterizedNode, Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import NO_WORK, Work
from ampsim.nodes.linear import by_state, update_work
from ampsim.options import Count

OF_UPDATE = 1
"""Operations of an update before the optimizer's: zeros, to which messages' sums are added."""

OF_SUMS = (3, 5)
"""Operations and passes of a backward step that sends no gradient: a product, and two sums."""


class LayerNorm(ParameterizedNode, CachingNode):
    """y = (x − mean) / √(variance + epsilon) · weight + bias, over the columns of each row.

    Payloads are (rows, columns), or have more axes before the columns. The variance is that of all
    columns, divided by their number. Like a cell's, its FLOP are those of its products with
    parameters, 2 for each multiplication and addition (Appendix C): a row of n columns is 2·n.

    Source: J. Ba, J. Kiros and G. Hinton, "Layer normalization", 2016, equations 3 and 4; the same
    function and parameters as PyTorch's LayerNorm over the last axis.

    Args:
        name: the node's name.
        columns: of a payload.
        epsilon: added to the variance.
        has_bias: whether a bias is added.

    Raises:
        OptionError: `columns` is no count.
    """

    is_centred: ClassVar[bool] = True
    operations: ClassVar[tuple[int, int]] = (9, 11)
    """Of a forward step without a bias, and of a backward step."""
    passes: ClassVar[tuple[int, int]] = (10, 21)
    """Payloads that these read and write."""

    @checked
    def __init__(
        self, name: str, columns: Count, *, epsilon: float = 1e-5, has_bias: bool = True
    ) -> None:
        super().__init__(name, dict.fromkeys(("weight", "bias")[: 1 + has_bias], (columns,)))
        self.columns = columns
        self.epsilon = epsilon
        self._sums: list[tuple[State, np.ndarray, np.ndarray]] = []

    def initialise(self, generator: np.random.Generator) -> np.ndarray:
        """Start from weights of 1 and biases of 0, as PyTorch does."""
        return (np.arange(self.parameter_count) < self.columns).astype(np.float64)

    def adopt(self, theta: np.ndarray) -> None:
        """Bind weight and bias to the new parameters."""
        super().adopt(theta)
        self.weight, *self._biases = self.parts(theta)

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send y; record (x − mean) / deviation and 1 / deviation under the state."""
        kept: Any = (payload, None)
        output = payload
        if not self.is_abstract:
            centred = payload
            if self.is_centred:
                centred = payload - payload.mean(axis=-1, keepdims=True)
            variance = np.square(centred).mean(axis=-1, keepdims=True)
            inverse = 1 / np.sqrt(variance + self.epsilon)
            normal = centred * inverse
            kept = (normal, inverse)
            output = normal * self.weight
            for bias in self._biases:
                output += bias
        if self.is_training:
            self._saved[state] = (*kept, self.version)
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Accumulate, and send the input's gradient, with the weights of the moment."""
        normal, inverse, version = self._saved.pop(state)
        if gradient is None:
            return ((0, state, None),)
        self.count_gradient(state, version)
        is_needed = self.input_needs_gradient[0]
        if self.is_abstract:
            return ((0, state, normal if is_needed else None),)
        rows = tuple(range(gradient.ndim - 1))
        self._sums.append((state, (gradient * normal).sum(axis=rows), gradient.sum(axis=rows)))
        if not is_needed:
            return ((0, state, None),)
        back = gradient * self.weight
        along = (back * normal).mean(axis=-1, keepdims=True)
        if self.is_centred:
            back -= back.mean(axis=-1, keepdims=True)
        back -= normal * along
        back *= inverse
        return ((0, state, back),)

    def take_gradient(self) -> np.ndarray:
        """Return the sum over all accumulated messages, flat."""
        flat = np.zeros_like(self.theta)
        for _state, *sums in by_state(self._sums):
            for part, one in zip(self.parts(flat), sums, strict=False):
                part += one
        self._sums = []
        return flat

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """Count the normalised payload, and a number for each row."""
        return taken_bytes + taken_bytes // self.columns

    def product_rows(self, direction: Direction, shape: tuple[int, ...]) -> int:
        """Count the rows over all axes but the columns."""
        return math.prod(shape[:-1])

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Count 2 for each element and product with parameters, and 1 for each in an update."""
        itemsize = self.theta.itemsize
        weight_bytes = self.parameter_count * itemsize
        if direction is Direction.UPDATE:
            moved = (3 + 2 * self.state_arrays) * weight_bytes
            return update_work(self, OF_UPDATE, self.columns, moved, self.parameter_count)
        if shape is None:
            return NO_WORK
        is_back = direction is Direction.BACKWARD
        flop, moved = 2 * math.prod(shape), 2 * math.prod(shape) * itemsize
        operations, passes = self.operations[is_back], self.passes[is_back]
        if not is_back:
            has_bias = "bias" in self.parameter_shapes
            operations, passes = operations + has_bias, passes + 2 * has_bias
        elif self.input_needs_gradient[0]:
            flop, moved = 2 * flop, 2 * moved
        else:
            operations, passes = OF_SUMS
        operations += is_back * len(self.parameter_shapes)  # its part of the update's sums
        passed = passes * math.prod(shape) * itemsize
        return Work(flop, moved + weight_bytes, operations, weight_bytes, passed)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require the columns; keep the shape."""
        (shape,) = known(shapes)
        fits = len(shape) >= 2 and shape[-1] == self.columns
        require(fits, self, f"(rows, {self.columns})", shape)
        return (shape,)


class RMSNorm(LayerNorm):
    """y = x / √(mean of squares + epsilon) · weight, over the columns of each row.

    Source: B. Zhang and R. Sennrich, "Root mean square layer normalization", 2019, equation 4; the
    same function and parameter as PyTorch's RMSNorm over the last axis.

    Raises:
        OptionError: `columns` is no count.
    """

    is_centred = False
    operations = (7, 9)  # no mean is taken away
    passes = (7, 18)

    @checked
    def __init__(self, name: str, columns: Count, *, epsilon: float = 1e-5) -> None:
        super().__init__(name, columns, epsilon=epsilon, has_bias=False)
