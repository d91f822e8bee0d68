"""Stacks, on which a forward loop saves what its gradient needs, and arrays of tensors.

Of stacks there is one for each value (Yu et al. 2018, Section 5.1, Figure 9). Each place of an
array is written once, and read as often as anybody likes (Section 5.2).

Both are resources with a handle. What orders an array's operations is its flow, a number that each
takes and that each which changes the array gives; gradients go along it. The gradient of an array
is another one, found by the handle: where the one is read, the other is written, and the reverse.
Sums over several reads of a place are made in the order of nodes and tags, never of arrival.
What is kept on a device whose memory has an end is kept with its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Tensor, apply
from ampsim.dataflow.memory import DeviceTensor, Resource, bare, release
from ampsim.dataflow.plan import Path
from ampsim.ir import Standin, standin


def _listed(name: str, kernel: Any, shape: Any, dtype: Any, **more: Any) -> None:
    op.register(op.Operator(name, kernel, shape, dtype, is_stateful=True, **more))


class Stack(Resource):
    """Values, of which the last one pushed is the first one popped; its methods are kernels."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Any] = []  # those that were pushed and not popped

    def push(self, value: Any) -> Any:
        """Put a value on it; the same value."""
        self.values.append(value)
        return value

    def pop(self, **_told: Any) -> Any:
        """Take the last value."""
        return self.values.pop()

    def let_go(self) -> None:
        """Hold nothing any more."""
        while self.values:
            release(self.values.pop())


def _second(_stack: Any, value: Any) -> Any:
    return value


def _as_pushed(_stack: Any, *, dtype: np.dtype[Any], **_told: Any) -> np.dtype[Any]:
    """The type of what was pushed: in nested loops a handle's, too."""
    return dtype


_listed("stack", Stack, op.scalar, op.handle)
_listed("push", Stack.push, _second, _second)
_listed("pop", Stack.pop, op.told_shape, _as_pushed)


# --- arrays

Writer: TypeAlias = tuple[int, Path]
"""Which node wrote, in which iterations: (its number, the path of its tag)."""


class Elements(Resource):
    """The elements of one array; its methods are kernels."""

    __slots__ = ("gradients", "rows", "size", "values", "waiting")

    def __init__(self, size: Any) -> None:
        super().__init__()
        if size < 0:
            raise ValueError(f"the size of an array must be >= 0, got {size}")
        self.values: dict[int, Any] = {}  # those that were written, by their places
        self.gradients: dict[int, Gradients] = {}  # by the call of `gradients` that asks
        self.size = int(size)  # how many places there are
        self.rows: int | None = None  # how many of these `unstack` has written
        self.waiting: list[Callable[[], None]] = []  # called when something is written

    def write(self, index: Any, value: Any, flow: Any) -> Any:
        """Write a place that was not written before."""
        place = int(index)
        if place < 0 or place in self.values:
            why = "was written before" if place in self.values else "is below 0"
            raise IndexError(f"place {place} of the array {why}; write each place once")
        self.values[place] = value
        self.size = max(self.size, place + 1)
        self._tell()
        return flow

    def _tell(self) -> None:
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            one()

    def unstack(self, x: Any, flow: Any) -> Any:
        """Write all rows, the first at place 0."""
        rows = _rows_of(x)
        for index, value in enumerate(rows):
            self.write(index, value, flow)
        self.rows = len(rows)
        self._tell()
        return flow

    def read(self, index: Any, flow: Any = None, **_told: Any) -> Any:
        """A place that was written."""
        place = int(index)
        if place not in self.values:
            raise IndexError(f"place {place} of the array of {self.size} was not written")
        return self.values[place]

    def stack(self, flow: Any, *, static: Any, dtype: Any) -> Any:
        """Stack all places, in order."""
        return _stacked([self.read(place) for place in range(self.size)], static, dtype)

    def parts(self) -> list[Any]:
        """The arrays that `stack` stacks."""
        return list(self.values.values())

    def length(self, flow: Any) -> Any:
        """Count the places."""
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

    def parts(self, index: Any = None) -> list[Any]:
        """Summands of a place, in the order of nodes and tags; without `index`, as of `sums`."""
        if index is None:
            return [value for place in range(self._of.rows or 0) for value in self.parts(place)]
        found = self._parts.get(int(index), ())
        return [value for _writer, value in sorted(found, key=lambda part: part[0])]

    def missing(self, *given: Any) -> list[Callable[[], None]] | None:
        """Who is told of writes, where one is missing; None where none is.

        Of a place that nobody has read the gradient is zeros like what was written.
        """
        (*index, _flow), of = given, self._of
        is_there = of.rows is not None
        for place in map(int, index):
            is_there = place in self._parts or place in of.values
        return None if is_there else of.waiting

    def sum(self, index: Any, flow: Any = None, **_told: Any) -> Any:
        """The gradient of a place; zeros where nobody read it."""
        parts = self.parts(index)
        if len(parts) == 1:
            return parts[0]
        values = [bare(one) for one in parts or [self._of.read(index)]]
        if isinstance(values[0], Standin):
            return values[0]
        return reduce(np.add, values) if parts else np.zeros_like(values[0])

    def sums(self, flow: Any, *, static: Any, dtype: Any) -> Any:
        """Sums of all places that `unstack` has written, in order."""
        return _stacked([self.sum(place) for place in range(self._of.rows or 0)], static, dtype)


