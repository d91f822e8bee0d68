"""Sums over axes, and what changes or reads shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ampsim.arguments import checked
from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Array, Operand, Tensor, apply, constant, listed
from ampsim.ir.work import NO_WORK, Work, placed_work
from ampsim.nodes.embedding import require_places


def _rank_shape(x: op.Shape) -> op.Shape:
    return (len(x),)


@listed(_rank_shape, op.integer, reads_shapes=True)
def shape_of(x: Array) -> Any:
    """The lengths of all axes."""
    return np.array(x.shape, np.int64)


@listed(op.scalar, op.integer, reads_shapes=True)
def length(x: Array, axis: int = 0) -> Any:
    """The length of an axis."""
    return np.array(x.shape[axis], np.int64)


# --- of a shape that the last input tells; `static` is what is known of it before it runs

_TOLD: Final = (op.told_shape, op.first_dtype)


def _as_told(*inputs: Any, **_attributes: Any) -> tuple[int, ...]:
    return tuple(inputs[-1].tolist())


@listed(op.told_shape, op.told_dtype, op.moved, running_shape=_as_told)
def filled(
    shape: Array, value: float, dtype: Any = op.FLOAT, static: op.Shape | None = None
) -> Any:
    """A tensor of one value."""
    return np.full(tuple(shape.tolist()), value, dtype)  # pyright: ignore[reportUnknownVariableType]  # of any type


@checked
def zeros(shape: Sequence[int], dtype: Any = op.FLOAT) -> Tensor:
    """A tensor of zeros."""
    return filled(constant(shape, op.INT), 0.0, dtype, tuple(shape))


@listed(*_TOLD, gradient=lambda of, slope: [of.reduced(slope, 0), None], running_shape=_as_told)
def broadcast_to(x: Array, shape: Array, static: op.Shape | None = None) -> Any:
    """X repeated along axes that it has not, or of which it has one element."""
    return np.broadcast_to(x, tuple(shape.tolist()))


def _summed(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return NO_WORK if inputs[0] == output else op.moved(inputs, output, itemsize)


@listed(*_TOLD, _summed, lambda of, slope: [of.spread(slope, 0), None], running_shape=_as_told)
def sum_to(x: Array, shape: Array, static: op.Shape | None = None) -> Any:
    """The reverse of `broadcast_to`: sums over what was repeated."""
    target = tuple(shape.tolist())
    if x.shape == target:
        return x
    leading = x.ndim - len(target)
    padded = (1,) * leading + target
    axes = {axis for axis, (long, short) in enumerate(zip(x.shape, padded, strict=True))
            if axis < leading or (short == 1 and long != 1)}  # fmt: skip
    return x.sum(axis=tuple(sorted(axes)), keepdims=True).reshape(target)


def _formed_shape(x: Any, shape: np.ndarray, *, static: Any) -> tuple[int, ...]:
    return np.broadcast_to(np.zeros(()), x.shape).reshape(tuple(shape.tolist())).shape


@listed(*_TOLD, gradient=lambda of, slope: [of.formed(slope, 0), None], running_shape=_formed_shape)
def reshape_to(x: Array, shape: Array, static: op.Shape | None = None) -> Any:
    """Reshape; a length of -1 is whatever is left for its axis."""
    return x.reshape(tuple(shape.tolist()))


@checked
def reshape(x: Operand, shape: Sequence[int]) -> Tensor:
    """Reshape; a length of -1 is whatever is left for its axis."""
    static = tuple(None if length == -1 else length for length in shape)
    return reshape_to(x, constant(shape, op.INT), static)


# --- sums, and axes of length 1


def _total_back(of: Any, gradient: Tensor) -> list[Tensor]:
    axis = of.node.attributes["axis"]
    return [of.spread(gradient if axis is None else expand(gradient, axis), 0)]


def _total_dtype(x: np.dtype[Any], **attributes: Any) -> np.dtype[Any]:
    return np.add.reduce(np.zeros(1, x)).dtype


@listed(op.without_axis, _total_dtype, op.moved, _total_back)
def sum(x: Array, axis: int | None = None) -> Any:
    """The sum over an axis, or over all."""
    return np.asarray(x.sum(axis=axis))


def _wide(x: op.Shape, *, axis: int) -> op.Shape:
    place = range(len(x) + 1)[axis]
    return (*x[:place], 1, *x[place:])


@listed(_wide, op.first_dtype, gradient=lambda of, gradient: [of.formed(gradient, 0)])
def expand(x: Array, axis: int) -> Any:
    """X with one more axis of length 1."""
    return np.expand_dims(x, axis)


# --- parts


def _joined_shape(*shapes: op.Shape, axis: int) -> op.Shape:
    lengths = [shape[axis] for shape in shapes]
    total = None if None in lengths else int(math.fsum(lengths))  # pyright: ignore[reportArgumentType]  # none is None
    first = list(shapes[0])
    first[axis] = total
    others = {tuple(one for i, one in enumerate(s) if i != axis % len(s)) for s in shapes}
    if len({len(shape) for shape in shapes}) > 1 or len(others) > 1:
        raise ValueError("all axes but one must be alike")
    return tuple(first)


def _joined_back(of: Any, gradient: Tensor) -> list[Tensor]:
    axis, inputs = of.node.attributes["axis"], of.node.inputs
    shapes = [of.shape(place) for place in range(len(inputs))]
    return [
        apply("part_of", gradient, *shapes, axis=axis, place=place, static=one.shape)
        for place, one in enumerate(inputs)
    ]


def _joined(*parts: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(parts, axis=axis)


op.register(op.Operator("concat", _joined, _joined_shape, op.joint_dtype, op.moved, _joined_back))


def concat(parts: Sequence[Operand], axis: int = 1) -> Tensor:
    """Tensors side by side along an axis."""
    return apply("concat", *parts, axis=axis)


def _part_shape(x: Any, *shapes: Any, axis: int, place: int, static: Any) -> tuple[int, ...]:
    return tuple(shapes[place].tolist())


@listed(*_TOLD, running_shape=_part_shape)
def part_of(x: Array, *shapes: Array, axis: int, place: int, static: op.Shape | None) -> Any:
    """Cut out of a gradient the part that belongs to one of the parts that `concat` joined."""
    edges = np.cumsum([0, *(shape[axis] for shape in shapes)])
    return _between(x, int(edges[place]), int(edges[place + 1]), axis)


def _between(x: np.ndarray, first: int, last: int, axis: int) -> np.ndarray:
    index: list[Any] = [slice(None)] * x.ndim
    index[axis] = slice(first, last)
    return x[tuple(index)]


def _cut_shape(x: op.Shape, *, first: int, last: int, axis: int) -> op.Shape:
    length = x[axis]
    if not 0 <= first <= last or (length is not None and last > length):
        raise ValueError(f"{first} to {last} is not within axis {axis}")
    shape = list(x)
    shape[axis] = last - first
    return tuple(shape)


def _cut_back(of: Any, gradient: Tensor) -> list[Tensor]:
    told = of.node.attributes
    return [pad_to(gradient, of.shape(0), told["first"], told["axis"], of.node.inputs[0].shape)]


@listed(_cut_shape, op.first_dtype, gradient=_cut_back)
def cut(x: Array, first: int, last: int, axis: int = 1) -> Any:
    """Slice from `first` to before `last` along an axis."""
    _cut_shape(x.shape, first=first, last=last, axis=axis)  # of whole numbers nobody else asks
    return _between(x, first, last, axis)


def _padded_back(of: Any, gradient: Tensor) -> list[Any]:
    first, axis = (of.node.attributes[one] for one in ("first", "axis"))
    return [cut(gradient, first, first + of.node.inputs[0].shape[axis], axis), None]


def _placed(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return placed_work(math.prod(inputs[0]), math.prod(output), itemsize)


@listed(*_TOLD, _placed, _padded_back, running_shape=_as_told)
def pad_to(x: Array, shape: Array, first: int, axis: int, static: op.Shape | None = None) -> Any:
    """The reverse of `cut`: x within zeros."""
    whole = np.zeros(tuple(shape.tolist()), x.dtype)
    _between(whole, first, first + x.shape[axis], axis)[...] = x
    return whole


def _picked_dtype(x: np.dtype[Any], index: np.dtype[Any]) -> np.dtype[Any]:
    if index.kind != "i":
        raise TypeError(f"the index must be whole numbers, got {index}")
    return x


def _picked_back(of: Any, gradient: Tensor) -> list[Any]:
    index, shape = of.input(1), of.shape(0)
    return [scatter_to(gradient, index, shape, of.node.inputs[0].shape), None]


def _picked_shape(x: op.Shape, index: op.Shape) -> op.Shape:
    return (*index, *x[1:])


@listed(_picked_shape, _picked_dtype, op.copied, _picked_back)
def pick(x: Array, index: Array) -> Any:
    """Rows of x, by their places; an index of one number gives a row without its axis.

    Raises:
        IndexError: there is no such row.
    """
    require_places(index)
    return x[index]


def _scattered(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    added = Work(0, 0, 0, pass_bytes=itemsize * math.prod(inputs[0]))  # to what lies there
    return _placed(inputs, output, itemsize) + added


def _scattered_shape(x: op.Shape, index: op.Shape, _rank: Any, *, static: Any) -> Any:
    wanted = None if static is None else (*index, *static[1:])
    if not op.may_be(x, wanted):
        raise ValueError(f"rows {wanted} are expected")
    return static


def _scattered_to(x: Any, index: Any, shape: np.ndarray, *, static: Any = None) -> tuple[int, ...]:
    return _scattered_shape(x.shape, index.shape, None, static=tuple(shape.tolist()))


@listed(
    _scattered_shape, op.first_dtype, _scattered,
    lambda of, gradient: [pick(gradient, of.input(1)), None, None], running_shape=_scattered_to,
)  # fmt: skip
def scatter_to(x: Array, index: Array, shape: Array, static: op.Shape | None = None) -> Any:
    """The reverse of `pick`: rows added up at their places, in zeros of a shape."""
    require_places(index)
    whole = np.zeros(_scattered_to(x, index, shape), x.dtype)
    np.add.at(whole, index, x)
    return whole


def scatter(x: Operand, index: Operand, like: Tensor) -> Tensor:
    """The reverse of `pick`: rows of x added up at their places, in zeros of the form of `like`."""
    return scatter_to(x, index, shape_of(like), like.shape)


def _cast_back(of: Any, gradient: Tensor) -> list[Any]:
    taken = of.node.inputs[0]
    return [cast(gradient, taken.dtype) if taken.is_float else None]


@listed(op.first_shape, op.told_dtype, op.moved, _cast_back)
def cast(x: Array, dtype: Any) -> Any:
    """Convert the elements to another type."""
    return x.astype(dtype)
