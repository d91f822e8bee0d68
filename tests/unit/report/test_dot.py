"""Graphs in Graphviz' language: every node and edge, families told apart, names quoted."""

from __future__ import annotations

import re

import networkx as nx
import pytest

import ampsim.nodes
from ampsim.ir import LossNode
from ampsim.report.dot import (
    AGGREGATION,
    CONTROL_FLOW,
    CONTROLLER,
    LOSS,
    PARAMETERIZED,
    PAYLOAD,
    dot,
    family_of,
)


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
        graph.add_node(f"linear-1.{index}", kind="Linear", is_heavy=True)
        edges.append(("choose", f"linear-1.{index}", f"out-{index}", "in"))
        edges.append((f"linear-1.{index}", "merge", "out", f"in-{index}"))
    for source, target, source_port, target_port in edges:
        graph.add_edge(source, target, source_port=source_port, target_port=target_port)
    return graph


def test_families_differ_in_more_than_colour():
    families = (CONTROLLER, PARAMETERIZED, PAYLOAD, CONTROL_FLOW, AGGREGATION, LOSS)
    assert len({(one.shape, one.line_pt) for one in families}) == len(families)
    assert len({one.fill for one in families}) == len(families)


def test_a_kind_of_its_own_is_judged_by_its_weight():
    assert family_of("GatedCell", is_heavy=True) == PARAMETERIZED
    assert family_of("Gelu", is_heavy=False) == PAYLOAD
    assert family_of("HuberLoss", is_heavy=False) == LOSS


def test_dot_has_a_statement_for_every_node_and_edge():
    graph = rnn(2)
    text = dot(graph)
    assert text.startswith('digraph "rnn" {')
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == graph.number_of_nodes()
    assert len(re.findall(r"^  n\d+ -> n\d+ ", text, re.MULTILINE)) == graph.number_of_edges()
    assert 'taillabel="again"' in text
    assert "out-0" not in text
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
    assert {family_of(name, is_heavy=False) for name in losses} == {LOSS}
