"""Pictures of graphs: every node and edge, readable, loops led back, names quoted."""

from __future__ import annotations

import itertools
import re
from typing import Any

import networkx as nx
import pytest
from matplotlib.patches import FancyArrowPatch

import ampsim.nodes
from ampsim.ir import LossNode
from ampsim.report.graph import picture as graph_picture
from ampsim.report.graph.dot import FAMILIES, dot, family_of
from ampsim.report.graph.layout import back_edges, layered

# Figures are Any here: matplotlib types what it returns too widely to ask it anything.
draw_graph: Any = graph_picture.draw_graph


def rnn(replicas=1):
    """The paper's Figure 2, with replicas as in Figure 4(b)."""
    graph = nx.MultiDiGraph(name="rnn")
    kinds = {
        "controller": "Controller", "embedding": "Embedding", "ungroup": "Ungroup", "phi": "Phi",
        "concat": "Concat", "choose": "Cond", "merge": "Phi", "relu": "ReLU", "isu": "Isu",
        "cond": "Cond", "linear-2": "Linear", "loss": "SoftmaxCrossEntropy",
    }  # fmt: skip
    for name, kind in kinds.items():
        graph.add_node(name, kind=kind, is_heavy=kind in ("Embedding", "Linear"))
    edges = [
        ("controller", "embedding", "tokens", "in"), ("controller", "phi", "start", "start"),
        ("controller", "loss", "label", "label"), ("embedding", "ungroup", "out", "in"),
        ("ungroup", "concat", "out", "token"), ("phi", "concat", "out", "hidden"),
        ("concat", "choose", "out", "in"), ("merge", "relu", "out", "in"),
        ("relu", "isu", "out", "in"), ("isu", "cond", "out", "in"),
        ("cond", "phi", "again", "again"), ("cond", "linear-2", "last", "in"),
        ("linear-2", "loss", "out", "prediction"),
    ]  # fmt: skip
    for index in range(replicas):
        graph.add_node(f"linear-1.{index}", kind="Linear", is_heavy=True, worker=index)
        edges.append(("choose", f"linear-1.{index}", f"out-{index}", "in"))
        edges.append((f"linear-1.{index}", "merge", "out", f"in-{index}"))
    for source, target, source_port, target_port in edges:
        graph.add_edge(source, target, source_port=source_port, target_port=target_port)
    return graph


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_loop_of_the_rnn_is_closed_by_the_edge_into_phi():
    graph = rnn()
    edges = list(graph.edges())
    loops = back_edges(list(graph.nodes), edges, headers=["phi", "merge"])
    assert [edge for edge, is_loop in zip(edges, loops, strict=True) if is_loop] == [
        ("cond", "phi")
    ]


@pytest.mark.parametrize("seed", range(20))
def test_without_its_back_edges_any_graph_is_without_loops(seed):
    graph = nx.gnp_random_graph(12, 0.2, seed=seed, directed=True)
    nodes = [str(node) for node in graph]
    edges = [(str(a), str(b)) for a, b in graph.edges()] + [("3", "3")]
    loops = back_edges(nodes, edges)
    rest = [edge for edge, is_loop in zip(edges, loops, strict=True) if not is_loop]
    assert nx.is_directed_acyclic_graph(nx.DiGraph(rest))
    if nx.is_directed_acyclic_graph(graph):
        assert sum(loops) == 1


@pytest.mark.parametrize("seed", range(20))
def test_cells_of_a_layer_never_overlap_and_edges_lead_down_but_for_loops(seed):
    graph = nx.gnp_random_graph(14, 0.18, seed=seed, directed=True)
    nodes = [str(node) for node in graph]
    edges = [(str(a), str(b)) for a, b in graph.edges()]
    layout = layered(nodes, edges, lambda cell: 1.0 if isinstance(cell, str) else 0.3)
    depth = {cell: index for index, layer in enumerate(layout.layers) for cell in layer}
    for layer in layout.layers:
        for left, right in itertools.pairwise(layer):
            least = sum(0.5 if isinstance(cell, str) else 0.15 for cell in (left, right))
            assert layout.x[right] - layout.x[left] >= least - 1e-9
    for way, is_loop, (source, target) in zip(layout.ways, layout.loops, edges, strict=True):
        assert (way[0], way[-1]) == (source, target)
        steps = {depth[b] - depth[a] for a, b in itertools.pairwise(way)}
        assert steps == ({-1} if is_loop else {1})


