"""Losses of a prediction and what it should be; each starts the backward pass."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Final

import numpy as np

from ampsim.arguments import checked
from ampsim.ir.loss import Evaluated, LossNode, LossReport
from ampsim.ir.message import Direction, Payload, State
from ampsim.ir.node import Shape
from ampsim.ir.shapes import known, require
from ampsim.ir.work import Work, elementwise_work

DOUBLE_BYTES: Final = 8
"""Bytes of a number in double precision."""


def require_labels(label: np.ndarray, classes: int) -> None:
    """Check that labels are whole numbers, one a row, that name classes counted from 0.

    NumPy takes -1 for the last class, and a truth value for a choice of rows.

    Raises:
        ValueError: they are not.
    """
    if label.dtype.kind not in "iu" or label.ndim != 1:
        got = f"{label.dtype} of shape {label.shape}"
    elif len(label) and not 0 <= np.minimum.reduce(label) <= np.maximum.reduce(label) < classes:
        got = f"{label[(label < 0) | (label >= classes)][0]}"
    else:
        return
    raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}, one a row, got {got}")


class LossOfPair(LossNode):
    """A loss of two inputs, the prediction and what it should be, which has no gradient."""

    @checked
    def __init__(self, name: str) -> None:
        super().__init__(name)

    def evaluate(self, port: int, state: State, payload: Payload) -> Evaluated | None:
        """Wait for both inputs; report, and send the gradient of the prediction."""
        parts = self._arrived.put(port, state, payload)
        if parts is None:
            return None
        prediction, wanted = parts
        gradient, report = (
            (prediction, None) if self.is_abstract else self._gradient(prediction, wanted)
        )
        return Evaluated(prediction, ((0, state, gradient), (1, state, None)), report)

    @abstractmethod
    def _gradient(
        self, prediction: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, LossReport]:
        """The gradient of the prediction, and what is reported."""


class SoftmaxCrossEntropy(LossOfPair):
    """Mean over rows of −log softmax(prediction)[label], and how many labels are right.

    Inputs: ``prediction`` (rows, classes) and ``label`` (rows), integers. The gradient is
    (softmax − one-hot) / rows.
    """

    inputs = ("prediction", "label")

    def _gradient(
        self, prediction: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, LossReport]:
        logits, label = prediction, wanted
        rows = len(label)
        if rows == 1 and label.ndim == 1 and label.dtype.kind in "iu":
            one = int(label[0])
            if 0 <= one < logits.shape[1]:
                return self._gradient_of_one(logits, one)
        require_labels(label, logits.shape[1])
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
        """One row takes a third of the time in this way, which a tree of many nodes notices."""
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
        is_single = shape is not None and shape[0] == 1
        operations, passes = (10, 8) if is_single else (17, 12)
        return elementwise_work(shape, self.element_bytes, operations, passes=passes, functions=1)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require (rows, classes) and (rows)."""
        prediction, label = known(shapes)
        fits = len(prediction) == 2 and label == prediction[:1]
        require(fits, self, "(rows, classes) and (rows,)", prediction, label)
        return ()


class SquaredError(LossOfPair):
    """Mean of (prediction − target)² over all elements, as PyTorch's MSELoss.

    Inputs: ``prediction`` and ``target`` of one shape, (rows,) or (rows, outputs); targets may be
    whole numbers. A row's loss, and its absolute error, are the means over its outputs. The
    gradient is 2 (prediction − target) / elements, in the prediction's type.
    """

    inputs = ("prediction", "target")

    def _gradient(
        self, prediction: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, LossReport]:
        shapes = (prediction.shape, wanted.shape)
        require(shapes[0] == shapes[1], self, "two payloads of one shape", *shapes)
        difference = np.subtract(prediction, wanted, dtype=prediction.dtype)
        if difference.size == 1:
            one = difference.item()
            return difference * 2.0, LossReport(one * one, None, 1, absolute_error=abs(one))
        flat = difference.reshape(-1).astype(np.float64, copy=False)
        rows = len(difference)
        outputs = math.prod(difference.shape[1:])
        report = LossReport(
            float(flat.dot(flat)) / outputs,
            None,
            rows,
            absolute_error=float(np.abs(flat).sum()) / outputs,
        )
        difference *= 2.0 / max(flat.size, 1)  # of a message without rows
        return difference, report

    def work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        """Read and write every element once; single precision is summed up in double.

        A single number goes a shorter way.
        """
        is_single = shape is not None and math.prod(shape) == 1
        passes = 2 if is_single else 10 if self.element_bytes == DOUBLE_BYTES else 18
        return elementwise_work(shape, self.element_bytes, 6, passes=passes)

    def check(self, shapes: tuple[Shape | None, ...]) -> tuple[Shape, ...]:
        """Require two equal shapes."""
        prediction, target = known(shapes)
        fits = prediction == target and len(prediction) in (1, 2)
        require(fits, self, "two shapes (rows,) or (rows, outputs), equal", prediction, target)
        return ()
