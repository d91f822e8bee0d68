"""Layers and places for the nodes of a graph with loops, drawn from top to bottom.

The steps of layered drawing by Sugiyama, Tagawa and Toda (1981): edges that close a loop are
turned round, each node's layer is its longest way from the start, nodes are ordered within layers
by the mean place of their neighbours and then moved as close to them as their widths allow. Edges
over several layers, loops among them, have cells of their own and so run beside nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import networkx as nx

_NX: Any = nx  # networkx has no types of its own

Edge: TypeAlias = tuple[str, str]
Cell: TypeAlias = str | tuple[int, int]
"""A node's name or, for an edge on its way past a layer, (edge, layer)."""

Neighbours: TypeAlias = dict[Cell, list[Cell]]

_ORDER_SWEEPS = 16  # chosen: orders settle after a few
_PLACE_SWEEPS = 120  # chosen: a pull travels one layer a sweep, to and fro


@dataclass(frozen=True, slots=True)
class Layout:
    """Cells in layers from top to bottom, and their places across."""

    layers: tuple[tuple[Cell, ...], ...]  # the cells of each layer from left to right
    x: Mapping[Cell, float]  # middle of each cell, in the unit of the widths
    ways: tuple[tuple[Cell, ...], ...]  # for each edge the cells from source to target
    loops: tuple[bool, ...]  # for each edge whether it leads back up


def layered(
    nodes: Sequence[str],
    edges: Sequence[Edge],
    width: Callable[[Cell], float],
    headers: Collection[str] = (),
) -> Layout:
    """Layout of `edges` between `nodes`; the `width` of a cell includes the margin around it.

    `headers` are nodes at which loops begin. Ties go by the order of nodes and edges, so the same
    graph is always drawn the same way.
    """
    loops = back_edges(nodes, edges, headers)
    downward = [
        (target, source) if is_loop else (source, target)
        for (source, target), is_loop in zip(edges, loops, strict=True)
    ]
    acyclic = _graph_of(nodes, [edge for edge in downward if edge[0] != edge[1]])
    generations = enumerate(_NX.topological_generations(acyclic))
    depth = {str(node): place for place, of in generations for node in of}
    layers: list[list[Cell]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node]].append(node)
    paths: list[tuple[Cell, ...]] = []
    for index, (upper, lower) in enumerate(downward):
        between: list[Cell] = [(index, at) for at in range(depth[upper] + 1, depth[lower])]
        for at, cell in enumerate(between, depth[upper] + 1):
            layers[at].append(cell)
        paths.append((upper, *between, lower))
    above, below = _neighbours(paths)
    _order(layers, above, below)
    x = _places(layers, above, below, width)
    ways = [path[::-1] if loop else path for path, loop in zip(paths, loops, strict=True)]
    return Layout(tuple(tuple(layer) for layer in layers), x, tuple(ways), tuple(loops))


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
    components = _NX.strongly_connected_components(_graph_of(nodes, edges))
    return [{str(node) for node in component} for component in components if len(component) > 1]


def _graph_of(nodes: Sequence[str], edges: Sequence[Edge]) -> Any:
    graph = _NX.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return graph


def _neighbours(paths: Sequence[Sequence[Cell]]) -> tuple[Neighbours, Neighbours]:
    above: Neighbours = {}
    below: Neighbours = {}
    for path in paths:
        for upper, lower in pairwise(path):
            if upper != lower:
                below.setdefault(upper, []).append(lower)
                above.setdefault(lower, []).append(upper)
    return above, below


def _order(layers: list[list[Cell]], above: Neighbours, below: Neighbours) -> None:
    """Sorts each layer by the mean place of its neighbours, sweeping down and up in turn."""
    place: dict[Cell, float] = {}
    for layer in layers:
        _number(layer, place)
    for sweep in range(_ORDER_SWEEPS):
        neighbours, walk = (above, layers) if sweep % 2 == 0 else (below, layers[::-1])
        for layer in walk:
            wish = {cell: _mean(place, neighbours.get(cell, []), place[cell]) for cell in layer}
            layer.sort(key=lambda cell: wish[cell])
            _number(layer, place)


def _number(layer: Sequence[Cell], place: dict[Cell, float]) -> None:
    """Places of a layer's cells counted from its middle."""
    for index, cell in enumerate(layer):
        place[cell] = index - (len(layer) - 1) / 2


def _places(
    layers: Sequence[Sequence[Cell]],
    above: Neighbours,
    below: Neighbours,
    width: Callable[[Cell], float],
) -> dict[Cell, float]:
    """Pulls every cell towards its neighbours without changing orders or overlapping widths."""
    x: dict[Cell, float] = {}
    for layer in layers:
        x.update(_apart(layer, dict.fromkeys(layer, 0.0), width))
    for sweep in range(_PLACE_SWEEPS):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            wish = {
                cell: _mean(x, above.get(cell, []) + below.get(cell, []), x[cell]) for cell in layer
            }
            x.update(_apart(layer, wish, width))
    return x


def _apart(
    layer: Sequence[Cell], wish: Mapping[Cell, float], width: Callable[[Cell], float]
) -> dict[Cell, float]:
    """Places nearest to `wish` in the least squares at which cells do not overlap.

    With the widths to the left taken off, this is isotonic regression: neighbours that would be in
    the wrong order are pooled at their mean.
    """
    offset: list[float] = []
    total = 0.0
    for index, cell in enumerate(layer):
        total += (width(layer[index - 1]) + width(cell)) / 2 if index else 0.0
        offset.append(total)
    pools: list[tuple[float, int]] = []
    for cell, shift in zip(layer, offset, strict=True):
        value, size = wish[cell] - shift, 1
        while pools and pools[-1][0] >= value:
            other, count = pools.pop()
            value, size = (value * size + other * count) / (size + count), size + count
        pools.append((value, size))
    spread = [value for value, size in pools for _ in range(size)]
    return {cell: spread[i] + offset[i] for i, cell in enumerate(layer)}


def _mean(place: Mapping[Cell, float], cells: Sequence[Cell], otherwise: float) -> float:
    return sum(place[cell] for cell in cells) / len(cells) if cells else otherwise
