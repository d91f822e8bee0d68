"""A graph as a picture from top to bottom, as the paper's Figure 2."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Polygon, Rectangle
from matplotlib.path import Path

from ampsim.report.graph.dot import (
    FAMILIES,
    Drawable,
    EdgePart,
    Family,
    GraphParts,
    NodePart,
    parts_of,
)
from ampsim.report.graph.layout import Cell, Layout, layered
from ampsim.report.style import FAINT_INK, INK, Axes, styled, text_width_pt
from ampsim.report.words import plain

# Lengths in inches; chosen by eye.
_FONT_PT, _SMALL_PT, _PORT_PT = 9.0, 7.0, 6.5
_LAYER_IN, _GAP_IN, _LANE_IN, _MARGIN_IN = 0.92, 0.3, 0.26, 0.25
_LEGEND_ROW_IN, _LEGEND_COLUMN_IN = 0.24, 1.6
_LOOP_INK = "#B03A2E"


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """Nodes and edges with their places; y grows upwards, lengths in inches."""

    parts: GraphParts
    layout: Layout
    size: dict[str, tuple[float, float]]
    depth: dict[Cell, int]

    def middle(self, cell: Cell) -> tuple[float, float]:
        """Middle of a cell."""
        return self.layout.x[cell], -self.depth[cell] * _LAYER_IN


@styled
def draw_graph(graph: Drawable) -> Figure:
    """`graph` from top to bottom; edges that close a loop are red, dashed, and lead back up.

    Args:
        graph: a networkx.MultiDiGraph with `kind`, `is_heavy` and perhaps `worker` on its nodes,
            `source_port` and `target_port` on its edges.
    """
    picture = _place(parts_of(graph))
    figure, axes = _canvas(picture)
    for index, edge in enumerate(picture.parts.edges):
        _draw_edge(axes, picture, index, edge)
    for node in picture.parts.nodes:
        _draw_node(axes, picture, node)
    return figure


def _place(parts: GraphParts) -> GraphPicture:
    size = {node.name: _size(node, parts.edges) for node in parts.nodes}

    def width(cell: Cell) -> float:
        return size[cell][0] + _GAP_IN if isinstance(cell, str) else _LANE_IN

    edges = [(edge.source, edge.target) for edge in parts.edges]
    headers = [node.name for node in parts.nodes if node.kind.lower() == "phi"]
    layout = layered([node.name for node in parts.nodes], edges, width, headers)
    depth = {cell: index for index, layer in enumerate(layout.layers) for cell in layer}
    return GraphPicture(parts, layout, size, depth)


def _size(node: NodePart, edges: tuple[EdgePart, ...]) -> tuple[float, float]:
    """Width and height of a node that hold its words, and its ports' names beside each other."""
    words_pt = [text_width_pt(node.lines[0], _FONT_PT)]
    words_pt += [text_width_pt(line, _SMALL_PT) for line in node.lines[1:]]
    outputs = [edge.source_port for edge in edges if edge.source == node.name]
    inputs = [edge.target_port for edge in edges if edge.target == node.name]
    ports_pt = [
        len(names) * (max(text_width_pt(name, _PORT_PT) for name in names) + 8.0)
        for names in (outputs, inputs)
        if any(names)
    ]
    height_in = 0.32 + 0.13 * (len(node.lines) - 1)
    return max(0.7, (max(words_pt) + 22.0) / 72.0, *(pt / 72.0 for pt in ports_pt)), height_in


