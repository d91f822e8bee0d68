"""Edges that close a loop of a directed graph: those back to where the loop is entered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import networkx as nx

Edge = tuple[str, str]


def back_edges(
    nodes: Sequence[str], edges: Sequence[Edge], headers: Collection[str] = ()
) -> list[bool]:
    """For each edge whether it leads from inside a loop back to the loop's header.

    Without these edges the graph has no loop. A loop's header is a node at which it is entered, one
    of `headers` if it can be, else the first in `nodes`; loops inside are treated likewise (the
    loop nesting of Havlak 1997).

    >>> back_edges(["phi", "cond"], [("phi", "cond"), ("cond", "phi")])
    [False, True]
    """
    is_back = [source == target for source, target in edges]
    rank = {node: (node not in headers, index) for index, node in enumerate(nodes)}
    while True:
        open_edges = [index for index, closed in enumerate(is_back) if not closed]
        loops = _loops(nodes, [edges[index] for index in open_edges])
        if not loops:
            return is_back
        for loop in loops:
            entered = {b for a, b in edges if a not in loop and b in loop} or loop
            header = min(entered, key=lambda node: rank[node])
            for index in open_edges:
                if edges[index][1] == header and edges[index][0] in loop:
                    is_back[index] = True


def _loops(nodes: Sequence[str], edges: Sequence[Edge]) -> list[set[str]]:
    """Strongly connected components of two nodes and more."""
    networkx: Any = nx
    graph = networkx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    components = networkx.strongly_connected_components(graph)
    return [{str(node) for node in component} for component in components if len(component) > 1]
