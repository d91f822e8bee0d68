"""What a graph starts from, inputs and constants, and what decides in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ampsim.arguments import checked
from ampsim.dataflow.graph import INPUT, Node, Tensor, open_graph, output_of
from ampsim.dataflow.operator import BOOL
from ampsim.errors import GraphError, OptionError


@checked
def input_tensor(name: str, shape: Sequence[int | None] = (), dtype: Any = "float64") -> Tensor:
    """A tensor whose value is given when the graph runs.

    Raises:
        OptionError: the name is taken.
    """
    graph = open_graph()
    if any(node.name == name for node in graph.nodes if node.operator is INPUT):
        raise OptionError(f"input {name!r} is there already; give another name")
    with graph.inside(graph.root):
        node = Node(INPUT, [], {"name": name}, graph)
    return output_of(node, tuple(shape), np.dtype(dtype), graph.root)


def constant(value: Any, dtype: Any = None) -> Tensor:
    """A tensor that is always the same."""
    return open_graph().constant(value, None if dtype is None else np.dtype(dtype))


def require_predicate(tensor: Tensor, what: str) -> Tensor:
    """A predicate is one truth value.

    Raises:
        GraphError: it is not.
    """
    if tensor.dtype != BOOL or tensor.shape not in ((), None):
        raise GraphError(
            f"{tensor.node.told}: {what} must be one truth value, got {tensor.dtype} of shape "
            f"{tensor.shape}; compare, as in x < y"
        )
    return tensor
