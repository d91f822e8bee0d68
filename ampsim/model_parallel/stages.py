"""Stages: the nodes with parameters of a graph that is a chain, in order."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

from ampsim.errors import OptionError
from ampsim.ir import Cond, Graph
from ampsim.nodes import Collect, Distribute, Group, Replicate, Ungroup

MANY = (Cond, Distribute, Collect, Group, Replicate, Ungroup)
"""Nodes after which an instance may pass a stage never, or several times."""


REMEDY: Final = "take amp, pipeline or gpipe"


def stages_of(graph: Graph, schedule: str, remedy: str = REMEDY) -> list[int]:
    """Return the indices of the nodes with parameters, along the chain that they form.

    A chain has no loop, and every instance passes each of its stages once, in the same order. Nodes
    without parameters may lie between stages, and go around them.

    Args:
        graph: a verified graph.
        schedule: name of what asks, for messages.
        remedy: what to do where the graph is no chain, for messages.

    Raises:
        OptionError: the graph is no chain.
    """
    asks = schedule, remedy
    for node in graph.nodes:
        if isinstance(node, MANY) or not node.waits_for_all:
            raise _no_chain(graph, asks, f"it loops or branches at {node.describe()}")
        if node.is_parameterized and (len(node.inputs), len(node.outputs)) != (1, 1):
            raise _no_chain(graph, asks, f"{node.describe()} has several inputs or outputs")
    stages = [i for i in _in_order(graph) if graph.nodes[i].is_parameterized]
    for first, second in pairwise(stages):
        if second not in _after(graph, first):
            names = f"{graph.nodes[first].name} and {graph.nodes[second].name}"
            raise _no_chain(graph, asks, f"{names} lie on different branches")
    if not stages:
        raise _no_chain(graph, asks, "it has no node with parameters")
    return stages


def _no_chain(graph: Graph, asks: tuple[str, str], what: str) -> OptionError:
    schedule, remedy = asks
    return OptionError(
        f"{schedule} needs a chain of stages, but {graph.name} is none: {what}; {remedy}"
    )


def _in_order(graph: Graph) -> list[int]:
    """Each node after all that feed it; only loops through a `Phi` could prevent that."""
    missing = [len(sources) for sources in graph.sources]
    ready = deque(index for index, count in enumerate(missing) if not count)
    order: list[int] = []
    while ready:
        order.append(ready.popleft())
        for target, _port in graph.targets[order[-1]]:
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    assert len(order) == len(graph.nodes), "a loop without a Phi"
    return order


def _after(graph: Graph, start: int) -> set[int]:
    found, ahead = set[int](), [start]
    while ahead:
        for target, _port in graph.targets[ahead.pop()]:
            if target not in found:
                found.add(target)
                ahead.append(target)
    return found
