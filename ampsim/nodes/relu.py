"""ReLU: a non-parameterized payload transform."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ampsim.ir import Direction, Node, Payload, Sends, Shape, State, Work
from ampsim.ir.shapes import known
from ampsim.nodes.light import elementwise_work


class ReLU(Node):
    """max(x, 0), elementwise; the derivative at 0 is 0."""

    def __init__(self, name: str) -> None:
        """Name the node."""
        super().__init__(name)
        self._saved: dict[State, np.ndarray] = {}

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Send max(x, 0) and record it under the state: its sign is the derivative."""
        output = payload if self.is_abstract else np.maximum(payload, 0)
        if self.is_training:
            self._saved[state] = output
        return ((0, state, output),)

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Send the gradient where the output was positive, 0 elsewhere."""
        output = self._saved.pop(state)
        if gradient is None or self.is_abstract:
            return ((0, state, gradient),)
        return ((0, state, gradient * (output > 0)),)

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once."""
        return elementwise_work(shape)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Keep the shape."""
        return known(shapes)

    def pending(self) -> Iterable[State]:
        """States whose backward message has not come."""
        return self._saved.keys()
