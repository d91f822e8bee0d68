"""A function of NumPy as an operator: what no other operator computes, such as an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import Operator, Shape, moved, register, told_dtype


def _told_or_first(*shapes: Shape, shape: Shape | None, **attributes: Any) -> Shape:
    return shapes[0] if shape is None else shape


def _called(
    *inputs: np.ndarray, function: Callable[..., Any], shape: Shape | None, dtype: np.dtype[Any]
) -> np.ndarray:  # fmt: skip
    given = np.asarray(function(*inputs))
    expected = _told_or_first(*(one.shape for one in inputs), shape=shape)
    if given.shape != expected or not np.can_cast(given.dtype, dtype, "same_kind"):
        raise TypeError(
            f"the function must give {dtype} of shape {expected}, got {given.dtype} of shape "
            f"{given.shape}; say shape= and dtype="
        )
    return given.astype(dtype, copy=False)


register(Operator("numpy_function", _called, _told_or_first, told_dtype, moved))


def numpy_function(
    function: Callable[..., Any],
    operands: Sequence[Operand],
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = "float64",
) -> Tensor:
    """What a function of arrays gives that changes none of them and gives the same for the same.

    It has no gradient. The host computes what takes and gives whole numbers and truth values alone,
    at the cost of a step.

    Args:
        function: takes the operands' arrays, and gives one.
        operands: at least one.
        shape: of what it gives; by default that of the first operand.
        dtype: the type of its elements.
    """
    told = None if shape is None else tuple(shape)
    return apply("numpy_function", *operands, function=function, shape=told, dtype=np.dtype(dtype))
