"""Graphs are built as the paper draws them, and mistakes are named while building."""

import re
from typing import NamedTuple

import pytest

from ampsim.errors import GraphError
from ampsim.ir import Bcast, Cond, Graph, Phi
from ampsim.nodes import Concat, Linear, ReLU, SoftmaxCrossEntropy


class One(NamedTuple):
    instance: int


def started():
    graph = Graph("g")
    return graph, *graph.controller(x=("rows", 4), label=("rows",))


def refused(text):
    return pytest.raises(GraphError, match=f"^{re.escape(text)}$")


def test_a_wire_with_several_consumers_gets_a_broadcast():
    graph, x, label = started()
    both = graph.add(Concat("both", (4, 4)), x, x)
    graph.end(SoftmaxCrossEntropy("loss"), both, label)
    graph.verify()
    assert [node.name for node in graph.nodes][-1] == "controller-x-bcast"
    assert isinstance(graph["controller-x-bcast"], Bcast)
    bcast = graph.index(graph["controller-x-bcast"])
    assert graph.sources[graph.index(graph["both"])] == [(bcast, 0), (bcast, 1)]


def test_verifying_twice_changes_nothing():
    graph, x, label = started()
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Concat("both", (4, 4)), x, x), label)
    graph.verify()
    nodes, targets = list(graph.nodes), graph.targets
    graph.verify()
    assert graph.nodes == nodes
    assert graph.targets is targets


def test_a_graph_that_failed_its_check_fails_it_again():
    graph, x, label = started()
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Linear("linear", 3, 2), x), label)
    for _ in range(2):
        with pytest.raises(GraphError, match="linear"):
            graph.verify()


def test_a_node_added_after_the_check_is_checked_too():
    graph, x, label = started()
    graph.end(SoftmaxCrossEntropy("loss"), x, label)
    graph.verify()
    graph.add(ReLU("late"))
    with pytest.raises(GraphError, match="'input' of late"):
        graph.verify()


def test_replicas_stand_between_a_choice_and_a_merge_and_start_equal():
    graph, x, label = started()
    out = graph.replicate("linear", 3, lambda name: Linear(name, 4, 2), x)
    graph.end(SoftmaxCrossEntropy("loss"), out, label)
    graph.verify()
    copies = [graph[f"linear.{i}"] for i in range(3)]
    assert graph.replica_groups == [copies]
    assert {node.seed_name for node in graph.parameterized} == {"linear"}
    choose = graph["linear-choose"]
    assert [choose.forward(0, One(i), None)[0][0] for i in range(5)] == [0, 1, 2, 0, 1]
    assert isinstance(graph["linear-merge"], Phi)


def test_one_replica_is_just_the_node():
    graph, x, _label = started()
    graph.replicate("linear", 1, lambda name: Linear(name, 4, 2), x)
    assert [node.name for node in graph.nodes] == ["controller", "linear"]
    assert graph.replica_groups == []


def test_networkx_has_kinds_and_port_names():
    graph, x, label = started()
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Linear("linear", 4, 2), x), label)
    drawn = graph.to_networkx()
    assert drawn.nodes["linear"] == {"kind": "Linear", "is_heavy": True}
    edges = [tuple(edge) for edge in drawn.edges(data="target_port")]
    assert ("linear", "loss", "prediction") in edges
    assert ("controller", "loss", "label") in edges


def test_no_replica_is_refused():
    graph, x, _label = started()
    with refused("g: replicas of linear must be >= 1, got 0"):
        graph.replicate("linear", 0, lambda name: Linear(name, 4, 2), x)


def test_a_name_taken_twice_is_refused():
    graph, x, _label = started()
    hidden = graph.add(Linear("a", 4, 4), x)
    with refused("g: two nodes are named 'a' (Linear and ReLU); rename one of them"):
        graph.add(ReLU("a"), hidden)


def test_more_wires_than_ports_are_refused():
    graph, x, label = started()
    text = (
        "g: a (ReLU) has 1 input port (input), got 2 wires; "
        "join several into one port with a Phi or Concat"
    )
    with refused(text):
        graph.add(ReLU("a"), x, label)


def test_a_node_of_several_outputs_is_no_node_of_one():
    graph, x, _label = started()
    text = "g: add() is for nodes with one output, got c (Cond) with 2; try branch()"
    with refused(text):
        graph.add(Cond("c", str, ("yes", "no")), x)
    text = "g: add() is for nodes with one output, got l (SoftmaxCrossEntropy) with 0; try end()"
    with refused(text):
        graph.add(SoftmaxCrossEntropy("l"), x)
    assert len(graph.nodes) == 1


def test_a_node_with_outputs_is_no_end():
    graph, x, _label = started()
    with refused("g: end() is for nodes without output, got a (ReLU) with 1; try add()"):
        graph.end(ReLU("a"), x)
    with refused("g: end() is for nodes without output, got c (Cond) with 2; try branch()"):
        graph.end(Cond("c", str, ("yes", "no")), x)


def test_connecting_to_a_port_that_is_not_there_names_those_that_are():
    graph, x, _label = started()
    phi = Phi("phi", ("start", "again"))
    graph.add(phi, x)
    with refused("g: phi (Phi) has no input port 'agian'; its ports: start, again"):
        graph.connect(x, phi, "agian")


def test_a_wire_to_a_node_that_was_not_added_is_refused():
    graph, x, label = started()
    graph.end(SoftmaxCrossEntropy("loss"), x, label)
    graph.connect(x, ReLU("stray"), "input")
    with refused(
        "g: stray (ReLU) is on the wire controller-x-bcast -> stray but not in the graph; "
        "add() it first"
    ):
        graph.verify()


def test_a_wire_of_another_graph_is_refused():
    graph, x, label = started()
    _other, foreign, _label = started()
    both = graph.add(Concat("both", (4, 4)), x, foreign)
    graph.end(SoftmaxCrossEntropy("loss"), both, label)
    text = "g: controller (Controller) is on the wire controller -> both but not in the graph"
    with pytest.raises(GraphError, match=f"^{re.escape(text)}; add"):
        graph.verify()


def test_a_graph_without_controller_or_with_a_late_one_is_refused():
    with refused(
        "g: expected the controller first, got an empty graph; call controller() before add()"
    ):
        Graph("g").verify()
    late = Graph("g")
    late.add(ReLU("a"))
    late.controller(x=("rows",))
    with refused("g: expected the controller first, got a (ReLU); call controller() before add()"):
        late.verify()


def test_a_second_controller_is_refused():
    graph, _x, _label = started()
    with pytest.raises(GraphError, match=r"^g: two nodes are named 'controller'"):
        graph.controller(y=("rows",))


def test_nothing_is_sent_forward_to_the_controller():
    graph, _x, _label = started()
    with pytest.raises(AssertionError, match="the controller has no inputs"):
        graph["controller"].forward(0, One(0), None)
    assert graph["controller"].backward(0, One(0), None) == ()
