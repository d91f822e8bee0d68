"""What is done element by element, broadcast as NumPy does it: arithmetic, logic, functions.

Functions that are nodes, too, compute and cost the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Array, Operand, Tensor, apply, listed
from ampsim.ir.work import Work, joined_work
from ampsim.nodes import ReLU, Sigmoid, Tanh

# --- arithmetic


def _joined_work(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return joined_work(output, itemsize, max(len(inputs), 2))


def _added(of: Any, gradient: Tensor) -> list[Tensor]:
    return [of.reduced(gradient, place) for place in range(len(of.node.inputs))]


def _wanted(of: Any, place: int, build: Callable[[], Tensor]) -> Tensor | None:
    """The gradient of an input if somebody asks for it, summed over what was broadcast."""
    return of.reduced(build(), place) if of.is_wanted(place) else None


def _subtracted(of: Any, gradient: Tensor) -> list[Any]:
    second = _wanted(of, 1, lambda: -gradient)
    return [of.reduced(gradient, 0), second]


_GRADIENTS: Final[dict[str, op.GradientRule | None]] = {
    "add": _added,
    "subtract": _subtracted,
    "multiply": lambda of, slope: [
        _wanted(of, 0, lambda: slope * of.input(1)),
        _wanted(of, 1, lambda: slope * of.input(0)),
    ],
    "divide": lambda of, slope: [
        _wanted(of, 0, lambda: slope / of.input(1)),
        _wanted(of, 1, lambda: -(slope * of.output() / of.input(1))),
    ],
    "negative": lambda of, slope: [-slope],
    "floor_divide": None,
    "remainder": None,
}
"""What has NumPy's name, and how its gradient is built."""

for _name, _gradient in _GRADIENTS.items():
    op.register(
        op.Operator(
            _name, getattr(np, _name), op.broadcast, op.joint_dtype, _joined_work, _gradient
        )
    )  # fmt: skip


@listed(op.broadcast, op.joint_dtype, _joined_work, _added)
def add_n(*parts: Array) -> Any:
    """The sum of several tensors, added up in the order of the arguments."""
    return reduce(np.add, parts)


# --- comparisons, logic, and the choice of elements

for _name in ("less", "less_equal", "greater", "greater_equal"):
    op.register(op.Operator(_name, getattr(np, _name), op.broadcast, op.truth, op.elementwise()))


@listed(op.broadcast, op.truth, op.elementwise())
def equal(x: Array, y: Array) -> Any:
    """Whether elements are equal."""
    return np.equal(x, y)


@listed(op.broadcast, op.truth, op.elementwise())
def not_equal(x: Array, y: Array) -> Any:
    """Whether elements differ."""
    return np.not_equal(x, y)


@listed(op.broadcast, op.truth, op.elementwise())
def logical_and(x: Array, y: Array) -> Any:
    """Whether both are true."""
    return np.logical_and(x, y)


@listed(op.broadcast, op.truth, op.elementwise())
def logical_or(x: Array, y: Array) -> Any:
    """Whether one of both is true."""
    return np.logical_or(x, y)


@listed(op.broadcast, op.truth, op.elementwise())
def logical_not(x: Array) -> Any:
    """Whether it is false."""
    return np.logical_not(x)


def _chosen_dtype(condition: np.dtype[Any], *others: np.dtype[Any]) -> np.dtype[Any]:
    if condition.kind != "b":
        raise TypeError(f"the first input must be truth values, got {condition}")
    return np.result_type(*others)


def _chosen_back(of: Any, gradient: Tensor) -> list[Any]:
    condition = of.input(0)
    return [
        None,
        _wanted(of, 1, lambda: where(condition, gradient, 0.0)),
        _wanted(of, 2, lambda: where(condition, 0.0, gradient)),
    ]


@listed(op.broadcast, _chosen_dtype, op.elementwise(), _chosen_back)
def where(condition: Array, x: Array, y: Array) -> Any:
    """Elements of x where the condition is true, else those of y; both are computed."""
    return np.where(condition, x, y)  # pyright: ignore[reportUnknownVariableType]  # of any type


# --- functions of one tensor

_FUNCTION: Final = (op.first_shape, op.first_dtype, op.elementwise(functions=1))


@listed(*_FUNCTION, lambda of, gradient: [gradient * of.output()])
def exp(x: Array) -> Any:
    """E to the power of each element."""
    return np.exp(x)


@listed(*_FUNCTION, lambda of, gradient: [gradient / of.input(0)])
def log(x: Array) -> Any:
    """The natural logarithm of each element."""
    return np.log(x)


@listed(
    op.first_shape, op.first_dtype, op.elementwise(),
    lambda of, gradient: [gradient * of.input(0) * 2.0],
)  # fmt: skip
def square(x: Array) -> Any:
    """Each element times itself."""
    return np.square(x)


@listed(op.first_shape, op.first_dtype, gradient=lambda of, gradient: [gradient])
def identity(x: Array) -> Any:
    """X itself."""
    return x


@listed(op.first_shape, op.first_dtype, gradient=lambda of, gradient: [None])
def stop_gradient(x: Array) -> Any:
    """X itself, through which no gradient goes."""
    return x


def _list_node(node: Any) -> None:
    """List the function of a node, and the one that pulls gradients back through it."""
    name, operations, passes = node.name, node.operations, node.passes

    def gradient(of: Any, gradient: Tensor) -> list[Tensor]:
        return [apply(f"{name}_gradient", of.output(), gradient)]

    def value(x: np.ndarray) -> np.ndarray:
        return node.value(np.atleast_1d(x)).reshape(x.shape)

    def back(y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return node.pulled_back(np.atleast_1d(y), np.atleast_1d(gradient)).reshape(y.shape)

    work = op.elementwise(operations[0], passes=passes[0], functions=1)
    op.register(op.Operator(name, value, op.first_shape, op.first_dtype, work, gradient))
    work = op.elementwise(operations[1], passes=passes[1], arrays=3)
    op.register(op.Operator(f"{name}_gradient", back, op.first_shape, op.first_dtype, work))


for _node in (ReLU("relu"), Tanh("tanh"), Sigmoid("sigmoid")):
    _list_node(_node)


def relu(x: Operand) -> Tensor:
    """max(x, 0)."""
    return apply("relu", x)


def tanh(x: Operand) -> Tensor:
    """The hyperbolic tangent."""
    return apply("tanh", x)


def sigmoid(x: Operand) -> Tensor:
    """The logistic function 1 / (1 + e⁻ˣ)."""
    return apply("sigmoid", x)
