"""Nodes and edges of a networkx graph, typed, with the words of the drawing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ampsim.report.words import plain

Drawable = Any
"""A networkx.MultiDiGraph; networkx has no types of its own."""

_NUMBERED = re.compile(r"(in|out|input|output|copy|part|branch|replica)?[-_ ]?\d*\Z")


@dataclass(frozen=True, slots=True)
class NodePart:
    """A node of the drawing; `lines` is the text in its box, its name first."""

    name: str
    kind: str
    is_heavy: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EdgePart:
    """An edge of the drawing; a port's name is "" where it adds nothing to the node's name."""

    source: str
    target: str
    source_port: str
    target_port: str


@dataclass(frozen=True, slots=True)
class GraphParts:
    """Nodes and edges of the drawing, in the graph's own order."""

    name: str
    nodes: tuple[NodePart, ...]
    edges: tuple[EdgePart, ...]


def parts_of(graph: Drawable) -> GraphParts:
    """Nodes and edges of `graph`; attributes that are missing are read as empty."""
    nodes = tuple(_node(str(name), values) for name, values in graph.nodes(data=True))
    ends = [(str(a), str(b), values) for a, b, values in graph.edges(data=True)]
    outputs = [(source, _port(values, "source_port")) for source, _, values in ends]
    inputs = [(target, _port(values, "target_port")) for _, target, values in ends]
    edges = tuple(
        EdgePart(source, target, _if_new(outputs, i, target), _if_new(inputs, i, source))
        for i, (source, target, _) in enumerate(ends)
    )
    return GraphParts(plain(graph.graph.get("name", "")), nodes, edges)


def _node(name: str, values: dict[str, Any]) -> NodePart:
    kind, worker = str(values.get("kind", "")), values.get("worker")
    lines = [plain(name, 32)]
    if kind and _letters(kind) not in _letters(name):
        lines.append(plain(kind, 32))
    if worker is not None:
        lines.append(f"worker {int(worker)}")
    return NodePart(name, kind, bool(values.get("is_heavy", False)), tuple(lines))


def _port(values: dict[str, Any], which: str) -> str:
    """A port's name, "" if it is only a number."""
    name = plain(values.get(which, ""), 20)
    return "" if _NUMBERED.match(name) else name


def _if_new(ends: list[tuple[str, str]], index: int, neighbour: str) -> str:
    """A port's name where its node has several, and it differs from the neighbour's name."""
    node, port = ends[index]
    is_one_of_several = len({other for name, other in ends if name == node}) > 1
    return port if is_one_of_several and port != plain(neighbour, 20) else ""


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())
