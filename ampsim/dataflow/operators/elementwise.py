"""Functions of each element by itself; those that are nodes, too, compute and cost the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import (
    Operator,
    elementwise,
    first_dtype,
    first_shape,
    no_work,
    register,
)
from ampsim.nodes import ReLU, Sigmoid, Tanh

_NODES: Final = {"relu": ReLU("relu"), "tanh": Tanh("tanh"), "sigmoid": Sigmoid("sigmoid")}


def _listed(name: str, kernel: Any, gradient: Any, work: Any) -> None:
    register(Operator(name, kernel, first_shape, first_dtype, work, gradient))


def _of_node(name: str) -> None:
    """List the function of a node, and the one that pulls gradients back through it."""
    node = _NODES[name]
    operations, passes = node.operations, node.passes

    def gradient(operator: Any, gradient: Tensor) -> list[Tensor]:
        return [apply(f"{name}_gradient", operator.output(), gradient)]

    def value(x: np.ndarray) -> np.ndarray:
        return node.value(np.atleast_1d(x)).reshape(x.shape)

    def back(y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return node.pulled_back(np.atleast_1d(y), np.atleast_1d(gradient)).reshape(y.shape)

    _listed(name, value, gradient, elementwise(operations[0], passes=passes[0], functions=1))
    _listed(f"{name}_gradient", back, None, elementwise(operations[1], passes=passes[1]))


for _name in _NODES:
    _of_node(_name)


def _exp_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [gradient * operator.output()]


def _log_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [gradient / operator.input(0)]


def _square_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [gradient * operator.input(0) * 2.0]


def _same(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [gradient]


def _stopped(operator: Any, gradient: Tensor) -> list[None]:
    return [None]


def _itself(x: np.ndarray) -> np.ndarray:
    return x


_listed("exp", np.exp, _exp_back, elementwise(functions=1))
_listed("log", np.log, _log_back, elementwise(functions=1))
_listed("square", np.square, _square_back, elementwise())
_listed("identity", _itself, _same, no_work)
_listed("stop_gradient", _itself, _stopped, no_work)


def relu(x: Operand) -> Tensor:
    """max(x, 0)."""
    return apply("relu", x)


def tanh(x: Operand) -> Tensor:
    """The hyperbolic tangent."""
    return apply("tanh", x)


def sigmoid(x: Operand) -> Tensor:
    """The logistic function 1 / (1 + e⁻ˣ)."""
    return apply("sigmoid", x)


def exp(x: Operand) -> Tensor:
    """E to the power of each element."""
    return apply("exp", x)


def log(x: Operand) -> Tensor:
    """The natural logarithm of each element."""
    return apply("log", x)


def square(x: Operand) -> Tensor:
    """Each element times itself."""
    return apply("square", x)


def identity(x: Operand) -> Tensor:
    """X itself."""
    return apply("identity", x)


def stop_gradient(x: Operand) -> Tensor:
    """X itself, through which no gradient goes."""
    return apply("stop_gradient", x)
