"""ReLU, Tanh, Sigmoid: non-parameterized transforms of each element by itself (Section 4)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import Direction, Node, Payload, Sends, Shape, State, Work
from ampsim.ir.shapes import known
from ampsim.nodes.light import elementwise_work


class Elementwise(Node):
    """A function of each element whose derivative can be told from its value: y is all it keeps.

    Attributes:
        operations: of a forward and of a backward step.
        passes: payloads that these operations read and write, each by itself.
    """

    operations: ClassVar[tuple[int, int]] = (1, 1)
    passes: ClassVar[tuple[int, int]] = (2, 2)

    keeps_state = True
    heeds_need = False

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._saved: dict[State, np.ndarray] = {}

    @abstractmethod
    def value(self, x: np.ndarray) -> np.ndarray:
        """Return y = f(x), a new array."""

    @abstractmethod
    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return `gradient` times f'(x), a new array, where f(x) was `y`."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send f(x) and record it under the state."""
        output = payload if self.is_abstract else self.value(payload)
        if self.is_training:
            self._saved[state] = output
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient times the derivative."""
        output = self._saved.pop(state)
        if gradient is None or self.is_abstract:
            return ((0, state, gradient),)
        return ((0, state, self.pulled_back(output, gradient)),)

    def kept_bytes(self, state: State, taken_bytes: int) -> int:
        """The value, as large as what it is of."""
        return taken_bytes

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; forward, apply one function to each."""
        is_back = direction is Direction.BACKWARD
        return elementwise_work(
            shape,
            self.element_bytes,
            self.operations[is_back],
            passes=self.passes[is_back],
            functions=int(not is_back),
        )

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()


class ReLU(Elementwise):
    """max(x, 0); the derivative at 0 is 0."""

    operations = 1, 2
    passes = 2, 5  # a comparison, and a product with what it gives, which is cast

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return max(x, 0)."""
        return np.maximum(x, 0)

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Keep the gradient where the output was positive."""
        return gradient * (y > 0)


class Tanh(Elementwise):
    """The hyperbolic tangent; its derivative is 1 − y²."""

    operations = 1, 3
    passes = 2, 7

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return tanh(x)."""
        return np.tanh(x)

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Multiply by 1 − y²."""
        slope = y * y
        np.subtract(1.0, slope, out=slope)
        slope *= gradient
        return slope


class Sigmoid(Elementwise):
    """The logistic function 1 / (1 + e⁻ˣ); its derivative is y (1 − y)."""

    operations = 4, 3
    passes = 8, 8

    def value(self, x: np.ndarray) -> np.ndarray:
        """Return (1 + tanh(x / 2)) / 2, which cannot overflow."""
        output = x * 0.5
        np.tanh(output, out=output)
        output *= 0.5
        output += 0.5
        return output

    def pulled_back(self, y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Multiply by y (1 − y)."""
        slope = y * y
        np.subtract(y, slope, out=slope)
        slope *= gradient
        return slope
