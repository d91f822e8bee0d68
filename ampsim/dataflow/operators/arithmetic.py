"""Sums, differences, products and quotients of elements, broadcast as NumPy does it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import Operator, Sizes, broadcast, joint_dtype, register
from ampsim.ir.work import Work, joined_work


def _work(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    return joined_work(output, itemsize, max(len(inputs), 2))


def _listed(name: str, kernel: Any, gradient: Any) -> Operator:
    return register(Operator(name, kernel, broadcast, joint_dtype, _work, gradient))


def _added(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [operator.reduced(gradient, place) for place in range(len(operator.node.inputs))]


def _subtracted(operator: Any, gradient: Tensor) -> list[Any]:
    second = operator.reduced(-gradient, 1) if operator.is_wanted(1) else None
    return [operator.reduced(gradient, 0), second]


def _multiplied(operator: Any, gradient: Tensor) -> list[Any]:
    return [
        operator.reduced(gradient * operator.input(1 - place), place)
        if operator.is_wanted(place)
        else None
        for place in (0, 1)
    ]


def _divided(operator: Any, gradient: Tensor) -> list[Any]:
    first = second = None
    if operator.is_wanted(0):
        first = operator.reduced(gradient / operator.input(1), 0)
    if operator.is_wanted(1):
        back = -(gradient * operator.output() / operator.input(1))
        second = operator.reduced(back, 1)
    return [first, second]


def _negated(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [-gradient]


def _total(*parts: np.ndarray) -> np.ndarray:
    return reduce(np.add, parts)


_listed("add", np.add, _added)
_listed("subtract", np.subtract, _subtracted)
_listed("multiply", np.multiply, _multiplied)
_listed("divide", np.true_divide, _divided)
_listed("negative", np.negative, _negated)
_listed("add_n", _total, _added)
_listed("floor_divide", np.floor_divide, None)
_listed("remainder", np.remainder, None)


def add_n(*parts: Operand) -> Tensor:
    """The sum of several tensors, added up in the order of the arguments."""
    return apply("add_n", *parts)
