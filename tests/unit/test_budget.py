"""Admission by a staleness budget: what is expected, by hand, and which nodes are looked at."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from ampsim import Amp, AmpBudget, load_cluster, load_model, simulate
from ampsim.errors import OptionError, UnknownNameError
from ampsim.ir import Graph
from ampsim.model_parallel.budget import Budget, Debt, oldest_of
from ampsim.model_parallel.steps import Steps, steps_of
from ampsim.nodes import Linear, SoftmaxCrossEntropy, Sum


class Step(NamedTuple):
    instance: int
    step: int


ROW = np.ones((1, 2))


@pytest.fixture
def make_steps():
    """`make_steps(debt)`: a layer whose gradients are owed to `debt`: its steps, and the layer."""

    def make(debt: Debt) -> tuple[Steps, Linear]:
        node = Linear("layer", 2, 2)
        node.adopt(node.initialise(np.random.default_rng(0)))
        return steps_of(node, debt=debt), node

    return make


def serve(layer: Steps, what: str, instance: int, steps: int) -> None:
    for step in range(steps):
        getattr(layer, what)(0, Step(instance, step), ROW)


def test_expected_staleness_is_what_is_owed_over_the_interval_as_worked_out_by_hand(make_steps):
    debt = Debt(2)
    layer, _node = make_steps(debt)
    assert debt.expected_staleness == 0.0
    debt.pumped(0)  # nothing is known yet: one gradient
    assert debt.expected_staleness == 1 / 2
    serve(layer, "forward", 0, 3)  # three are announced
    assert debt.expected_staleness == 3 / 2
    serve(layer, "backward", 0, 2)
    assert debt.expected_staleness == 1 / 2
    debt.pumped(1)
    serve(layer, "forward", 1, 5)
    assert debt.expected_staleness == (1 + 5) / 2
    layer.backward(0, Step(0, 2), ROW)
    debt.finished(0)  # it brought three
    assert debt.expected_staleness == 5 / 2
    serve(layer, "backward", 1, 5)
    debt.finished(1)  # and this one five: four on average
    debt.pumped(2)
    debt.pumped(3)
    assert debt.expected_staleness == 8 / 2


def test_what_brings_more_than_usual_owes_nothing_instead_of_less(make_steps):
    debt = Debt(1)
    layer, _node = make_steps(debt)
    debt.pumped(0)
    serve(layer, "forward", 0, 1)
    serve(layer, "backward", 0, 1)
    assert debt.expected_staleness == 0.0
    debt.finished(0)
    debt.pumped(1)
    serve(layer, "forward", 1, 3)
    serve(layer, "backward", 1, 3)
    debt.pumped(2)
    assert debt.expected_staleness == 1.0


def test_validation_and_messages_without_gradient_count_for_nothing(make_steps):
    debt = Debt(1)
    layer, node = make_steps(debt)
    debt.pumped(0)
    serve(layer, "forward", 0, 2)
    layer.backward(0, Step(0, 0), None)
    assert debt.expected_staleness == 2.0
    node.is_training = False
    layer.forward(0, Step(9, 0), ROW)  # instance 9 is not in training
    assert debt.expected_staleness == 2.0


def test_replicas_share_what_is_owed_to_all_of_them(make_steps):
    debt = Debt(2 + 2)
    layers = [make_steps(debt)[0] for _ in range(2)]
    for instance in range(4):
        debt.pumped(instance)
        serve(layers[instance % 2], "forward", instance, 3)
    assert debt.expected_staleness == 4 * 3 / (2 + 2)


def test_the_stalest_of_the_oldest_nodes_decides():
    budget = Budget(1.0, [Debt(1), Debt(4)])
    for instance in (0, 1):
        assert budget.has_room
        budget.pumped(instance)
    assert not budget.has_room
    budget.finished(0)
    assert budget.has_room


def names(groups: Any) -> list[list[str]]:
    return [[node.name for node in group] for group in groups]


def test_the_oldest_node_of_a_chain_is_its_first(chain):
    graph = chain(((1, 1, 1),) * 3).graph()
    graph.verify()
    assert names(oldest_of(graph)) == [["stage-1"]]


def test_of_branches_each_first_node_counts_and_replicas_count_together():
    graph = Graph("g")
    wire, label = graph.controller(values=("rows", 2), label=("rows",))
    left = graph.add(Linear("left", 2, 2), wire)
    right = graph.replicate("right", 2, lambda name: Linear(name, 2, 2), wire)
    last = graph.add(Linear("last", 2, 2), graph.add(Sum("sum"), left, right))
    graph.end(SoftmaxCrossEntropy("loss"), last, label)
    graph.verify()
    assert names(oldest_of(graph)) == [["right.0", "right.1"], ["left"]]


def test_where_a_loop_leads_everywhere_all_nodes_count():
    model = load_model("ggnn", data="synthetic")
    graph = model.graph()
    assert names(oldest_of(graph)) == [[node.name] for node in graph.parameterized]
    assert "gru" in [node.name for node in graph.parameterized]


def test_a_budget_of_nothing_lets_one_instance_at_a_time_through(chain, make_cluster):
    model = chain(((2, 4, 0),) * 3, instances=5).model()
    found = simulate(model, make_cluster(3), AmpBudget(staleness_budget=0))
    assert found.digest == simulate(model, make_cluster(3), Amp(1)).digest


def test_validation_makes_no_stale_gradients_and_runs_up_to_max_active_keys(chain, make_cluster):
    model = chain(((2, 4, 0),) * 3, instances=5, valid=20).model()

    def valid_s(schedule: Any) -> float:
        return float(simulate(model, make_cluster(3), schedule).epochs["valid_s"].iloc[0])

    assert valid_s(AmpBudget(8, staleness_budget=0)) == valid_s(Amp(8)) < valid_s(Amp(1))


def test_admission_is_the_bound_while_the_budget_holds_instances_back(chain, make_cluster):
    """Three equal stages, one in flight: each idles two thirds of the time, for want of more."""
    model = chain(((1, 1, 0),) * 3, instances=12).model()
    found = simulate(model, make_cluster(3), AmpBudget(8, staleness_budget=0)).bounds
    assert found.bound_by == "admission limit"
    assert found.admission_share == pytest.approx(11 / 12 * 2 / 3)  # none comes after the last
    ample = simulate(model, make_cluster(3), AmpBudget(8, staleness_budget=9)).bounds
    assert str(ample.bound_by).startswith("worker")
    assert ample.admission_share < 0.2


def test_when_no_more_are_to_come_it_is_not_the_budget_that_holds_them_back(chain, make_cluster):
    model = chain(((1, 1, 0),) * 3, instances=6).model()
    found = simulate(model, make_cluster(3), AmpBudget(8, staleness_budget=1))
    last = found.spans[found.spans["instance"] == 5]
    opened_s = last["start_s"].min()
    assert found.recorder.closures == [(0.0, False), (0.0, True), (opened_s, False)]


def test_a_budget_of_updates_leaves_replicas_busier_than_a_count_of_instances_would():
    """Staleness of 16 in flight, halved, at nearly their throughput: a count cannot do that."""
    model, cluster = load_model("rnn", replicas=4), load_cluster("tflops-1", workers=16)
    options: Any = {"mode": "sleep", "instances": 20_000}
    every: Any = {"min_update_interval": 2}  # messages, at every node
    greedy = simulate(model, cluster, Amp(16, **every), **options)
    budget = simulate(model, cluster, AmpBudget(16, staleness_budget=4, **every), **options)
    assert budget.train_per_s > 0.98 * greedy.train_per_s
    assert budget.staleness_mean < 0.6 * greedy.staleness_mean


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "two", True])
def test_a_budget_that_is_no_amount_is_refused(value):
    text = rf"^staleness_budget must be a (finite )?number >= 0, got {value!r}$"
    with pytest.raises(OptionError, match=text):
        AmpBudget(staleness_budget=value)


@pytest.mark.parametrize("kind", [Amp, AmpBudget])
def test_a_remedy_that_there_is_not_is_refused(kind):
    text = (
        "^no remedy named 'weight-predicton'; did you mean 'weight-prediction'\\? "
        "known: none, weight-prediction$"
    )
    with pytest.raises(UnknownNameError, match=text):
        kind(remedy="weight-predicton")


def test_intervals_of_amp_budget_are_checked_as_those_of_amp():
    text = "^min_update_interval of linear-1 must be a whole number >= 1, got 0$"
    with pytest.raises(OptionError, match=text):
        AmpBudget(min_update_interval={"linear-1": 0})
    assert AmpBudget(min_update_interval={"linear-1": 2}).updates.interval_of("linear-1", 7) == 2
