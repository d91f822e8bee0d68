"""In-graph control flow: the names with which programs are written, ``from ampsim import flow``."""

from ampsim.dataflow.construct import cond, device, foldl, foldr, map_fn, scan, while_loop
from ampsim.dataflow.construct import input_tensor as input
from ampsim.dataflow.gradient import gradients
from ampsim.dataflow.graph import FlowGraph, Tensor, constant
from ampsim.dataflow.operators.elements import (
    add_n,
    equal,
    exp,
    identity,
    log,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    relu,
    sigmoid,
    square,
    stop_gradient,
    tanh,
    where,
)
from ampsim.dataflow.operators.rows import (
    any,
    argmax,
    count_right,
    matmul,
    numpy_function,
    permute,
    places,
    softmax,
    softmax_cross_entropy,
    top,
    transpose,
)
from ampsim.dataflow.operators.shape import (
    cast,
    concat,
    cut,
    expand,
    length,
    pick,
    reshape,
    scatter,
    shape_of,
    sum,
    zeros,
)
from ampsim.dataflow.program import Objective, Program, embedding, linear, lstm
from ampsim.dataflow.session import PARALLEL_ITERATIONS, FlowResult, run
from ampsim.dataflow.structure import TensorArray
from ampsim.dataflow.variable import (
    Generator,
    assign,
    assign_rows,
    group,
    minimize,
    set_variables,
    variable,
    variables,
)

__all__ = [
    "PARALLEL_ITERATIONS", "FlowGraph", "FlowResult", "Generator", "Objective", "Program", "Tensor",
    "TensorArray", "add_n", "any", "argmax", "assign", "assign_rows", "cast", "concat", "cond",
    "constant", "count_right", "cut", "device", "embedding", "equal", "exp", "expand", "foldl",
    "foldr", "gradients", "group", "identity", "input", "length", "linear", "log", "logical_and",
    "logical_not", "logical_or", "lstm", "map_fn", "matmul", "minimize", "not_equal",
    "numpy_function", "permute", "pick", "places", "relu", "reshape", "run", "scan", "scatter",
    "set_variables", "shape_of", "sigmoid", "softmax", "softmax_cross_entropy", "square",
    "stop_gradient", "sum", "tanh", "top", "transpose", "variable", "variables", "where",
    "while_loop", "zeros",
]  # fmt: skip
