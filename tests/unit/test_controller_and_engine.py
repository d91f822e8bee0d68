"""What goes wrong inside a run says which node, which state and when, and keeps its cause."""

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import Amp, Pipeline, Sequential, simulate
from ampsim.errors import GraphError, OptionError, SimulationError, StuckError
from ampsim.ir import Cond, Graph, Isu
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy

CHEAP = ((1, 1, 1),)
AMP = Amp(2)


class One(NamedTuple):
    instance: int


def same(state):
    return state


@pytest.fixture
def run(chain, make_cluster):
    """`run(node)` sends four instances through Linear, `node`, loss; one FLOP/s."""

    def make(node):
        graph = Graph("g")
        x, label = graph.controller(values=("rows", 2), label=("rows",))
        graph.end(
            SoftmaxCrossEntropy("loss"), graph.add(node, graph.add(Linear("l", 2, 2), x)), label
        )
        return graph

    def run(node_of, schedule=AMP, **changes):
        model = replace(chain(CHEAP).model(), make_graph=lambda: make(node_of()), **changes)
        mode = "sleep" if schedule is None else "numeric"
        return simulate(model, make_cluster(2), schedule or Sequential(), mode=mode)

    return run


PLACE = r"( \([^()]*test_controller_and_engine\.py, line \d+\))?"


class Broken(ReLU):
    """A node whose step does what `how` says, with the messages that it should send."""

    how = staticmethod(lambda sends: sends)

    def forward(self, port, state, payload):
        return type(self).how(super().forward(port, state, payload))


def broken(how):
    return lambda: type("Broken", (Broken,), {"how": staticmethod(how)})("b")


def fails(sends):
    raise ZeroDivisionError("by zero\n  at all")


@pytest.mark.parametrize(
    ("how", "what"),
    [
        (fails, "ZeroDivisionError: by zero at all"),
        (lambda sends: None, "expected a list of (port, state, payload), got NoneType"),
        (lambda sends: [7], "expected (port, state, payload) in the list, got 7"),
        (lambda sends: [(1, *sends[0][1:])], "expected a port below 1, got 1"),
        (lambda sends: [(0.0, *sends[0][1:])], "expected a port below 1, got 0.0"),
        (
            lambda sends: [(np.array([0, 1]), *sends[0][1:])],
            "expected a port below 1, got array([0, 1])",
        ),
    ],
)
def test_a_failing_node_is_told_with_state_and_time(run, how, what):
    text = f"b (Broken) failed at 8 s serving forward One(instance=0): {what}"
    with pytest.raises(SimulationError, match=f"^{re.escape(text)}{PLACE}$") as caught:
        run(broken(how))
    assert caught.value.__cause__ is not None
    assert caught.value.partial.messages > 0


def test_the_cause_of_a_failure_is_the_nodes_own_exception(run):
    with pytest.raises(SimulationError) as caught:
        run(broken(fails))
    assert type(caught.value.__cause__) is ZeroDivisionError


def test_a_node_that_renames_an_instance_is_told(run):
    text = "no instance 99 is in flight; a state's first field must stay the instance"
    with pytest.raises(SimulationError, match=f"{re.escape(text)}$"):
        run(lambda: Isu("i", lambda s: One(99), lambda s: One(0)))


def test_a_node_that_renames_an_instance_on_the_way_back_is_told(chain, make_cluster):
    class Renames(ReLU):
        def backward(self, port, state, gradient):
            return [(0, One(99), gradient)]

    def graph_of():
        graph = Graph("g")
        x, label = graph.controller(values=("rows", 2), label=("rows",))
        graph.end(SoftmaxCrossEntropy("loss"), graph.add(Renames("r"), x), label)
        return graph

    text = (
        r"^r \(Renames\) failed at [0-9.]+ s serving backward One\(instance=0\): "
        "no instance 99 is in flight"
    )
    with pytest.raises(SimulationError, match=text):
        simulate(replace(chain(CHEAP).model(), make_graph=graph_of), make_cluster(2), Amp(2))


def test_an_update_that_fails_is_told(run, chain):
    class NoGradient(Linear):
        def take_gradient(self):
            raise LookupError("no gradient")

    head = r"^n \(NoGradient\) failed at .* s serving update One.*"
    text = f"{head}: LookupError: no gradient{PLACE}$"
    with pytest.raises(SimulationError, match=text):
        run(lambda: NoGradient("n", 2, 2))
    text = r"^n \(NoGradient\) failed at .* s serving update from the controller: LookupError"
    with pytest.raises(SimulationError, match=text):
        run(lambda: NoGradient("n", 2, 2), Pipeline(2))


