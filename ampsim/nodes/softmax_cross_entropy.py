"""Softmax cross-entropy with accuracy: the loss of a classifier; starts the backward pass."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ampsim.arguments import checked
from ampsim.ir import Direction, Evaluated, Join, LossNode, LossReport, Payload, Shape, State, Work
from ampsim.ir.shapes import known, require
from ampsim.nodes.light import elementwise_work


class SoftmaxCrossEntropy(LossNode):
    """Mean over rows of −log softmax(prediction)[label].

    Inputs: ``prediction`` (rows, classes) and ``label`` (rows), integers.
    """

    inputs = ("prediction", "label")

    @checked
    def __init__(self, name: str) -> None:
        """Name the node."""
        super().__init__(name)
        self._arrived = Join(2)

    def evaluate(self, port: int, state: State, payload: Payload) -> Evaluated | None:
        """Wait for prediction and label; report, and send (softmax − one-hot) / rows."""
        parts = self._arrived.put(port, state, payload)
        if parts is None:
            return None
        logits, label = parts
        gradient, report = (logits, None) if self.is_abstract else self._gradient(logits, label)
        return Evaluated(logits, ((0, state, gradient), (1, state, None)), report)

    def _gradient(self, logits: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, LossReport]:
        rows = len(label)
        if rows == 1:
            return self._gradient_of_one(logits, int(label[0]))
        places = np.arange(rows)
        shifted = logits - logits.max(axis=1, keepdims=True)
        probability = np.exp(shifted)
        total = probability.sum(axis=1)
        right = shifted[places, label]
        loss = float(np.log(total).sum(dtype=np.float64) - right.sum(dtype=np.float64))
        correct = int(np.count_nonzero(logits.argmax(axis=1) == label))
        report = LossReport(loss, correct, rows)
        probability /= total[:, None]
        probability[places, label] -= 1
        probability /= rows
        return probability, report

    def _gradient_of_one(self, logits: np.ndarray, label: int) -> tuple[np.ndarray, LossReport]:
        """The same of one row, in a third of the time, which a tree of many nodes notices."""
        best = int(logits.argmax())
        probability = logits - logits[0, best]
        right = float(probability[0, label])
        np.exp(probability, out=probability)
        total = np.add.reduce(probability, axis=None)
        report = LossReport(math.log(total) - right, int(best == label), 1)
        probability /= total
        probability[0, label] -= 1
        return probability, report

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; a single row is the shorter way."""
        operations = 9 if shape is not None and shape[0] == 1 else 16
        return elementwise_work(shape, self.element_bytes, operations, passes=15, functions=1)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, classes) and (rows)."""
        prediction, label = known(shapes)
        fits = len(prediction) == 2 and label == prediction[:1]
        require(fits, self, "(rows, classes) and (rows,)", prediction, label)
        return ()

    def pending(self) -> Iterable[State]:
        """States of which prediction or label is missing."""
        return self._arrived.waiting.keys()

    def awaits(self, state: State) -> str:
        """Prediction or label."""
        return self._arrived.lacks(state, "input", self.inputs)
