"""A graph in DOT, the language of Graphviz."""

from __future__ import annotations

from ampsim.report.graph.families import family_of
from ampsim.report.graph.parts import Drawable, parts_of


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
        family = family_of(node.kind, is_heavy=node.is_heavy)
        label = "\\n".join(_escaped(line) for line in node.lines)
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
