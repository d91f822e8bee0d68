"""Which worker hosts which node (paper, Section 3.1: affinitization)."""

from __future__ import annotations

import numpy as np

from ampsim.ir import Graph


def paper_placement(graph: Graph, workers: int, generator: np.random.Generator) -> list[int]:
    """Place the h-th heavy node on worker h mod W, light nodes at random over the rest.

    Heavy are the nodes with parameters ("all parameterized operations are affinitized on
    individual workers", Appendix B.2). Where heavy nodes take every worker there is no rest; each
    light node then shares the worker of the node that feeds it, as a stage of a pipeline would.

    Args:
        graph: a verified graph.
        workers: W.
        generator: decides where light nodes go.

    Returns:
        A worker for each node, in the order of ``graph.nodes``; -1 for the controller, which lives
        on the host.
    """
    placement = [-1] * len(graph.nodes)
    for h, node in enumerate(graph.parameterized):
        placement[graph.index(node)] = h % workers
    rest = range(len(graph.parameterized), workers)
    if rest:
        for index in range(1, len(placement)):
            if placement[index] < 0:
                placement[index] = int(generator.integers(rest.start, rest.stop))
    else:
        _share_with_producers(graph, placement)
    return placement


def _share_with_producers(graph: Graph, placement: list[int]) -> None:
    """Walk along the wires from the heavy nodes; what none of them feeds goes to worker 0."""
    frontier = [index for index, worker in enumerate(placement) if worker >= 0]
    while frontier:
        following: list[int] = []
        for index in frontier:
            for target, _port in graph.targets[index]:
                if placement[target] < 0:
                    placement[target] = placement[index]
                    following.append(target)
        frontier = following
    for index in range(1, len(placement)):
        placement[index] = max(placement[index], 0)
