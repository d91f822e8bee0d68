"""A cell composed of single operations is the fused cell: outputs, gradients, and first weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import Amp, load_model
from ampsim.data import Qm9Dipoles, SentimentTrees, WikiNer
from ampsim.errors import GraphError
from ampsim.ir import Direction, Graph
from ampsim.nodes import BranchLSTM, GRUCell, LeafLSTM, LSTMCell, SquaredError, compose
from ampsim.optim import Optimizer, constant
from ampsim.study import Simulation
from ampsim.study.model import adopt_variables, parameters_of, variables_of

NEVER = 10**9
FORMS = ("composed", "by-gate")
SIZES: dict[str, dict[str, Any]] = {
    "tree_lstm": {"hidden": 5, "embedding": 3},
    "tree_lstm, dropout": {"hidden": 5, "embedding": 3, "keep_probability": 0.75},
    "ggnn": {"hidden": 12},
    "bilstm_tagger": {"word_width": 8, "character_width": 3, "hidden": 5, "tanh_units": 4},
}
FEW: dict[str, Any] = {"train_count": 6, "valid_count": 2}
DATA: dict[str, Callable[..., Any]] = {
    "tree_lstm": lambda seed, _count: SentimentTrees.synthetic(seed, **FEW),
    "ggnn": lambda seed, _count: Qm9Dipoles.synthetic(seed, dtype="float64", **FEW),
    "bilstm_tagger": lambda seed, _count: WikiNer.synthetic(seed, **FEW),
}
CELLS: dict[str, Callable[[], Any]] = {
    "GRUCell": lambda: GRUCell("cell", 4, 3),
    "LSTMCell": lambda: LSTMCell("cell", 4, 3, forget_bias=0.5),
    "LeafLSTM": lambda: LeafLSTM("cell", 4, 3),
    "BranchLSTM": lambda: BranchLSTM("cell", 3),
}
PRODUCTS: dict[tuple[str, str], str] = {
    ("GRUCell", "composed"): "-input -state",
    ("GRUCell", "by-gate"): "-r-input -r-state -z-input -z-state -n-input -n-state",
    ("LSTMCell", "composed"): "",
    ("LSTMCell", "by-gate"): "-o -i -f-state -g",
    ("LeafLSTM", "composed"): "",
    ("LeafLSTM", "by-gate"): "-o -i -g",
    ("BranchLSTM", "composed"): "",
    ("BranchLSTM", "by-gate"): "-o -i -f-left -f-right -g",
}


def load(name: str, cell: str, **options: Any) -> ampsim.Model:
    return load_model(name.split(",")[0], cell=cell, data="synthetic", **options, **SIZES[name])


@cache
def after_a_pass(name: str, cell: str, cluster: Any, in_flight: int) -> tuple[Any, Any]:
    """Gradients over all training instances, as "parameters", and what validation said."""
    model = load(name, cell, dtype="float64")
    keep = Optimizer("keep", constant(1.0), lambda _theta: (), lambda g, s, _theta, _rate: (g, s))
    model = replace(model, optimizer=keep, make_data=DATA[name.split(",")[0]])
    simulation = Simulation(model, cluster, Amp(in_flight, NEVER))
    simulation.run_epoch()
    result = simulation.result()
    for node in simulation._graph.nodes:
        caches = [vars(node).get(cache) for cache in ("_saved", "_control")]
        assert list(node.pending()) == [] and not any(caches), node.name
    return result.model.parameters(), result.epochs["loss"].item()


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [1, 8])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SIZES)
def test_composed_cells_have_the_gradients_of_fused_ones_for_any_order_of_arrival(
    random_cluster, as_fused, name, form, in_flight
):
    """From equal first weights, summed over a pass without an update."""
    for seed in range(2):
        cluster = random_cluster(7, seed=seed, latency_s_max=1e-7)
        (fused, fused_loss), (composed, composed_loss) = (
            after_a_pass(name, cell, cluster, in_flight) for cell in ("fused", form)
        )
        composed = as_fused(composed)
        assert composed_loss == pytest.approx(fused_loss, rel=1e-10)
        assert composed.keys() == fused.keys()
        for key, expected in fused.items():
            atol = 1e-12 * np.abs(expected).max()
            np.testing.assert_allclose(composed[key], expected, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SIZES)
def test_composed_cells_start_from_the_weights_of_fused_ones(as_fused, name, form):
    for seed in (0, 3):
        fused, composed = (parameters_of(load(name, cell).graph(seed)) for cell in ("fused", form))
        renamed = as_fused(composed)
        assert renamed.keys() == fused.keys()
        assert all((values == fused[key]).all() for key, values in renamed.items())


def graph_of(cell: Any, add: Callable[..., Any]) -> Graph:
    """A cell between the controller and a loss, with what `add` makes of it."""
    widths = [2 * cell.hidden if port in reads(cell) else w for port, w in enumerate(cell.widths)]
    inputs = {port: ("rows", width) for port, width in zip(cell.inputs, widths, strict=True)}
    graph = Graph("alone")
    columns = cell.hidden if isinstance(cell, GRUCell) else 2 * cell.hidden
    *wires, target = graph.controller(**inputs, target=("rows", columns))
    graph.end(SquaredError("loss"), add(graph, cell, *wires), target)
    graph.verify()
    return graph


def reads(cell: Any) -> tuple[int, ...]:
    return getattr(cell, "reads", ())


@pytest.mark.parametrize(("name", "form"), PRODUCTS)
def test_products_of_a_composed_cell_cost_what_those_of_the_fused_one_do(name, form):
    """Forward, and an update; Appendix C counts nothing else of a cell forward."""
    add = partial(compose, by_gate=form == "by-gate")
    fused = graph_of(CELLS[name](), lambda g, c, *w: g.add(c, *w))
    composed = graph_of(CELLS[name](), add)
    for direction, shape in ((Direction.FORWARD, (5, 1)), (Direction.UPDATE, None)):
        flop = [sum(n.work(direction, shape).flop for n in g.nodes) for g in (fused, composed)]
        assert flop[0] == flop[1] > 0
    found = [node.name for node in composed.nodes if node.is_parameterized]
    assert found == [f"cell{end}" for end in PRODUCTS[name, form].split(" ")]
    count = [sum(n.parameter_count for n in g.parameterized) for g in (fused, composed)]
    assert count[0] == count[1]


@pytest.mark.parametrize(
    ("cell", "wires", "text"),
    [
        (
            GRUCell("c", 2, 2),
            1,
            "g: c (GRUCell) composed takes a wire for each input (input, state), got 1; "
            "connect() can close a loop at a Phi",
        ),
        (
            LeafLSTM("c", 2, 2),
            2,
            "g: c (LeafLSTM) composed takes a wire for each input (input), got 2; "
            "connect() can close a loop at a Phi",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused(cell, wires, text):
    graph = Graph("g")
    given = graph.controller(a=("rows", 2), b=("rows", 2))
    with pytest.raises(GraphError, match=f"^{re.escape(text)}$"):
        compose(graph, cell, *given[:wires])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [one for one in SIZES if "," not in one])
def test_each_product_of_a_cell_is_a_variable_of_its_own(name, form):
    """All start from the cell's random stream, as replicas do, which are one layer."""
    graph = load(name, form).graph()
    assert not graph.replica_groups
    values = {name: array.copy() for name, array in variables_of(graph).items()}
    assert values.keys() == parameters_of(graph).keys()
    adopt_variables(graph, {name: array + 1 for name, array in values.items()})
    for name, array in parameters_of(graph).items():
        assert (array == values[name] + 1).all()
