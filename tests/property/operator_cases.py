"""An example of every operator, small, or as large as one likes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ampsim.dataflow.operator import OPERATORS
from ampsim.dataflow.variable import DrawnRuns

STATIC = {"static": None}
RESOURCES = {name for name, one in OPERATORS.items() if one.is_stateful}


Cases: TypeAlias = dict[str, tuple[list[Any], dict[str, Any]]]
"""Inputs and attributes, by operator."""


def cases(n: int) -> Cases:
    """Those of every operator but those of resources; matrices are (3n, 4n)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * n, 4 * n)) + 3.0
    label = np.resize([0, 4 * n - 1, 1], 3 * n)
    return _of_elements(x, label) | _of_rows(n, x, label)


def _of_elements(x: np.ndarray, label: np.ndarray) -> Cases:
    drawn = {"held": DrawnRuns("dice"), "draw": 1, "shape": x.shape}
    return {
        "add": ([x, x[0]], {}),
        "subtract": ([x, x[:, :1]], {}),
        "multiply": ([x, x[0]], {}),
        "divide": ([x[0], x], {}),
        "negative": ([x], {}),
        "add_n": ([x, x + 1, x + 2], {}),
        "floor_divide": ([label, 2], {}),
        "remainder": ([label, 2], {}),
        **{name: ([x, x[0]], {}) for name in ("less", "less_equal", "greater", "greater_equal")},
        **{name: ([label, 3], {}) for name in ("equal", "not_equal")},
        **{name: ([label > 0, label > 1], {}) for name in ("logical_and", "logical_or")},
        "logical_not": ([label > 0], {}),
        "where": ([x > 3, x, x[0]], {}),
        "argmax": ([x], {"axis": 0}),
        "random": ([7, 0], drawn),
        "integers": ([7, 0, 6], drawn),
        "numpy_function": (
            [x, label],
            {"function": lambda x, k: x.sum(1) * k, "shape": (len(x),), "dtype": np.dtype(float)},
        ),
        **{
            name: ([x - 3.01], {})
            for name in ("relu", "tanh", "sigmoid", "exp", "square", "identity", "stop_gradient")
        },
        **{
            f"{name}_gradient": ([x, x / 2], {})
            for name in ("relu", "tanh", "sigmoid")
        },
        "log": ([abs(x) + 1], {}),
        "cast": ([x], {"dtype": "float32"}),
    }  # fmt: skip


def _of_rows(n: int, x: np.ndarray, label: np.ndarray) -> Cases:
    return {
        "matmul": ([x, x.T], {}),
        "transpose": ([x], {}),
        "permute": ([x], {"axes": (1, 0)}),
        "shape_of": ([x], {}),
        "length": ([x], {"axis": 1}),
        "filled": ([np.array([2 * n, 3 * n])], {"value": 1.0, "dtype": np.dtype(float), **STATIC}),
        "broadcast_to": ([x[0], np.array(x.shape)], STATIC),
        "sum_to": ([x, np.array([3 * n, 1])], STATIC),
        "reshape_to": ([x, np.array([2 * n, 6 * n])], STATIC),
        "sum": ([x], {"axis": 1}),
        "expand": ([x], {"axis": -1}),
        "concat": ([x, x[:, : 2 * n]], {"axis": 1}),
        "part_of": (
            [x, np.array([3 * n, n]), np.array([3 * n, 3 * n])], {"axis": 1, "place": 1, **STATIC},
        ),
        "cut": ([x], {"first": n, "last": 3 * n, "axis": 1}),
        "pad_to": ([x, np.array([3 * n, 6 * n])], {"first": n, "axis": 1, **STATIC}),
        "pick": ([x, np.array([2, 0, 2])], {}),
        "scatter_to": ([x, np.resize([2, 0, 2], 3 * n), np.array([5 * n, 4 * n])], STATIC),
        "softmax": ([x], {}),
        "softmax_gradient": ([x / 10, x], {}),
        "top": ([x], {"count": 2}),
        "any": ([label > 2], {}),
        "places": ([label > 0], {}),
        "softmax_cross_entropy": ([x, label], {}),
        "count_right": ([x, label], {}),
        "softmax_cross_entropy_gradient": ([x, label, 2.0], {}),
    }  # fmt: skip
