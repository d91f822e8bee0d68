"""Stacks, on which a forward loop saves what its gradient needs, and arrays of tensors.

Of stacks there is one for each value (Yu et al. 2018, Section 5.1, Figure 9). Each place of an
array is written once, and read as often as anybody likes (Section 5.2).

Both are resources with a handle. What orders an array's operations is its flow, a number that each
takes and that each which changes the array gives; gradients go along it. The gradient of an array
is another one, found by the handle: where the one is read, the other is written, and the reverse.
Sums over several reads of a place are made in the order of nodes and tags, never of arrival.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Tensor, apply
from ampsim.ir import Standin, Work, standin


def _listed(name: str, kernel: Any, shape: Any, dtype: Any, **more: Any) -> None:
    work = more.pop("work", op.no_work)
    op.register(op.Operator(name, kernel, shape, dtype, work, is_stateful=True, **more))


class Stack:
    """Values, of which the last one pushed is the first one popped; its methods are kernels.

    Attributes:
        values: those that were pushed and not popped.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[Any] = []

    def push(self, value: Any) -> Any:
        """Put a value on it; the same value."""
        self.values.append(value)
        return value

    def pop(self, **_told: Any) -> Any:
        """Take the last value."""
        return self.values.pop()


def _second(_stack: Any, value: Any) -> Any:
    return value


_listed("stack", Stack, op.scalar, op.handle)
_listed("push", Stack.push, _second, _second)
_listed("pop", Stack.pop, op.told_shape, op.told_dtype)


def new_stack() -> Tensor:
    """The handle of an empty stack."""
    return apply("stack")


def push(handle: Tensor, value: Tensor) -> Tensor:
    """Put a value on a stack; the same value."""
    return apply("push", handle, value)


def pop(handle: Tensor, like: Tensor) -> Tensor:
    """Take the last value from a stack; it has the static shape and type of another tensor."""
    return apply("pop", handle, static=like.shape, dtype=like.dtype)


# --- arrays

