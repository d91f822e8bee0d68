"""Operators by rows: products of matrices, shares, the largest, losses; and NumPy functions.

Appendix C of AMPNet charges products; softmax cross-entropy is as the node of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ampsim.constant import unmasked
from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Array, Operand, Tensor, apply, listed
from ampsim.ir import Work
from ampsim.nodes.losses import require_labels


def _product_shape(x: op.Shape, w: op.Shape) -> op.Shape:
    fits = len(x) == 2 and len(w) == 2 and (x[1] == w[0] or None in (x[1], w[0]))
    if not fits:
        raise ValueError("(rows, d_in) and (d_in, d_out) are expected")
    return x[0], w[1]


def _product_work(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    (rows, d_in), (_d_in, d_out) = inputs
    elements = rows * d_in + d_in * d_out + rows * d_out
    return Work(2 * rows * d_in * d_out, itemsize * elements)


def _product_back(of: Any, gradient: Tensor) -> list[Any]:
    first = matmul(gradient, transpose(of.input(1))) if of.is_wanted(0) else None
    return [first, matmul(transpose(of.input(0)), gradient) if of.is_wanted(1) else None]


@listed(_product_shape, op.joint_dtype, _product_work, _product_back)
def matmul(x: Array, w: Array) -> Any:
    """The product of two matrices."""
    return np.matmul(x, w)


def _turned_shape(x: op.Shape) -> op.Shape:
    if len(x) != 2:
        raise ValueError("(rows, columns) is expected")
    return x[1], x[0]


@listed(
    _turned_shape, op.joint_dtype, op.no_work,
    lambda of, gradient: [apply("transpose", gradient)],
)  # fmt: skip
def transpose(x: Array) -> Any:
    """Rows and columns exchanged."""
    return np.transpose(x)


def _permuted_shape(x: op.Shape, *, axes: tuple[int, ...]) -> op.Shape:
    if sorted(axes) != list(range(len(x))):
        raise ValueError(f"each axis of {x} once is expected, got {axes}")
    return tuple(x[axis] for axis in axes)


def _permuted_back(of: Any, gradient: Tensor) -> list[Tensor]:
    axes = of.node.attributes["axes"]
    return [permute(gradient, tuple(axes.index(axis) for axis in range(len(axes))))]


@listed(_permuted_shape, op.first_dtype, op.no_work, _permuted_back)
def permute(x: Array, axes: tuple[int, ...]) -> Any:
    """The axes of x in another order."""
    return np.transpose(x, axes)


# --- what a gate needs that chooses by value


def _share_dtype(x: np.dtype[Any]) -> np.dtype[Any]:
    return np.exp.resolve_dtypes((x, None))[-1]


@listed(
    op.first_shape, _share_dtype, op.elementwise(5, passes=8, functions=1),
    lambda of, gradient: [softmax_gradient(of.output(), gradient)],
)  # fmt: skip
def softmax(x: Array) -> Any:
    """Shares that add up to 1 along the last axis: e to the power of each, over their sum."""
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


@listed(op.first_shape, op.first_dtype, op.elementwise(4, passes=9))
def softmax_gradient(y: Array, gradient: Array) -> Any:
    """The gradient of what `softmax` took, by what it gave."""
    weighed = y * gradient
    weighed -= y * weighed.sum(axis=-1, keepdims=True)
    return weighed


def _top_shape(x: op.Shape, *, count: int) -> op.Shape:
    if count < 1 or (x[-1] is not None and count > x[-1]):
        raise ValueError(f"{count} of the last axis are asked for")
    return x


@listed(_top_shape, op.truth, op.elementwise(4, passes=3))
def top(x: Array, count: int = 1) -> Any:
    """Mark the `count` largest elements of the last axis; of equal ones the first."""
    largest = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    is_top = np.zeros(x.shape, np.bool_)
    np.put_along_axis(is_top, largest, True, axis=-1)
    return is_top


@listed(op.scalar, op.truth)
def any(x: Array) -> Any:
    """Tell whether one of all truth values is true."""
    return np.asarray(x.any())


def _place_dtype(x: np.dtype[Any]) -> np.dtype[Any]:
    if x.kind != "b":
        raise TypeError(f"truth values are expected, got {x}")
    return op.INT


@listed(op.always((None,)), _place_dtype)
def places(x: Array) -> Any:
    """The places of true elements, counted along the rows, in their order."""
    return np.flatnonzero(x)


@listed(op.without_axis, op.integer, op.moved)
def argmax(x: Array, axis: int = -1) -> Any:
    """Places of the largest elements along an axis, the first of several; they have no gradient."""
    return np.asarray(x.argmax(axis))


# --- the loss of a classifier


def _loss_shape(logits: op.Shape, label: op.Shape) -> op.Shape:
    if len(logits) != 2 or len(label) != 1:
        raise ValueError("(rows, classes) and (rows,) are expected")
    if None not in (logits[0], label[0]) and logits[0] != label[0]:
        raise ValueError(f"{logits[0]} rows and {label[0]} labels")
    return ()


@listed(
    _loss_shape, op.first_dtype, op.elementwise(9, passes=6, functions=1, arrays=1),
    lambda of, gradient: [
        softmax_cross_entropy_gradient(of.input(0), of.input(1), gradient), None
    ],
)  # fmt: skip
def softmax_cross_entropy(logits: Array, label: Array) -> Any:
    """Mean over rows of −log softmax(logits)[label]; logits (rows, classes), label (rows,)."""
    require_labels(label, logits.shape[1])
    shifted = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1)
    right = shifted[np.arange(len(label)), label]
    return np.asarray((np.log(total).sum() - right.sum()) / len(label), logits.dtype)


@listed(op.first_shape, op.first_dtype, op.elementwise(11, passes=12, functions=1))
def softmax_cross_entropy_gradient(logits: Array, label: Array, gradient: Array) -> Any:
    """The gradient of the logits, (rows, classes), by that of the loss."""
    probability = np.exp(logits - logits.max(axis=1, keepdims=True))
    probability /= probability.sum(axis=1)[:, None]
    probability[np.arange(len(label)), label] -= 1
    probability /= len(label)
    probability *= gradient
    return probability


@listed(_loss_shape, op.integer, op.elementwise(3, passes=1, arrays=1))
def count_right(logits: Array, label: Array) -> Any:
    """Count the rows whose largest number is at their label."""
    return np.array(np.count_nonzero(logits.argmax(axis=1) == label), np.int64)


# --- what no other operator computes, such as an environment


def _told_or_first(*shapes: op.Shape, shape: op.Shape | None, **attributes: Any) -> op.Shape:
    return shapes[0] if shape is None else shape


def _called(
    *inputs: np.ndarray, function: Callable[..., Any], shape: op.Shape | None, dtype: np.dtype[Any]
) -> np.ndarray:  # fmt: skip
    given = np.asarray(unmasked("what the function gives", function(*inputs)))
    expected = _told_or_first(*(one.shape for one in inputs), shape=shape)
    if given.shape != expected or not np.can_cast(given.dtype, dtype, "same_kind"):
        raise TypeError(
            f"the function must give {dtype} of shape {expected}, got {given.dtype} of shape "
            f"{given.shape}; say shape= and dtype="
        )
    return given.astype(dtype, copy=False)


op.register(op.Operator("numpy_function", _called, _told_or_first, op.told_dtype, op.moved))


def numpy_function(
    function: Callable[..., Any], operands: Sequence[Operand], *,
    shape: Sequence[int] | None = None, dtype: Any = "float64",
) -> Tensor:  # fmt: skip
    """Call a pure function of arrays: it changes none, and gives the same for the same.

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
