"""Placement: heavy nodes take turns, light ones what is left, the controller the host."""

import numpy as np
import pytest

from ampsim.hardware import HOST
from ampsim.ir import Graph
from ampsim.model_parallel import paper_placement
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy


@pytest.fixture
def graph():
    graph = Graph("g")
    wire, label = graph.controller(x=("rows", 4), label=("rows",))
    for i in range(3):
        wire = graph.add(ReLU(f"relu-{i}"), graph.add(Linear(f"linear-{i}", 4, 4), wire))
    graph.end(SoftmaxCrossEntropy("loss"), wire, label)
    graph.verify()
    return graph


def placed(graph, workers, seed=0):
    placement = paper_placement(graph, workers, np.random.default_rng(seed))
    return {node.name: worker for node, worker in zip(graph.nodes, placement, strict=True)}


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 16])
def test_the_hth_heavy_node_goes_to_worker_h_modulo_all(graph, workers):
    placement = placed(graph, workers)
    assert [placement[f"linear-{h}"] for h in range(3)] == [h % workers for h in range(3)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 16])
def test_the_controller_lives_on_the_host_and_nobody_else(graph, workers):
    placement = placed(graph, workers)
    assert placement.pop("controller") == HOST
    assert set(placement.values()) <= set(range(workers))


def test_light_nodes_spread_over_the_rest_by_the_seed(graph):
    light = ["relu-0", "relu-1", "relu-2", "loss"]
    draws = [tuple(placed(graph, 16, seed)[name] for name in light) for seed in range(20)]
    assert {worker for draw in draws for worker in draw} == set(range(3, 16))
    assert len(set(draws)) > 10
    assert placed(graph, 16, seed=7) == placed(graph, 16, seed=7)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_light_nodes_share_with_their_producers_where_there_is_no_rest(graph, workers):
    placement = placed(graph, workers)
    for i in range(3):
        assert placement[f"relu-{i}"] == placement[f"linear-{i}"]
    assert placement["loss"] == placement["relu-2"]


def test_a_light_node_that_nothing_heavy_feeds_shares_worker_zero():
    graph = Graph("g")
    x, label = graph.controller(x=("rows", 4), label=("rows",))
    linear = graph.add(Linear("linear", 4, 4), graph.add(ReLU("first"), x))
    graph.end(SoftmaxCrossEntropy("loss"), linear, label)
    graph.verify()
    assert placed(graph, 1) == {"controller": HOST, "first": 0, "linear": 0, "loss": 0}
