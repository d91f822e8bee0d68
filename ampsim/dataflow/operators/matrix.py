"""Products of matrices, which Appendix C of AMPNet charges, and transposes, which are views."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampsim.dataflow.graph import Operand, Tensor, apply
from ampsim.dataflow.operator import Operator, Shape, Sizes, joint_dtype, no_work, register
from ampsim.ir import Work


def _product_shape(x: Shape, w: Shape) -> Shape:
    fits = len(x) == 2 and len(w) == 2 and (x[1] == w[0] or None in (x[1], w[0]))
    if not fits:
        raise ValueError("(rows, d_in) and (d_in, d_out) are expected")
    return x[0], w[1]


def _product_work(inputs: Sizes, output: tuple[int, ...], itemsize: int) -> Work:
    (rows, d_in), (_d_in, d_out) = inputs
    elements = rows * d_in + d_in * d_out + rows * d_out
    return Work(2 * rows * d_in * d_out, itemsize * elements)


def _product_back(operator: Any, gradient: Tensor) -> list[Any]:
    first = second = None
    if operator.is_wanted(0):
        first = matmul(gradient, transpose(operator.input(1)))
    if operator.is_wanted(1):
        second = matmul(transpose(operator.input(0)), gradient)
    return [first, second]


def _turned_shape(x: Shape) -> Shape:
    if len(x) != 2:
        raise ValueError("(rows, columns) is expected")
    return x[1], x[0]


def _turned_back(operator: Any, gradient: Tensor) -> list[Tensor]:
    return [transpose(gradient)]


register(Operator("matmul", np.matmul, _product_shape, joint_dtype, _product_work, _product_back))
register(Operator("transpose", np.transpose, _turned_shape, joint_dtype, no_work, _turned_back))


def matmul(x: Operand, w: Operand) -> Tensor:
    """The product of two matrices."""
    return apply("matmul", x, w)


def transpose(x: Operand) -> Tensor:
    """Rows and columns exchanged."""
    return apply("transpose", x)
