"""A model's graph in Graphviz' language, which lays it out from top to bottom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ampsim.report.words import plain


class Family(NamedTuple):
    """Look of a family of nodes: a colour, and a shape that tells it apart without colour."""

    fill: str  # colour of the box
    shape: str  # of Graphviz
    line_pt: float  # width of the outline in points


CONTROLLER: Final = Family("#DDDDDD", "octagon", 1.0)
PARAMETERIZED: Final = Family("#F3B95F", "box", 2.2)
PAYLOAD: Final = Family("#CFE6F5", "box", 0.8)
CONTROL_FLOW: Final = Family("#A9DCC6", "ellipse", 0.8)
AGGREGATION: Final = Family("#E6D3EC", "hexagon", 0.8)
LOSS: Final = Family("#F4B5A2", "doubleoctagon", 0.8)

_KINDS: Final = {
    "controller": CONTROLLER,
    **dict.fromkeys(("cond", "phi", "isu"), CONTROL_FLOW),
    **dict.fromkeys(
        ("concat", "split", "bcast", "ungroup", "group", "replicate", "distribute", "collect"),
        AGGREGATION,
    ),
}
_NUMBERED: Final = re.compile(r"(in|out|input|output|copy|part|branch|replica)?[-_ ]?\d*\Z")


def family_of(kind: str, *, is_heavy: bool) -> Family:
    """Family of a node: by its kind, else heavy ones are parameterized, others transform payloads.

    >>> family_of("Phi", is_heavy=False).shape, family_of("MyCell", is_heavy=True).shape
    ('ellipse', 'box')
    """
    name = kind.lower()
    if name in _KINDS:
        return _KINDS[name]
    if is_heavy:
        return PARAMETERIZED
    return LOSS if any(one in name for one in ("loss", "entropy", "error")) else PAYLOAD


def dot(graph: Any) -> str:
    """`graph` in DOT: node names as labels, ports on the edges' ends, one shape per family.

    A port's name stands where its node has several, unless it is but a number or the neighbour's.

    Args:
        graph: a networkx.MultiDiGraph with `kind` and `is_heavy` on its nodes, `source_port` and
            `target_port` on its edges, as `Graph.to_networkx` gives.
    """
    identity = {name: f"n{index}" for index, name in enumerate(graph.nodes)}
    lines = [
        f"digraph {_quoted(plain(graph.graph.get('name', '')) or 'graph')} {{",
        "  rankdir=TB;",
        '  node [style=filled, fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=8];',
    ]
    for name, values in graph.nodes(data=True):
        kind = str(values["kind"])
        shown = [plain(name, 32), *([] if _letters(kind) in _letters(name) else [plain(kind, 32)])]
        fill, shape, line_pt = family_of(kind, is_heavy=values["is_heavy"])
        label = "\\n".join(map(_escaped, shown))
        lines.append(
            f'  {identity[name]} [label="{label}", shape={shape}, fillcolor="{fill}", '
            f"penwidth={line_pt}];"
        )
    edges = list(graph.edges(data=True))
    outputs = [(source, plain(values["source_port"], 20)) for source, _, values in edges]
    inputs = [(target, plain(values["target_port"], 20)) for _, target, values in edges]
    for i, (source, target, _) in enumerate(edges):
        tail, head = _port(outputs, i, target), _port(inputs, i, source)
        ends = f"taillabel={_quoted(tail)}, headlabel={_quoted(head)}"
        lines.append(f"  {identity[source]} -> {identity[target]} [{ends}];")
    return "\n".join([*lines, "}"]) + "\n"


def _port(ends: Sequence[tuple[str, str]], index: int, neighbour: str) -> str:
    """A port's name where it adds something to the names of nodes, else ""."""
    node, port = ends[index]
    is_only = len({other for name, other in ends if name == node}) == 1
    return "" if is_only or _NUMBERED.match(port) or port == plain(neighbour, 20) else port


def _letters(text: str) -> str:
    return re.sub(r"[^a-z]", "", text.lower())


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """`text` for a quoted string; backslashes are doubled, as Graphviz reads escapes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
