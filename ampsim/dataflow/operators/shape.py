"""Sums over axes, and what changes or reads shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import (
    FLOAT,
    INT,
    Operator,
    Shape,
    WorkRule,
    elementwise,
    first_dtype,
    first_shape,
    integer,
    joint_dtype,
    moved,
    register,
    scalar,
    told_dtype,
    told_shape,
)


def _vector_of_lengths(x: Shape) -> Shape:
    return (len(x),)


def _lengths(x: Any) -> np.ndarray:
    return np.array(x.shape, np.int64)


def _length(x: Any, *, axis: int) -> np.ndarray:
    return np.array(x.shape[axis], np.int64)


register(Operator("shape_of", _lengths, _vector_of_lengths, integer, reads_shapes=True))
register(Operator("length", _length, scalar, integer, reads_shapes=True))


def shape_of(x: Operand) -> Tensor:
    """The lengths of all axes."""
    return apply("shape_of", x)


def length(x: Operand, axis: int = 0) -> Tensor:
    """The length of an axis."""
    return apply("length", x, axis=axis)


def _told(name: str, kernel: Any, gradient: Any, work: WorkRule = moved) -> None:
    """List an operator whose output has the shape that its last input tells."""
    operator = Operator(
        name, kernel, told_shape, first_dtype, work, gradient, running_shape=_as_told
    )
    register(operator)


def _filled(shape: np.ndarray, *, value: float, dtype: Any, static: Any) -> np.ndarray:
    return np.full(tuple(shape.tolist()), value, dtype)


def _as_told(*inputs: Any, **_attributes: Any) -> tuple[int, ...]:
    return tuple(inputs[-1].tolist())


def _spread(x: np.ndarray, shape: np.ndarray, *, static: Any) -> np.ndarray:
    return np.broadcast_to(x, tuple(shape.tolist()))


def _spread_back(operator: Any, gradient: Tensor) -> list[Any]:
    return [operator.reduced(gradient, 0), None]


def _summed_to(x: np.ndarray, shape: np.ndarray, *, static: Any) -> np.ndarray:
    target = tuple(shape.tolist())
    if x.shape == target:
        return x
    padded = (1,) * (x.ndim - len(target)) + target
    axes = tuple(
        axis for axis, (long, short) in enumerate(zip(x.shape, padded, strict=True))
        if short == 1 and long != 1
    )  # fmt: skip
    leading = tuple(range(x.ndim - len(target)))
    total = x.sum(axis=tuple(sorted({*axes, *leading})), keepdims=True)
    return total.reshape(target)


def _summed_to_back(operator: Any, gradient: Tensor) -> list[Any]:
    return [operator.spread(gradient, 0), None]


def _formed(x: np.ndarray, shape: np.ndarray, *, static: Any) -> np.ndarray:
    return x.reshape(tuple(shape.tolist()))


def _formed_shape(x: Any, shape: np.ndarray, *, static: Any) -> tuple[int, ...]:
    return np.broadcast_to(np.zeros(()), x.shape).reshape(tuple(shape.tolist())).shape


def _formed_back(operator: Any, gradient: Tensor) -> list[Any]:
    return [operator.formed(gradient, 0), None]


register(Operator("filled", _filled, told_shape, told_dtype, moved, running_shape=_as_told))
register(
    Operator(
        "broadcast_to",
        _spread,
        told_shape,
        first_dtype,
        moved,
        _spread_back,
        running_shape=_as_told,
    )
)
register(
    Operator(
        "sum_to",
        _summed_to,
        told_shape,
        first_dtype,
        moved,
        _summed_to_back,
        running_shape=_as_told,
    )
)
register(
    Operator(
        "reshape_to",
        _formed,
        told_shape,
        first_dtype,
        gradient=_formed_back,
        running_shape=_formed_shape,
    )
)


def filled(shape: Operand, value: float, dtype: Any = FLOAT, static: Shape | None = None) -> Tensor:
    """A tensor of one value; `static` is what is known of its shape before it runs."""
    return apply("filled", shape, value=value, dtype=dtype, static=static)


def zeros(shape: Sequence[int], dtype: Any = FLOAT) -> Tensor:
    """A tensor of zeros."""
    return filled(np.array(shape, INT), 0.0, dtype, tuple(shape))


def reshape(x: Operand, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape; -1 is the length that then is left for an axis."""
    static = tuple(None if length == -1 else length for length in shape)
    return apply("reshape_to", x, np.array(shape, INT), static=static)


def broadcast_to(x: Operand, shape: Operand, static: Shape | None = None) -> Tensor:
    """X repeated along axes that it has not, or of which it has one element."""
    return apply("broadcast_to", x, shape, static=static)


def sum_to(x: Operand, shape: Operand, static: Shape | None = None) -> Tensor:
    """The reverse of `broadcast_to`: sums over what was repeated."""
    return apply("sum_to", x, shape, static=static)


def _kept(x: Shape, *, axis: int | None) -> Shape:
    if axis is None:
        return ()
    left = list(x)
    del left[axis]
    return tuple(left)


def _total(x: np.ndarray, *, axis: int | None) -> np.ndarray:
    return np.asarray(x.sum(axis=axis))


def _total_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    axis = operator.node.attributes["axis"]
    if axis is not None:
        gradient = apply("expand", gradient, axis=axis)
    return [operator.spread(gradient, 0)]


def _wide(x: Shape, *, axis: int) -> Shape:
    place = axis + len(x) + 1 if axis < 0 else axis
    return (*x[:place], 1, *x[place:])


def _expand_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [operator.formed(gradient, 0)]


register(Operator("sum", _total, _kept, first_dtype, elementwise(), _total_back))
register(Operator("expand", np.expand_dims, _wide, first_dtype, gradient=_expand_back))