def _canvas(picture: GraphPicture) -> tuple[Any, Axes]:
    left, right = _extent(picture)
    used = [node.family for node in picture.parts.nodes]
    families = [family for family in FAMILIES if family in used]
    wide = max(right - left + 2 * _MARGIN_IN, 2 * _LEGEND_COLUMN_IN)
    columns = max(1, min(len(families), int(wide / _LEGEND_COLUMN_IN)))
    legend_in = _LEGEND_ROW_IN * -(-len(families) // columns) + 0.1
    title_in = 0.25 if picture.parts.name else 0.0
    drawn_in = max(1, len(picture.layout.layers)) * _LAYER_IN
    tall = drawn_in + legend_in + title_in
    figure: Any = Figure(figsize=(wide, tall), facecolor="white")
    axes = figure.add_axes((0.0, legend_in / tall, 1.0, drawn_in / tall))
    middle = (left + right) / 2
    axes.set_xlim(middle - wide / 2, middle + wide / 2)
    axes.set_ylim(_LAYER_IN / 2 - drawn_in, _LAYER_IN / 2)
    axes.set_axis_off()
    figure.legend(
        handles=[_legend_entry(family) for family in families], loc="lower center", ncols=columns,
        fontsize=8, columnspacing=1.2,
    )  # fmt: skip
    if picture.parts.name:
        figure.text(0.5, 1.0 - 0.05 / tall, plain(picture.parts.name), ha="center", va="top",
                    fontweight="bold")  # fmt: skip
    return figure, axes


def _extent(picture: GraphPicture) -> tuple[float, float]:
    x = picture.layout.x
    wide = {cell: picture.size[cell][0] if isinstance(cell, str) else _LANE_IN for cell in x}
    half = {cell: wide[cell] / 2 for cell in x}
    left = min((x[cell] - half[cell] for cell in x), default=0.0)
    right = max((x[cell] + half[cell] for cell in x), default=0.0)
    has_own_loop = any(edge.source == edge.target for edge in picture.parts.edges)
    return left, right + (0.3 if has_own_loop else 0.0)


def _legend_entry(family: Family) -> Patch:
    return Patch(
        facecolor=family.fill, edgecolor=INK, linewidth=family.line_pt, label=family.label,
        linestyle="--" if family.outline == "dashed" else "-",
    )  # fmt: skip


def _draw_node(axes: Axes, picture: GraphPicture, node: NodePart) -> None:
    (x, y), family = picture.middle(node.name), node.family
    for patch in _outline(family, (x, y), picture.size[node.name]):
        patch.set(facecolor=family.fill, edgecolor=INK, linewidth=family.line_pt, zorder=3)
        axes.add_patch(patch)
    top = y + 0.065 * (len(node.lines) - 1)
    for index, line in enumerate(node.lines):
        axes.text(
            x, top - 0.14 * index, line, ha="center", va="center", zorder=4,
            fontsize=_SMALL_PT if index else _FONT_PT, color=FAINT_INK if index else INK,
        )  # fmt: skip


def _outline(family: Family, middle: tuple[float, float], size: tuple[float, float]) -> list[Patch]:
    (x, y), (w, h) = middle, size
    left, bottom = x - w / 2, y - h / 2
    if family.outline == "round":
        style = f"round,pad=0,rounding_size={h / 2}"
        return [FancyBboxPatch((left, bottom), w, h, boxstyle=style)]
    if family.outline == "hexagon":
        cut = h / 3
        corners = [(left, y), (left + cut, y + h / 2), (x + w / 2 - cut, y + h / 2)]
        corners += [(x + w / 2, y), (x + w / 2 - cut, bottom), (left + cut, bottom)]
        return [Polygon(corners, closed=True)]
    boxes: list[Patch] = [
        Rectangle((left, bottom), w, h, linestyle="--" if family.outline == "dashed" else "-")
    ]
    if family.outline == "double":
        boxes.append(Rectangle((left + 0.04, bottom + 0.04), w - 0.08, h - 0.08))
    return boxes


def _draw_edge(axes: Axes, picture: GraphPicture, index: int, edge: EdgePart) -> None:
    is_loop = picture.layout.loops[index]
    ink = _LOOP_INK if is_loop else INK
    if edge.source == edge.target:
        path = _own_loop(picture, edge.source)
    else:
        between = [picture.middle(cell) for cell in picture.layout.ways[index][1:-1]]
        path = _smooth([_end(picture, index, True), *between, _end(picture, index, False)])
    arrow = FancyArrowPatch(
        path=path, arrowstyle="-|>", mutation_scale=9, color=ink, shrinkA=0, shrinkB=0, zorder=2,
        linewidth=1.1 if is_loop else 0.9, linestyle=(0, (4, 2)) if is_loop else "-",
    )  # fmt: skip
    axes.add_patch(arrow)
    for port, at_source in ((edge.source_port, True), (edge.target_port, False)):
        if port and edge.source != edge.target:
            _write_port(axes, picture, (index, at_source), port)


def _end(picture: GraphPicture, index: int, at_source: bool) -> tuple[float, float]:
    """Place the end of an edge: edges share a side of a box in equal parts."""
    edge = picture.parts.edges[index]
    node = edge.source if at_source else edge.target
    is_below = at_source != picture.layout.loops[index]
    sharing = sorted(_sharing(picture, node, is_below))
    part = [entry[1:] for entry in sharing].index((index, at_source))
    x, y = picture.middle(node)
    w, h = picture.size[node]
    inner = w * 0.86
    return (
        x - inner / 2 + inner * (part + 0.5) / len(sharing),
        y + (-h / 2 if is_below else h / 2),
    )


def _sharing(picture: GraphPicture, node: str, is_below: bool) -> list[tuple[float, int, bool]]:
    """Edge ends on one side of a node: place of the next cell, edge, whether it is the source."""
    found: list[tuple[float, int, bool]] = []
    for index, edge in enumerate(picture.parts.edges):
        if edge.source == edge.target:
            continue
        way, is_loop = picture.layout.ways[index], picture.layout.loops[index]
        if edge.source == node and is_below != is_loop:
            found.append((picture.layout.x[way[1]], index, True))
        if edge.target == node and is_below == is_loop:
            found.append((picture.layout.x[way[-2]], index, False))
    return found


def _smooth(points: list[tuple[float, float]]) -> Path:
    """A curve through `points`: upright at both ends, in between along its neighbours (Hermite)."""
    slopes = [(0.0, points[1][1] - points[0][1])]
    for (x0, y0), (x1, y1) in zip(points[:-2], points[2:], strict=True):
        slopes.append(((x1 - x0) / 2, (y1 - y0) / 2))
    slopes.append((0.0, points[-1][1] - points[-2][1]))
    vertices, codes = [points[0]], [int(Path.MOVETO)]
    for (start, end), (leave, arrive) in zip(pairwise(points), pairwise(slopes), strict=True):
        vertices.append((start[0] + leave[0] / 3, start[1] + leave[1] / 3))
        vertices.append((end[0] - arrive[0] / 3, end[1] - arrive[1] / 3))
        vertices.append(end)
        codes += [int(Path.CURVE4)] * 3
    return Path(vertices, codes)


def _own_loop(picture: GraphPicture, node: str) -> Path:
    (x, y), (w, h) = picture.middle(node), picture.size[node]
    right = x + w / 2
    vertices = [(right, y - h / 4), (right + 0.35, y - h / 2), (right + 0.35, y + h / 2)]
    return Path([*vertices, (right, y + h / 4)], [int(Path.MOVETO)] + [int(Path.CURVE4)] * 3)


def _write_port(axes: Axes, picture: GraphPicture, end: tuple[int, bool], port: str) -> None:
    """A port's name on its edge, just outside of the box."""
    x, y = _end(picture, *end)
    is_below = end[1] != picture.layout.loops[end[0]]
    axes.text(
        x, y - 0.13 if is_below else y + 0.13, port, fontsize=_PORT_PT, color=FAINT_INK,
        ha="center", va="center", zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )  # fmt: skip
