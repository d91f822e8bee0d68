"""Operators by element, broadcast as NumPy does it: arithmetic, logic, functions.

Functions that are nodes, too, compute and cost the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Array, Operand, Tensor, apply, build, listed
from ampsim.ir.work import Work, joined_work
from ampsim.nodes import ReLU, Sigmoid, Tanh


def _built(operator: op.Operator, told: str, count: int) -> Callable[..., Tensor]:
    """List an operator of one tensor or two; what builds nodes of it, of which `told` tells."""
    op.register(operator)

    def of_one(x: Operand) -> Tensor:
        return build(operator, (x,), {})

    def of_two(x: Operand, y: Operand) -> Tensor:
        return build(operator, (x, y), {})

    built = (of_one, of_two)[count - 1]
    built.__name__, built.__doc__ = operator.name, told
    return built


def _of_numpy(
    name: str, told: str, rules: tuple[Any, op.WorkRule], gradient: op.GradientRule | None = None
) -> Callable[..., Tensor]:
    """List NumPy's function of a name, which gives the type that NumPy gives."""
    function = getattr(np, name)

    def dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
        return function.resolve_dtypes((*dtypes, None))[-1]

    shape, work = rules
    return _built(op.Operator(name, function, shape, dtype, work, gradient), told, function.nin)


# --- arithmetic


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
    _of_numpy(_name, "", (op.broadcast, op.moved), _gradient)


def _joined_work(inputs: op.Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return joined_work(output, itemsize, len(inputs))


@listed(op.broadcast, op.joint_dtype, _joined_work, _added)
def add_n(*parts: Array) -> Any:
    """The sum of several tensors, added up in the order of the arguments."""
    return reduce(np.add, parts)


# --- what NumPy has under the same name: comparisons, logic, functions of one tensor


_CLAIM: Final = (op.broadcast, op.moved)
_LOGIC: Final = (op.broadcast, op.no_work)  # which is the host's
_FUNCTION: Final = (op.first_shape, op.elementwise(functions=1))
_SIMPLE: Final = (op.first_shape, op.elementwise())

for _name in ("less", "less_equal", "greater", "greater_equal"):
    _of_numpy(_name, "", _CLAIM)

equal = _of_numpy("equal", "Whether elements are equal.", _CLAIM)
not_equal = _of_numpy("not_equal", "Whether elements differ.", _CLAIM)
logical_and = _of_numpy("logical_and", "Whether both are true.", _LOGIC)
logical_or = _of_numpy("logical_or", "Whether one of both is true.", _LOGIC)
logical_not = _of_numpy("logical_not", "Whether it is false.", _LOGIC)
exp = _of_numpy(
    "exp", "E to the power of each element.", _FUNCTION, lambda of, slope: [slope * of.output()]
)
log = _of_numpy(
    "log", "The natural logarithm of each element.",
    _FUNCTION, lambda of, slope: [slope / of.input(0)],
)  # fmt: skip
square = _of_numpy(
    "square", "Each element times itself.", _SIMPLE, lambda of, slope: [slope * of.input(0) * 2.0]
)


# --- the choice of elements, and what is handed on


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


@listed(op.broadcast, _chosen_dtype, op.moved, _chosen_back)
def where(condition: Array, x: Array, y: Array) -> Any:
    """Elements of x where the condition is true, else those of y; both are computed."""
    return np.where(condition, x, y)  # pyright: ignore[reportUnknownVariableType]  # of any type


@listed(op.first_shape, op.first_dtype, gradient=lambda of, gradient: [gradient])
def identity(x: Array) -> Any:
    """X itself."""
    return x


@listed(op.first_shape, op.first_dtype, gradient=lambda of, gradient: [None])
def stop_gradient(x: Array) -> Any:
    """X itself, through which no gradient goes."""
    return x


# --- functions that are nodes


def _of_node(node: Any) -> Callable[[Operand], Tensor]:
    """List the function of a node, and the one that pulls gradients back through it."""
    name, operations, passes = node.name, node.operations, node.passes

    def value(x: np.ndarray) -> np.ndarray:
        return node.value(np.atleast_1d(x)).reshape(x.shape)

    def back(y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return node.pulled_back(np.atleast_1d(y), np.atleast_1d(gradient)).reshape(y.shape)

    def slope(of: Any, gradient: Tensor) -> list[Tensor]:
        return [apply(f"{name}_gradient", of.output(), gradient)]

    def dtype(taken: np.dtype[Any]) -> np.dtype[Any]:
        return value(np.zeros((), taken)).dtype

    work = op.elementwise(operations[1], passes=passes[1], arrays=3)
    op.register(op.Operator(f"{name}_gradient", back, op.first_shape, op.first_dtype, work))
    work = op.elementwise(operations[0], passes=passes[0], functions=1)
    made = op.Operator(name, value, op.first_shape, dtype, work, slope)
    return _built(made, node.__doc__, 1)


relu, tanh, sigmoid = map(_of_node, (ReLU("relu"), Tanh("tanh"), Sigmoid("sigmoid")))
