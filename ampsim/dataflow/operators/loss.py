"""Softmax cross-entropy: the loss of a classifier, as the node of that name computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import (
    Operator,
    Shape,
    elementwise,
    first_dtype,
    integer,
    register,
)


def _loss(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1)
    right = shifted[np.arange(len(label)), label]
    return np.asarray((np.log(total).sum() - right.sum()) / len(label), logits.dtype)


def _slope(logits: np.ndarray, label: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    probability = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability /= probability.sum(axis=1)[:, None]
    probability[np.arange(len(label)), label] -= 1
    probability /= len(label)
    probability *= gradient
    return probability


def _require(logits: Shape, label: Shape) -> None:
    if len(logits) != 2 or len(label) != 1:
        raise ValueError("(rows, classes) and (rows,) are expected")


def _loss_shape(logits: Shape, label: Shape) -> Shape:
    _require(logits, label)
    return ()


def _slope_shape(logits: Shape, label: Shape, gradient: Shape) -> Shape:
    _require(logits, label)
    return logits


def _loss_back(operator: Any, gradient: Tensor) -> list[Any]:
    logits, label = operator.input(0), operator.input(1)
    return [apply("softmax_cross_entropy_gradient", logits, label, gradient), None]


register(
    Operator(
        "softmax_cross_entropy", _loss, _loss_shape, first_dtype,
        elementwise(8, passes=8, functions=1), _loss_back,
    )
)  # fmt: skip
register(
    Operator(
        "softmax_cross_entropy_gradient", _slope, _slope_shape, first_dtype,
        elementwise(8, passes=7, functions=1),
    )
)  # fmt: skip


def _right(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
    return np.array(np.count_nonzero(logits.argmax(axis=1) == label), np.int64)


register(Operator("count_right", _right, _loss_shape, integer, elementwise(passes=1)))


def count_right(logits: Operand, label: Operand) -> Tensor:
    """How many rows have their largest number at their label."""
    return apply("count_right", logits, label)


def softmax_cross_entropy(logits: Operand, label: Operand) -> Tensor:
    """Mean over rows of −log softmax(logits)[label]; logits (rows, classes), label (rows,)."""
    return apply("softmax_cross_entropy", logits, label)
