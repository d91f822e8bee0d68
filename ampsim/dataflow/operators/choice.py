"""What a gate needs that chooses by value: shares, which are largest, and whose rows they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import (
    Operator,
    Shape,
    elementwise,
    first_dtype,
    first_shape,
    integer,
    register,
    scalar,
    truth,
)


def _softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _softmax_slope(y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    weighed = y * gradient
    weighed -= y * weighed.sum(axis=-1, keepdims=True)
    return weighed


def _softmax_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [apply("softmax_gradient", operator.output(), gradient)]


def _top(x: np.ndarray, *, count: int) -> np.ndarray:
    places = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    is_top = np.zeros(x.shape, np.bool_)
    np.put_along_axis(is_top, places, True, axis=-1)
    return is_top


def _is_any(x: np.ndarray) -> np.ndarray:
    return np.asarray(x.any())


def _places_shape(x: Shape) -> Shape:
    return (None,)


def _top_shape(x: Shape, *, count: int) -> Shape:
    if count < 1 or (x[-1] is not None and count > x[-1]):
        raise ValueError(f"{count} of the last axis are asked for")
    return x


register(
    Operator(
        "softmax", _softmax, first_shape, first_dtype,
        elementwise(5, passes=8, functions=1), _softmax_back,
    )
)  # fmt: skip
register(
    Operator("softmax_gradient", _softmax_slope, first_shape, first_dtype, elementwise(4, passes=9))
)
register(Operator("top", _top, _top_shape, truth, elementwise()))
register(Operator("any", _is_any, scalar, truth, elementwise(passes=1)))
register(Operator("places", np.flatnonzero, _places_shape, integer, elementwise()))


def softmax(x: Operand) -> Tensor:
    """Shares that add up to 1 along the last axis: e to the power of each, over their sum."""
    return apply("softmax", x)


def top(x: Operand, count: int = 1) -> Tensor:
    """Which elements are among the `count` largest of the last axis; of equal ones the first."""
    return apply("top", x, count=count)


def any(x: Operand) -> Tensor:
    """Whether one of all truth values is true."""
    return apply("any", x)


def places(x: Operand) -> Tensor:
    """The places of true elements, counted along the rows, in their order."""
    return apply("places", x)
