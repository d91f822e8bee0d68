"""Squared error: the loss of a regression; starts the backward pass."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import Direction, Evaluated, Join, LossNode, LossReport, Payload, Shape, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import elementwise_work


class SquaredError(LossNode):
    """Mean of (prediction − target)² over all elements, as PyTorch's MSELoss.

    Inputs: ``prediction`` and ``target`` of one shape, (rows,) or (rows, outputs). A row's loss,
    and its absolute error, are the means over its outputs.
    """

    inputs = ("prediction", "target")

    @checked
    def __init__(self, name: str) -> None:
        """Name the node."""
        super().__init__(name)
        self._arrived = Join(2)

    def evaluate(self, port: int, state: State, payload: Payload) -> Evaluated | None:
        """Wait for prediction and target; report, and send 2 (prediction − target) / elements.

        Raises:
            GraphError: prediction and target differ in shape.
        """
        parts = self._arrived.put(port, state, payload)
        if parts is None:
            return None
        prediction, target = parts
        gradient, report = (
            (prediction, None) if self.is_abstract else self._gradient(prediction, target)
        )
        return Evaluated(prediction, ((0, state, gradient), (1, state, None)), report)

    def _gradient(
        self, prediction: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, LossReport]:
        shapes = (prediction.shape, target.shape)
        require(shapes[0] == shapes[1], self, "two payloads of one shape", *shapes)
        difference = prediction - target
        if difference.size == 1:
            one = difference.item()
            return difference * 2.0, LossReport(one * one, None, 1, absolute_error=abs(one))
        flat = difference.reshape(-1).astype(np.float64, copy=False)
        rows = len(difference)
        outputs = flat.size // rows
        report = LossReport(
            float(flat.dot(flat)) / outputs,
            None,
            rows,
            absolute_error=float(np.abs(flat).sum()) / outputs,
        )
        difference *= 2.0 / flat.size
        return difference, report

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once."""
        return elementwise_work(shape, self.element_bytes, 6)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require two equal shapes."""
        prediction, target = known(shapes)
        fits = prediction == target and len(prediction) in (1, 2)
        require(fits, self, "two shapes (rows,) or (rows, outputs), equal", prediction, target)
        return ()

    def pending(self) -> Iterable[State]:
        """States of which prediction or target is missing."""
        return self._arrived.waiting.keys()

    def awaits(self, state: State) -> str:
        """Prediction or target."""
        return self._arrived.lacks(state, "input", self.inputs)