def _stacked(parts: list[Any], static: op.Shape | None, dtype: np.dtype[Any]) -> Any:
    if not parts:
        return np.zeros((0, *(length or 0 for length in (static or (0,))[1:])), dtype)
    values = list(map(bare, parts))
    if isinstance(values[0], Standin):
        return standin((len(values), *values[0].shape), values[0].itemsize)
    return np.stack(values)


def _rows_of(x: Any) -> list[Any]:
    if x.__class__ is DeviceTensor:
        return [DeviceTensor(row, x.owner) for row in _rows_of(x.value)]
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


def _written_back(of: Any, gradient: Tensor) -> list[Any]:
    """Return the gradients of the value and the flow of a write (handle, [index,] value, flow)."""
    *index, value = range(1, len(of.node.inputs) - 1)
    back, taken = None, of.node.inputs[value]
    if of.is_wanted(value):
        told = {"static": taken.shape, "dtype": taken.dtype}
        name = "array_sum" if index else "array_sums"
        back = apply(name, _gradient_array(of), *map(of.input, index), gradient, **told)
        back.node.awaited += of.node.outputs  # whose zeros are like what was written
    return [*[None] * value, back, gradient]


def _read_back(of: Any, gradient: Tensor) -> list[Any]:
    """Return the gradient of the flow of a read (handle, [index,] flow)."""
    index = range(1, len(of.node.inputs) - 1)
    name = "array_add" if index else "array_add_all"
    flow = apply(name, _gradient_array(of), *map(of.input, index), gradient, 0.0)
    return [None, *(None for _ in index), flow]


def _of_whole(rule: Any, noun: str, place: int) -> Any:
    """A rule of types for what takes a whole number at a place."""

    def dtype(*dtypes: np.dtype[Any], **told: Any) -> np.dtype[Any]:
        if dtypes[place].kind != "i":
            raise TypeError(f"the {noun} must be a whole number, got {dtypes[place]}")
        return rule(*dtypes, **told)

    return dtype


_PLACE: Final = ("place of an array", 1)

_listed("array", Elements, op.scalar, _of_whole(op.handle, "size of an array", 0))
_listed(
    "array_write", Elements.write, op.scalar, _of_whole(op.number, *_PLACE), gradient=_written_back
)
_listed(
    "array_read", Elements.read, op.told_shape, _of_whole(op.told_dtype, *_PLACE),
    gradient=_read_back,
)  # fmt: skip
_listed("array_unstack", Elements.unstack, op.scalar, op.number, gradient=_written_back)
_listed("array_stack", Elements.stack, op.told_shape, op.told_dtype, gradient=_read_back)
_listed("array_size", Elements.length, op.scalar, op.integer)
_listed("array_gradient", Elements.gradient, op.scalar, op.handle)
_listed("array_add", _add, op.scalar, op.number, needs_tag=True)
_listed("array_add_all", _add_all, op.scalar, op.number, needs_tag=True)
_listed("array_sum", Gradients.sum, op.told_shape, op.told_dtype, missing=Gradients.missing)
_listed("array_sums", Gradients.sums, op.told_shape, op.told_dtype, missing=Gradients.missing)
