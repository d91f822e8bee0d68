"""The operators, a family a file. Each is listed once, and by being listed has every test."""

from ampsim.dataflow.operators import (
    arithmetic,
    choice,
    comparison,
    elementwise,
    function,
    loss,
    matrix,
    shape,
    stack,
    tensor_array,
)

__all__ = [
    "arithmetic", "choice", "comparison", "elementwise", "function", "loss", "matrix", "shape",
    "stack", "tensor_array",
]  # fmt: skip