def test_a_cost_that_cannot_be_computed_is_told(run):
    class NoWork(Linear):
        def work(self, direction, shape):
            raise LookupError("no work")

    text = rf"^n \(NoWork\) failed at 8 s serving forward One.*: LookupError: no work{PLACE}$"
    with pytest.raises(SimulationError, match=text):
        run(lambda: NoWork("n", 2, 2))


def swallows(sends):
    return ()


def test_a_node_that_swallows_messages_leaves_others_waiting(run):
    with pytest.raises(StuckError) as caught:
        run(broken(swallows), Sequential())
    assert str(caught.value).startswith("g: nothing is left to do at ")
    states = ", ".join(f"One(instance={i})" for i in range(3))
    for node, what in (
        ("loss (SoftmaxCrossEntropy)", "input prediction (has label)"),
        ("l (Linear)", "the backward message"),
        ("b (Broken)", "the backward message"),
    ):
        assert f"{node} waits for {what} of {states}" in str(caught.value)
    assert str(caught.value).endswith("; a node swallowed a message or changed its state")
    assert caught.value.partial.messages > 0


@pytest.mark.parametrize(
    ("pump", "what"),
    [
        (
            lambda i, batch: batch.nothing,
            "AttributeError: 'Rows' object has no attribute 'nothing'",
        ),
        (lambda i, batch: None, "expected a list of (port, state, payload), got NoneType"),
        (lambda i, batch: [], "expected at least one message, got none"),
        (
            lambda i, batch: [(5, One(i), None)],
            "expected a port below 2 or one of values, label, got 5",
        ),
        (
            lambda i, batch: [(np.array([0, 1]), One(i), None)],
            "expected a port below 2 or one of values, label, got array([0, 1])",
        ),
        (
            lambda i, batch: [(0, One(i), [1, 2])],
            "expected an array or None at port 0, got list",
        ),
        (
            lambda i, batch: [(0, One(i), None), (1, One(7), None)],
            "expected states of instance 0 only, got [0, 7]",
        ),
    ],
)
def test_a_pump_that_fails_is_told_with_its_instance(run, pump, what):
    text = f"the model's pump failed for instance 0: {what}"
    with pytest.raises(SimulationError, match=f"^{re.escape(text)}{PLACE}$"):
        run(lambda: ReLU("r"), pump=pump)


def test_a_wrong_inverse_is_told_with_the_states(run):
    with pytest.raises(GraphError, match=r"^i \(Isu\): the inverse must .*One\(instance=0\) ->"):
        run(lambda: Isu("i", same, lambda state: One(state.instance + 1)))


def test_a_wrong_query_is_told_with_its_ports(run):
    with pytest.raises(GraphError, match=r"^c \(Cond\): the query must name .* \(only\), got 'x'"):
        run(lambda: Cond("c", lambda state: "x", ("only",)))


def test_a_state_that_comes_twice_to_one_port_is_told(run):
    text = (
        r"^loss \(SoftmaxCrossEntropy\) failed at 0 s serving forward One\(instance=0\): "
        r"AssertionError: port 1 got One\(instance=0\) twice"
    )
    with pytest.raises(SimulationError, match=text):
        run(lambda: ReLU("r"), pump=lambda i, batch: [(1, One(i), batch.labels)] * 2)


def test_sleep_refuses_a_graph_that_decides_by_numbers(run):
    text = "mode 'sleep' has no numbers, but b (Broken) decides by them; use mode 'numeric'"
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
        run(lambda: type("Broken", (Broken,), {"reads_values": True})("b"), None)


def test_a_validation_pass_leaves_nothing_behind_and_learns_nothing(chain, make_cluster):
    model = chain(CHEAP, instances=2, valid=5).model()
    result = simulate(model, make_cluster(1), Amp(2))
    spans = result.spans
    assert set(spans[spans["instance"] >= 2]["direction"]) == {"forward"}
    assert result.updates["time_s"].max() <= result.epochs["train_s"].iloc[0]
    assert np.isfinite(result.epochs["valid_loss"]).all()


def test_a_pump_may_name_its_ports_and_a_wrong_name_is_told_with_those_that_there_are(
    chain, make_cluster
):
    model = chain(((1, 1, 1),)).model()
    names = ("values", "label")

    def named(instance: int, batch: Any) -> list[Any]:
        return [(names[port], *rest) for port, *rest in model.pump(instance, batch)]

    def misnamed(instance: int, batch: Any) -> list[Any]:
        return [("labels", *rest) for _port, *rest in model.pump(instance, batch)]

    results = [
        simulate(replace(model, pump=pump), make_cluster(1), Amp(2)) for pump in (model.pump, named)
    ]
    assert results[0].digest == results[1].digest
    text = "expected a port below 2 or one of values, label, got 'labels'"
    with pytest.raises(SimulationError, match=text):
        simulate(replace(model, pump=misnamed), make_cluster(1), Amp(2))
