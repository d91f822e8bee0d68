"""Stacks, on which a forward loop saves what its gradient needs; one for each value.

Source: Yu et al. (2018), Section 5.1, Figure 9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.dataflow.graph import Tensor, apply
from ampsim.dataflow.operator import (
    Operator,
    Shape,
    handle,
    register,
    scalar,
    told_dtype,
    told_shape,
)


class Stack:
    """Values, of which the last one pushed is the first one popped.

    Attributes:
        values: those that were pushed and not popped.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[Any] = []


def _push(stack: Stack, value: Any) -> Any:
    stack.values.append(value)
    return value


def _pop(stack: Stack, *, static: Any, dtype: Any) -> Any:
    return stack.values.pop()


def _second_shape(_stack: Shape, value: Shape) -> Shape:
    return value


def _second_dtype(_stack: np.dtype[Any], value: np.dtype[Any]) -> np.dtype[Any]:
    return value


register(Operator("stack", Stack, scalar, handle, is_stateful=True))
register(Operator("push", _push, _second_shape, _second_dtype, is_stateful=True))
register(Operator("pop", _pop, told_shape, told_dtype, is_stateful=True))


def new_stack() -> Tensor:
    """The handle of an empty stack."""
    return apply("stack")


def push(handle: Tensor, value: Tensor) -> Tensor:
    """Put a value on a stack; the same value."""
    return apply("push", handle, value)


def pop(handle: Tensor, like: Tensor) -> Tensor:
    """Take the last value from a stack; it has the static shape and type of another tensor."""
    return apply("pop", handle, static=like.shape, dtype=like.dtype)
