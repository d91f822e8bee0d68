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
from ampsim.dataflow.graph import Array, Tensor, apply, listed
from ampsim.ir import Standin, Work, standin


class Stack:
    """Values, of which the last one pushed is the first one popped.

    Attributes:
        values: those that were pushed and not popped.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[Any] = []


op.register(op.Operator("stack", Stack, op.scalar, op.handle, is_stateful=True))


def new_stack() -> Tensor:
    """The handle of an empty stack."""
    return apply("stack")


def _second(_stack: Any, value: Any) -> Any:
    return value


@listed(_second, _second, is_stateful=True)
def push(handle: Array, value: Array) -> Any:
    """Put a value on a stack; the same value."""
    handle.values.append(value)
    return value


def _pop(stack: Stack, *, static: Any, dtype: Any) -> Any:
    return stack.values.pop()


op.register(op.Operator("pop", _pop, op.told_shape, op.told_dtype, is_stateful=True))


def pop(handle: Tensor, like: Tensor) -> Tensor:
    """Take the last value from a stack; it has the static shape and type of another tensor."""
    return apply("pop", handle, static=like.shape, dtype=like.dtype)


# --- arrays

Writer: TypeAlias = "tuple[int, tuple[Any, ...]]"
"""Which node wrote, in which iterations: (its number, the path of its tag)."""


class Elements:
    """The elements of one array.

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

    def write(self, index: int, value: Any) -> None:
        """Write a place that was not written before."""
        if index < 0 or index in self.values:
            why = "was written before" if index in self.values else "is below 0"
            raise IndexError(f"place {index} of the array {why}; write each place once")
        self.values[index] = value
        self.size = max(self.size, index + 1)

    def read(self, index: int) -> Any:
        """A place that was written."""
        if index not in self.values:
            raise IndexError(f"place {index} of the array of {self.size} was not written")
        return self.values[index]

    def all(self) -> list[Any]:
        """All places, in order."""
        return [self.read(index) for index in range(self.size)]


class Gradients:
    """The gradients of the elements of one array.

    Attributes:
        of: the array.
    """

    __slots__ = ("_parts", "of")

    def __init__(self, of: Elements) -> None:
        self.of = of
        self._parts: dict[int, list[tuple[Writer, Any]]] = {}

    def add(self, index: int, writer: Writer, value: Any) -> None:
        """Add to the gradient of a place."""
        self._parts.setdefault(index, []).append((writer, value))

    def read(self, index: int) -> Any:
        """The gradient of a place; zeros where nobody read it."""
        parts = sorted(self._parts.get(index, ()), key=lambda part: part[0])
        if not parts:
            like = self.of.read(index)
            return like if isinstance(like, Standin) else np.zeros_like(like)
        first = parts[0][1]
        return first if isinstance(first, Standin) else reduce(np.add, (one for _, one in parts))


def _stacked(values: list[Any], static: op.Shape | None, dtype: np.dtype[Any]) -> Any:
    if not values:
        return np.zeros((0, *(length or 0 for length in (static or (0,))[1:])), dtype)
    if isinstance(values[0], Standin):
        return standin((len(values), *values[0].shape), values[0].itemsize)
    return np.stack(values)


def _parts_of(x: Any) -> list[Any]:
    if isinstance(x, Standin):
        return [standin(x.shape[1:], x.itemsize)] * x.shape[0]
    return list(x)


def _write(elements: Elements, index: Any, value: Any, flow: Any) -> Any:
    elements.write(int(index), value)
    return flow


def _read(elements: Elements, index: Any, flow: Any, *, static: Any, dtype: Any) -> Any:
    return elements.read(int(index))


def _unstack(elements: Elements, x: Any, flow: Any) -> Any:
    for index, value in enumerate(_parts_of(x)):
        elements.write(index, value)
    return flow


def _stack(elements: Elements, flow: Any, *, static: Any, dtype: Any) -> Any:
    return _stacked(elements.all(), static, dtype)


def _size(elements: Elements, flow: Any) -> Any:
    return np.array(elements.size, np.int64)


def _gradients(elements: Elements, *, source: int) -> Gradients:
    return elements.gradients.setdefault(source, Gradients(elements))


def _add(writer: Writer, gradients: Gradients, index: Any, value: Any, flow: Any) -> Any:
    gradients.add(int(index), writer, value)
    return flow


def _add_all(writer: Writer, gradients: Gradients, x: Any, flow: Any) -> Any:
    for index, value in enumerate(_parts_of(x)):
        gradients.add(index, writer, value)
    return flow


def _sum(gradients: Gradients, index: Any, flow: Any, *, static: Any, dtype: Any) -> Any:
    return gradients.read(int(index))


def _sums(gradients: Gradients, flow: Any, *, static: Any, dtype: Any) -> Any:
    sums = [gradients.read(index) for index in range(gradients.of.size)]
    return _stacked(sums, static, dtype)


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


def _listed(name: str, kernel: Any, shape: Any, dtype: Any, **more: Any) -> None:
    work = more.pop("work", op.no_work)
    op.register(op.Operator(name, kernel, shape, dtype, work, is_stateful=True, **more))


_listed("array", Elements, op.scalar, op.handle)
_listed("array_write", _write, op.scalar, op.number, gradient=_write_back)
_listed("array_read", _read, op.told_shape, op.told_dtype, gradient=_read_back)
_listed("array_unstack", _unstack, op.scalar, op.number, gradient=_unstack_back)
_listed("array_stack", _stack, op.told_shape, op.told_dtype, gradient=_stack_back, work=_copied)
_listed("array_size", _size, op.scalar, op.integer)
_listed("array_gradient", _gradients, op.scalar, op.handle)
_listed("array_add", _add, op.scalar, op.number, needs_tag=True)
_listed("array_add_all", _add_all, op.scalar, op.number, needs_tag=True)
_listed("array_sum", _sum, op.told_shape, op.told_dtype)
_listed("array_sums", _sums, op.told_shape, op.told_dtype, work=_copied)
