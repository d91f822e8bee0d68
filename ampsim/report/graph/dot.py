"""A model's graph in Graphviz' language, and what its pictures have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ampsim.report.words import plain


@dataclass(frozen=True, slots=True)
class Family:
    """Look of a family: colour, and an outline that tells it apart without colour."""

    label: str  # entry in the legend
    fill: str  # colour of the box
    outline: str  # "box", "round", "hexagon", "double" or "dashed"
    dot_shape: str  # the nearest shape of Graphviz
    line_pt: float  # width of the outline in points


CONTROLLER = Family("controller", "#DDDDDD", "dashed", "octagon", 1.0)
PARAMETERIZED = Family("parameterized", "#F3B95F", "box", "box", 2.2)
PAYLOAD = Family("payload transform", "#CFE6F5", "box", "box", 0.8)
CONTROL_FLOW = Family("control flow", "#A9DCC6", "round", "ellipse", 0.8)
AGGREGATION = Family("aggregation", "#E6D3EC", "hexagon", "hexagon", 0.8)
LOSS = Family("loss", "#F4B5A2", "double", "doubleoctagon", 0.8)
FAMILIES = (CONTROLLER, PARAMETERIZED, PAYLOAD, CONTROL_FLOW, AGGREGATION, LOSS)

_KINDS: dict[str, Family] = {
    "controller": CONTROLLER,
    "linear": PARAMETERIZED, "embedding": PARAMETERIZED, "parameterized": PARAMETERIZED,
    "cond": CONTROL_FLOW, "phi": CONTROL_FLOW, "isu": CONTROL_FLOW, "controlflow": CONTROL_FLOW,
    "concat": AGGREGATION, "split": AGGREGATION, "bcast": AGGREGATION, "ungroup": AGGREGATION,
    "group": AGGREGATION, "replicate": AGGREGATION, "distribute": AGGREGATION,
    "collect": AGGREGATION,
}  # fmt: skip


def family_of(kind: str, *, is_heavy: bool) -> Family:
    """Family of a node: by its kind, else heavy ones are parameterized, others transform payloads.

    >>> family_of("Phi", is_heavy=False).label, family_of("MyCell", is_heavy=True).label
    ('control flow', 'parameterized')
    """
    name = kind.lower().replace("_", "").replace("-", "").replace(" ", "")
    if name in _KINDS:
        return _KINDS[name]
    if is_heavy:
        return PARAMETERIZED
    return LOSS if any(one in name for one in ("loss", "entropy", "error")) else PAYLOAD


Drawable = Any
"""A networkx.MultiDiGraph; networkx has no types of its own."""

_NUMBERED = re.compile(r"(in|out|input|output|copy|part|branch|replica)?[-_ ]?\d*\Z")


@dataclass(frozen=True, slots=True)
class NodePart:
    """A node of the drawing; `lines` is the text in its box, its name first."""

    name: str
    kind: str
    family: Family
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
    family = family_of(kind, is_heavy=bool(values.get("is_heavy", False)))
    return NodePart(name, kind, family, tuple(lines))


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


def dot(graph: Drawable) -> str:
    """`graph` in DOT: node names as labels, ports on the edges' ends, one shape per family.

    Args:
        graph: a networkx.MultiDiGraph with `kind`, `is_heavy` and perhaps `worker` on its nodes,
            `source_port` and `target_port` on its edges.
    """
    parts = parts_of(graph)
    identity = {node.name: f"n{index}" for index, node in enumerate(parts.nodes)}
    lines = [
        f"digraph {_quoted(parts.name or 'graph')} {{",
        "  rankdir=TB;",
        '  node [style=filled, fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=8];',
    ]
    for node in parts.nodes:
        family, label = node.family, "\\n".join(_escaped(line) for line in node.lines)
        lines.append(
            f'  {identity[node.name]} [label="{label}", shape={family.dot_shape}, '
            f'fillcolor="{family.fill}", penwidth={family.line_pt}];'
        )
    for edge in parts.edges:
        ends = f"taillabel={_quoted(edge.source_port)}, headlabel={_quoted(edge.target_port)}"
        lines.append(f"  {identity[edge.source]} -> {identity[edge.target]} [{ends}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """`text` for a quoted string; backslashes are doubled, as Graphviz reads escapes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