def sum(x: Operand, axis: int | None = None) -> Tensor:
    """The sum over an axis, or over all."""
    return apply("sum", x, axis=axis)


def expand(x: Operand, axis: int) -> Tensor:
    """X with one more axis of length 1."""
    return apply("expand", x, axis=axis)


def _joined_shape(*shapes: Shape, axis: int) -> Shape:
    lengths = [shape[axis] for shape in shapes]
    known = [one for one in lengths if one is not None]
    total = math.fsum(known) if len(known) == len(lengths) else None
    first = list(shapes[0])
    first[axis] = None if total is None else int(total)
    others = {tuple(one for i, one in enumerate(s) if i != axis % len(s)) for s in shapes}
    if len({len(shape) for shape in shapes}) > 1 or len(others) > 1:
        raise ValueError("all axes but one must be alike")
    return tuple(first)


def _joined(*parts: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(parts, axis=axis)


def _joined_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    axis, inputs = operator.node.attributes["axis"], operator.node.inputs
    shapes = [operator.shape(place) for place in range(len(inputs))]
    return [
        apply("part_of", gradient, *shapes, axis=axis, place=place, static=one.shape)
        for place, one in enumerate(inputs)
    ]


def _part(
    x: np.ndarray, *shapes: np.ndarray, axis: int, place: int, static: Any
) -> np.ndarray:  # fmt: skip
    edges = np.cumsum([0, *(shape[axis] for shape in shapes)])
    return _cut(x, first=int(edges[place]), last=int(edges[place + 1]), axis=axis)


def _part_shape(x: Any, *shapes: Any, axis: int, place: int, static: Any) -> tuple[int, ...]:
    return tuple(shapes[place].tolist())


def _cut_shape(x: Shape, *, first: int, last: int, axis: int) -> Shape:
    if x[axis] is not None and not 0 <= first <= last <= x[axis]:  # pyright: ignore[reportOperatorIssue]  # compared just now
        raise ValueError(f"{first} to {last} is not within axis {axis}")
    shape = list(x)
    shape[axis] = last - first
    return tuple(shape)


def _cut(x: np.ndarray, *, first: int, last: int, axis: int) -> np.ndarray:
    index: list[Any] = [slice(None)] * x.ndim
    index[axis] = slice(first, last)
    return x[tuple(index)]


def _cut_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    first, axis = operator.node.attributes["first"], operator.node.attributes["axis"]
    static = operator.node.inputs[0].shape
    return [apply("pad_to", gradient, operator.shape(0), first=first, axis=axis, static=static)]


def _padded(x: np.ndarray, shape: np.ndarray, *, first: int, axis: int, static: Any) -> np.ndarray:
    whole = np.zeros(tuple(shape.tolist()), x.dtype)
    _cut(whole, first=first, last=first + x.shape[axis], axis=axis)[...] = x
    return whole


def _padded_back(operator: Any, gradient: Tensor) -> list[Any]:
    attributes, part = operator.node.attributes, operator.node.inputs[0].shape
    first, axis = attributes["first"], attributes["axis"]
    return [cut(gradient, first, first + part[axis], axis), None]


register(Operator("concat", _joined, _joined_shape, joint_dtype, elementwise(), _joined_back))
register(Operator("part_of", _part, told_shape, first_dtype, running_shape=_part_shape))
register(Operator("cut", _cut, _cut_shape, first_dtype, gradient=_cut_back))
register(
    Operator(
        "pad_to", _padded, told_shape, first_dtype, moved, _padded_back, running_shape=_as_told
    )
)


def concat(parts: Sequence[Operand], axis: int = 1) -> Tensor:
    """Tensors side by side along an axis."""
    return apply("concat", *parts, axis=axis)


def cut(x: Operand, first: int, last: int, axis: int = 1) -> Tensor:
    """What lies from `first` to before `last` along an axis."""
    return apply("cut", x, first=first, last=last, axis=axis)


def _picked_shape(x: Shape, index: Shape) -> Shape:
    return (*index, *x[1:])


def _picked_dtype(x: np.dtype[Any], index: np.dtype[Any]) -> np.dtype[Any]:
    if index.kind != "i":
        raise TypeError(f"the index must be whole numbers, got {index}")
    return x


def _picked(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    return x[index]


def _picked_back(operator: Any, gradient: Tensor) -> list[Any]:
    static = operator.node.inputs[0].shape
    index, shape = operator.input(1), operator.shape(0)
    return [apply("scatter_to", gradient, index, shape, static=static), None]


def _scattered(
    x: np.ndarray, index: np.ndarray, shape: np.ndarray, *, static: Any
) -> np.ndarray:  # fmt: skip
    whole = np.zeros(tuple(shape.tolist()), x.dtype)
    np.add.at(whole, index, x)
    return whole


def _scattered_back(operator: Any, gradient: Tensor) -> list[Any]:
    return [pick(gradient, operator.input(1)), None, None]


register(Operator("pick", _picked, _picked_shape, _picked_dtype, moved, _picked_back))
_told("scatter_to", _scattered, _scattered_back)


def pick(x: Operand, index: Operand) -> Tensor:
    """Rows of x, by their places; an index of one number gives a row without its axis."""
    return apply("pick", x, index)


def _cast(x: np.ndarray, *, dtype: Any) -> np.ndarray:
    return x.astype(dtype)


def _cast_back(operator: Any, gradient: Tensor) -> list[Any]:
    taken = operator.node.inputs[0]
    return [cast(gradient, taken.dtype) if taken.is_float else None]


register(Operator("cast", _cast, first_shape, told_dtype, moved, _cast_back))


def cast(x: Operand, dtype: Any) -> Tensor:
    """The same numbers as another type."""
    return apply("cast", x, dtype=dtype)
