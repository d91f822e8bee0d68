"""No gradient is computed, charged or sent that nobody needs, message by message."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import Amp, Pipeline, Sequential, load_cluster, load_model, simulate
from ampsim.ir import Cond, Graph, Isu, Phi
from ampsim.nodes import Linear, ReLU, SquaredError, Sum, Tanh
from ampsim.runs.witness import leading

STEPS, HIDDEN = 3, 12


def backward_flop_over_forward(schedule: Any, mode: Any) -> Any:
    """By node and whether in the first step: FLOP of a backward step over its forward step's."""
    model = leading(load_model("ggnn", data="synthetic", hidden=HIDDEN, steps=STEPS), 30, 2)
    cluster = load_cluster("tflops-1", workers=3)
    spans = simulate(model, cluster, schedule, instances=30, mode=mode).spans
    spans = spans[(spans["instance"] < 30) & (spans["flop"] > 0)]
    spans["is_first"] = spans["state"].astype(str).str.contains("step 0")
    spans["kind"] = spans["node"].astype(str).str.replace(r"-\d", "", regex=True)
    total = spans.pivot_table(
        index=["kind", "is_first"], columns="direction", values="flop", aggfunc="sum", observed=True
    )
    return total["backward"] / total["forward"]


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(
    "schedule", [Sequential(), Pipeline(3), Amp(4), Amp(4, max_group=3)], ids=lambda s: repr(s)
)
def test_the_first_step_of_a_loop_forms_no_gradient_of_what_was_pumped(schedule, mode):
    """Accumulation costs what forward does, and each input's gradient its share of that.

    A bond's product has one input, the atoms' state; the GRU has two of equal width, of which the
    messages depend on parameters in every step, and the state not in the first.
    """
    ratio = backward_flop_over_forward(schedule, mode)
    assert ratio["bond", True] == 1.0
    assert ratio["bond", False] == 2.0
    assert ratio["gru", True] == pytest.approx(1.5)
    assert ratio["gru", False] == 2.0


class Turn(NamedTuple):
    instance: int
    turn: int


def loop_of(*, inner: bool) -> Graph:
    """A layer twice over, behind a ReLU; with `inner`, a Phi within the loop joins two ways."""

    def ahead(state: Turn) -> Turn:
        return Turn(state.instance, state.turn + 1)

    def back(state: Turn) -> Turn:
        return Turn(state.instance, state.turn - 1)

    def way(state: Turn) -> str:
        return "again" if state.turn < 2 else "last"

    def parity(state: Turn) -> str:
        return "even" if state.turn % 2 == 0 else "odd"

    graph = Graph("loop")
    x, target = graph.controller(x=("rows", 4), target=("rows", 4))
    phi = Phi("phi", ("start", "again"))
    state = graph.add(ReLU("relu"), graph.add(phi, x))
    if inner:
        even, odd = graph.branch(Cond("parity", parity, ("even", "odd")), state)
        state = graph.add(Phi("inner", ("even", "odd")), graph.add(Tanh("bent"), even), odd)
    product = graph.add(Linear("linear", 4, 4), state)
    turned = graph.add(Isu("isu", ahead, back), graph.add(Sum("sum"), product, state))
    again, last = graph.branch(Cond("cond", way, ("again", "last")), turned)
    graph.connect(again, phi, "again")
    graph.end(SquaredError("loss"), last, target)
    graph.verify()
    return graph


@pytest.mark.parametrize("inner", [False, True])
def test_a_node_behind_a_phi_knows_message_by_message(inner):
    graph = loop_of(inner=inner)
    nodes = {node.name: node for node in graph.nodes}
    order = ["phi", "relu", *(["parity", "bent", "inner"] if inner else []), "linear", "sum"]
    first, second = Turn(0, 0), Turn(0, 1)
    nodes["phi"].forward(0, first, np.zeros((1, 4)))
    nodes["phi"].forward(1, second, np.zeros((1, 4)))
    if inner:
        nodes["inner"].forward(0, first, np.zeros((1, 4)))
        nodes["inner"].forward(1, second, np.zeros((1, 4)))
    for name in order:
        if name in ("phi", "bent", "inner"):
            continue  # of these, one message or one input at a time
        always = (True,) if name == "sum" else ()
        assert nodes[name].gradients_needed(first) == (*always, False)[: len(nodes[name].inputs)]
        assert nodes[name].gradients_needed(second) == (*always, True)[: len(nodes[name].inputs)]
    assert not nodes["phi"].gradients_needed(first)[0]
    assert nodes["phi"].gradients_needed(second)[1]


def test_where_all_gradients_that_are_computed_are_needed_no_step_asks():
    for name, options in (
        ("mlp", {"data": "synthetic"}),
        ("rnn", {"hidden": 4}),
        ("tree_lstm", {"data": "synthetic", "hidden": 4}),
    ):
        graph = load_model(name, **options).graph()
        heeding = [node for node in graph.nodes if node.heeds_need]
        asked = [node.name for node in heeding if any(node.decided_by)]
        assert asked == [], name
