"""Expressions of a fully connected layer, as the design notes' case study names them.

The cost of a matrix product is that of AMPNet's Appendix C, as everywhere in this package.
"""

from __future__ import annotations

import numpy as np

from ampsim.dependency.array import Array, require_array
from ampsim.dependency.expression import Expression
from ampsim.errors import OptionError
from ampsim.ir.work import Work


def fullc_forward(data: Array, weight: Array) -> Expression:
    """The layer's output, (k, d_in) @ (d_in, d_out). The weight remembers what it was applied to.

    Raises:
        OptionError: the shapes do not fit.
    """
    rows, width = _matrix(data)
    weight_rows, outputs = _matrix(weight)
    if width != weight_rows:
        raise OptionError(
            f"{data.name} @ {weight.name} must have as many columns as rows, got {data.shape} and "
            f"{weight.shape}"
        )
    weight.layer_input = data
    return Expression(
        "forward", (data, weight), np.matmul, (rows, outputs), _product(data, weight, outputs),
        rows, width * outputs,
    )  # fmt: skip


def fullc_backward(gradient: Array, weight: Array) -> tuple[Expression, Expression]:
    """The gradients of the layer's input and of its weight, from that of its output.

    They are two operations, as in Appendix C; the first layer needs none of its input, and pushes
    none where nobody asks for it. The layer's input is what the weight's last forward step got.

    Raises:
        OptionError: the weight had no forward step.
    """
    data = require_array(weight, "weight").layer_input
    require_array(gradient, "gradient")
    if data is None:
        raise OptionError(f"{weight.name} has had no forward step; push fullc_forward first")
    rows, width = _matrix(data)
    outputs = _matrix(weight)[1]
    work, size = _product(data, weight, outputs), width * outputs

    def input_gradient(gradient: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return gradient @ weight.T

    def weight_gradient(gradient: np.ndarray, data: np.ndarray) -> np.ndarray:
        return data.T @ gradient

    to_data = Expression(
        "backward", (gradient, weight), input_gradient, (rows, width), work, rows, size
    )
    to_weight = Expression(
        "gradient", (gradient, data), weight_gradient, (width, outputs), work, rows, size
    )
    return to_data, to_weight


def loss_gradient(output: Array, label: Array) -> Expression:
    """The gradient of the summed softmax cross-entropy: softmax(output) less 1 at each label.

    A light operation: it moves bytes and counts no FLOP.

    Raises:
        OptionError: the shapes do not fit.
    """
    rows, classes = _matrix(output)
    if require_array(label, "label").known_shape != (rows,):
        raise OptionError(
            f"{label.name} must hold a class for each of {rows} rows, got shape {label.shape}"
        )

    def compute(output: np.ndarray, label: np.ndarray) -> np.ndarray:
        shares = np.exp(output - output.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(shares)), label.astype(np.int64)] -= 1.0
        return shares

    work = Work(bytes=2 * output.size_bytes)
    return Expression("loss", (output, label), compute, (rows, classes), work)


def _matrix(array: Array) -> tuple[int, int]:
    shape = require_array(array, "what a layer uses").known_shape
    if len(shape) != 2:
        raise OptionError(f"{array.name} must be a matrix, got shape {shape}")
    return shape[0], shape[1]


def _product(data: Array, weight: Array, outputs: int) -> Work:
    """What each of a layer's three products costs: all have one size."""
    rows, width = _matrix(data)
    element_bytes = data.context.dtype.itemsize
    weight_bytes = width * outputs * element_bytes
    moved_bytes = (rows * width + rows * outputs) * element_bytes + weight_bytes
    return Work(flop=2 * rows * width * outputs, bytes=moved_bytes, weight_bytes=weight_bytes)
