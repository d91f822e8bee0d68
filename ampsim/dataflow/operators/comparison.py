"""Comparisons, logic, and the choice of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import (
    Operator,
    Shape,
    broadcast,
    elementwise,
    integer,
    moved,
    register,
    truth,
)


def _truth(name: str, kernel: Any) -> None:
    register(Operator(name, kernel, broadcast, truth, elementwise()))


_truth("less", np.less)
_truth("less_equal", np.less_equal)
_truth("greater", np.greater)
_truth("greater_equal", np.greater_equal)
_truth("equal", np.equal)
_truth("not_equal", np.not_equal)
_truth("logical_and", np.logical_and)
_truth("logical_or", np.logical_or)
_truth("logical_not", np.logical_not)


def _chosen_dtype(condition: np.dtype[Any], *others: np.dtype[Any]) -> np.dtype[Any]:
    if condition.kind != "b":
        raise TypeError(f"the first input must be truth values, got {condition}")
    return np.result_type(*others)


def _chosen_back(operator: Any, gradient: Tensor) -> list[Any]:
    condition = operator.input(0)
    return [
        None,
        operator.reduced(where(condition, gradient, 0.0), 1) if operator.is_wanted(1) else None,
        operator.reduced(where(condition, 0.0, gradient), 2) if operator.is_wanted(2) else None,
    ]


def _largest(x: np.ndarray, *, axis: int) -> np.ndarray:
    return np.asarray(x.argmax(axis))


def _without(x: Shape, *, axis: int) -> Shape:
    place = range(len(x))[axis]
    return (*x[:place], *x[place + 1 :])


register(Operator("argmax", _largest, _without, integer, moved))
register(Operator("where", np.where, broadcast, _chosen_dtype, elementwise(), _chosen_back))


def equal(x: Operand, y: Operand) -> Tensor:
    """Whether elements are equal."""
    return apply("equal", x, y)


def not_equal(x: Operand, y: Operand) -> Tensor:
    """Whether elements differ."""
    return apply("not_equal", x, y)


def logical_and(x: Operand, y: Operand) -> Tensor:
    """Whether both are true."""
    return apply("logical_and", x, y)


def logical_or(x: Operand, y: Operand) -> Tensor:
    """Whether one of both is true."""
    return apply("logical_or", x, y)


def logical_not(x: Operand) -> Tensor:
    """Whether it is false."""
    return apply("logical_not", x)


def where(condition: Operand, x: Operand, y: Operand) -> Tensor:
    """Elements of x where the condition is true, else those of y; both are computed."""
    return apply("where", condition, x, y)


def argmax(x: Operand, axis: int = -1) -> Tensor:
    """Places of the largest elements along an axis, the first of several; they have no gradient."""
    return apply("argmax", x, axis=axis)