@pytest.mark.parametrize("replicas", [1, 4])
def test_every_node_and_edge_is_drawn_and_loops_are_dashed(replicas):
    graph = rnn(replicas)
    figure = draw_graph(graph)
    arrows = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == graph.number_of_edges()
    assert sum(arrow.get_linestyle() != "-" for arrow in arrows) == 1
    assert set(graph.nodes) <= set(texts(figure))
    assert "worker 0" in texts(figure)
    assert {"again", "last", "tokens", "prediction"} <= set(texts(figure))
    assert "out-0" not in texts(figure)


@pytest.mark.parametrize("replicas", [1, 4])
def test_no_label_overlaps_another_or_leaves_the_page(replicas):
    figure = draw_graph(rnn(replicas))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    for first, second in itertools.combinations(boxes, 2):
        assert not (first.shrunk(0.95, 0.9).overlaps(second.shrunk(0.95, 0.9)))
    page = figure.bbox
    for box in [*boxes, figure.legends[0].get_window_extent()]:
        assert page.x0 <= box.x0 <= box.x1 <= page.x1
        assert page.y0 <= box.y0 <= box.y1 <= page.y1


def test_the_legend_names_the_families_that_are_there():
    entries = [text.get_text() for text in draw_graph(rnn()).legends[0].get_texts()]
    assert entries == [family.label for family in FAMILIES]
    small = nx.MultiDiGraph()
    small.add_node("relu", kind="ReLU", is_heavy=False)
    assert [t.get_text() for t in draw_graph(small).legends[0].get_texts()] == ["payload transform"]


def test_families_differ_in_more_than_colour():
    looks = {(family.outline, family.line_pt) for family in FAMILIES}
    assert len(looks) == len({family.fill for family in FAMILIES}) == len(FAMILIES)
    assert len({(family.dot_shape, family.line_pt) for family in FAMILIES}) == len(FAMILIES)


def test_a_kind_of_its_own_is_judged_by_its_weight():
    assert family_of("GatedCell", is_heavy=True).label == "parameterized"
    assert family_of("Gelu", is_heavy=False).label == "payload transform"
    assert family_of("HuberLoss", is_heavy=False).label == "loss"


def test_an_edge_from_a_node_to_itself_and_parallel_edges_are_drawn():
    graph = nx.MultiDiGraph()
    graph.add_node("phi", kind="Phi", is_heavy=False)
    graph.add_node("sum", kind="Sum", is_heavy=False)
    for source, target in (("phi", "phi"), ("phi", "sum"), ("phi", "sum")):
        graph.add_edge(source, target, source_port="out", target_port="in")
    figure = draw_graph(graph)
    arrows: list[Any] = [p for p in figure.axes[0].patches if isinstance(p, FancyArrowPatch)]
    starts = {tuple(arrow.get_path().vertices[0].round(6)) for arrow in arrows}
    assert len(arrows) == len(starts) == 3


def test_an_empty_graph_is_an_empty_picture():
    assert texts(draw_graph(nx.MultiDiGraph())) == []


def test_dot_has_a_statement_for_every_node_and_edge():
    graph = rnn(2)
    text = dot(graph)
    assert text.startswith('digraph "rnn" {')
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == graph.number_of_nodes()
    assert len(re.findall(r"^  n\d+ -> n\d+ ", text, re.MULTILINE)) == graph.number_of_edges()
    assert 'taillabel="again"' in text
    assert dot(graph) == dot(rnn(2))


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "\\N", "two\nlines", "<b>x</b>", "x]; y"])
def test_any_name_is_one_quoted_string_in_dot(name):
    graph = nx.MultiDiGraph(name=name)
    graph.add_node(name, kind="Linear", is_heavy=True)
    line = next(line for line in dot(graph).splitlines() if line.startswith("  n0 ["))
    quoted = re.match(r'  n0 \[label="((?:[^"\\]|\\.)*)", shape=box, ', line)
    assert quoted
    shown = re.sub(r"\\([\\\"])", r"\1", quoted[1].removesuffix("\\nLinear"))
    assert shown == " ".join(name.split())


def test_every_loss_that_is_shipped_looks_like_one():
    public = [getattr(ampsim.nodes, name) for name in ampsim.nodes.__all__]
    losses = [one.__name__ for one in public if isinstance(one, type) and issubclass(one, LossNode)]
    assert len(losses) >= 2
    assert {family_of(name, is_heavy=False).label for name in losses} == {"loss"}