Writer: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""Which node wrote, in which iterations: (its number, the path of its tag)."""


class Elements:
    """The elements of one array; its methods are kernels.

    Attributes:
        values: those that were written, by their places.
        gradients: their gradients, by the call of `gradients` that asks.
        size: how many places there are.
    """

    __slots__ = ("gradients", "size", "values")

    def __init__(self, size: Any) -> None:
        self.values: dict[int, Any] = {}
        self.gradients: dict[int, Gradients] = {}
        self.size = int(size)

    def write(self, index: Any, value: Any, flow: Any) -> Any:
        """Write a place that was not written before."""
        place = int(index)
        if place < 0 or place in self.values:
            why = "was written before" if place in self.values else "is below 0"
            raise IndexError(f"place {place} of the array {why}; write each place once")
        self.values[place] = value
        self.size = max(self.size, place + 1)
        return flow

    def unstack(self, x: Any, flow: Any) -> Any:
        """Write all rows, the first at place 0."""
        for index, value in enumerate(_rows_of(x)):
            self.write(index, value, flow)
        return flow

    def read(self, index: Any, flow: Any = None, **_told: Any) -> Any:
        """A place that was written."""
        place = int(index)
        if place not in self.values:
            raise IndexError(f"place {place} of the array of {self.size} was not written")
        return self.values[place]

    def stack(self, flow: Any, *, static: Any, dtype: Any) -> Any:
        """All places, in order."""
        return _stacked([self.read(place) for place in range(self.size)], static, dtype)

    def length(self, flow: Any) -> Any:
        """How many places there are."""
        return np.array(self.size, np.int64)

    def gradient(self, *, source: int) -> Gradients:
        """Its gradients, for a call of `gradients`."""
        return self.gradients.setdefault(source, Gradients(self))


class Gradients:
    """The gradients of the elements of one array."""

    __slots__ = ("_of", "_parts")

    def __init__(self, of: Elements) -> None:
        self._of = of
        self._parts: dict[int, list[tuple[Writer, Any]]] = {}

    def add(self, index: int, writer: Writer, value: Any) -> None:
        """Add to the gradient of a place."""
        self._parts.setdefault(index, []).append((writer, value))

    def sum(self, index: Any, flow: Any = None, **_told: Any) -> Any:
        """The gradient of a place; zeros where nobody read it."""
        parts = sorted(self._parts.get(int(index), ()), key=lambda part: part[0])
        if not parts:
            like = self._of.read(index)
            return like if isinstance(like, Standin) else np.zeros_like(like)
        first = parts[0][1]
        return first if isinstance(first, Standin) else reduce(np.add, (one for _, one in parts))

    def sums(self, flow: Any, *, static: Any, dtype: Any) -> Any:
        """Those of all places, in order."""
        return _stacked([self.sum(place) for place in range(self._of.size)], static, dtype)


def _stacked(values: list[Any], static: op.Shape | None, dtype: np.dtype[Any]) -> Any:
    if not values:
        return np.zeros((0, *(length or 0 for length in (static or (0,))[1:])), dtype)
    if isinstance(values[0], Standin):
        return standin((len(values), *values[0].shape), values[0].itemsize)
    return np.stack(values)


def _rows_of(x: Any) -> list[Any]:
    if isinstance(x, Standin):
        return [standin(x.shape[1:], x.itemsize)] * x.shape[0]
    return list(x)


def _add(writer: Writer, gradients: Gradients, index: Any, value: Any, flow: Any) -> Any:
    gradients.add(int(index), writer, value)
    return flow


def _add_all(writer: Writer, gradients: Gradients, x: Any, flow: Any) -> Any:
    for index, value in enumerate(_rows_of(x)):
        gradients.add(index, writer, value)
    return flow


def _gradient_array(of: Any) -> Tensor:
    return apply("array_gradient", of.input(0), source=of.source)


def _write_back(of: Any, gradient: Tensor) -> list[Any]:
    back = None
    if of.is_wanted(2):
        told = _told_of(of.node.inputs[2])
        back = apply("array_sum", _gradient_array(of), of.input(1), gradient, **told)
    return [None, None, back, gradient]


def _unstack_back(of: Any, gradient: Tensor) -> list[Any]:
    back = None
    if of.is_wanted(1):
        told = _told_of(of.node.inputs[1])
        back = apply("array_sums", _gradient_array(of), gradient, **told)
    return [None, back, gradient]


def _told_of(value: Tensor) -> dict[str, Any]:
    return {"static": value.shape, "dtype": value.dtype}


def _read_back(of: Any, gradient: Tensor) -> list[Any]:
    return [None, None, apply("array_add", _gradient_array(of), of.input(1), gradient, 0.0)]


def _stack_back(of: Any, gradient: Tensor) -> list[Any]:
    return [None, apply("array_add_all", _gradient_array(of), gradient, 0.0)]


def _copied(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return op.moved((output,), output, itemsize)


_listed("array", Elements, op.scalar, op.handle)
_listed("array_write", Elements.write, op.scalar, op.number, gradient=_write_back)
_listed("array_read", Elements.read, op.told_shape, op.told_dtype, gradient=_read_back)
_listed("array_unstack", Elements.unstack, op.scalar, op.number, gradient=_unstack_back)
_listed(
    "array_stack", Elements.stack, op.told_shape, op.told_dtype, gradient=_stack_back, work=_copied
)
_listed("array_size", Elements.length, op.scalar, op.integer)
_listed("array_gradient", Elements.gradient, op.scalar, op.handle)
_listed("array_add", _add, op.scalar, op.number, needs_tag=True)
_listed("array_add_all", _add_all, op.scalar, op.number, needs_tag=True)
_listed("array_sum", Gradients.sum, op.told_shape, op.told_dtype)
_listed("array_sums", Gradients.sums, op.told_shape, op.told_dtype, work=_copied)
