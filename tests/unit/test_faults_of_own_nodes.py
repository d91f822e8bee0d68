"""Faults of a node of one's own are one line that names it: in a run, a forecast and a trial."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import AmpsimError
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

SPLIT = (np.linspace(-1.0, 1.0, 40).reshape(20, 2), np.arange(20) % 2)
DATA = ArrayDataset(SPLIT, SPLIT, batch=4)


class Own(Linear):
    """A layer whose methods are as they should be but for some, which are given by name."""

    def __init__(self, faults):
        super().__init__("own", 2, 2)
        for name, method in faults.items():
            setattr(self, name, method.__get__(self))


def model(pump=pump_arrays, **faults) -> ampsim.Model:
    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        hidden = made.add(Own(faults), made.add(Linear("first", 2, 2), x))
        made.end(SoftmaxCrossEntropy("loss"), hidden, label)
        return made

    return ampsim.Model("net", None, graph, DATA.for_run, pump, sgd(0.1), target=0.9)


def counts_nothing(self, port, state, gradient) -> Any:
    self._saved.pop(state)
    return [(0, state, gradient)]


def swallows(self, port, state, gradient) -> Any:
    Linear.backward(self, port, state, gradient)
    return []


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "backward gives nothing": (
        {"backward": lambda self, port, state, gradient: self._saved.pop(state) and None},
        r"own \(Own\) failed .*serving backward .*: expected a list of \(port, state, payload\), "
        "got NoneType",
    ),
    "backward swallows": ({"backward": swallows}, "first .* waits for the backward message of"),
    "no gradient": (
        {"take_gradient": lambda self: None},
        r"take_gradient of own \(Own\) must return an array as its parameters, float32\(6,\), "
        "got None",
    ),
    "gradient of another precision": (
        {"take_gradient": lambda self: np.zeros(6)},
        r"take_gradient of own \(Own\) must return .*, got float64\(6,\)",
    ),
    "first weights": (
        {"initialise": lambda self, generator: [0.0] * 6},
        r"initialise of own \(Own\) must return a flat array of 6 finite numbers, got \[0.0",
    ),
    "first weights of another shape": (
        {"initialise": lambda self, generator: np.zeros((1, 6))},
        r"initialise of own \(Own\) must .* got shape \(1, 6\)",
    ),
    "first weights are not finite": (
        {"initialise": lambda self, generator: np.full(6, np.nan)},
        r"initialise of own \(Own\) must .* got numbers that are not",
    ),
    "weights are not adopted": (
        {"adopt": lambda self, theta: None},
        r"adopt of own \(Own\) must call super\(\).adopt\(theta\)",
    ),
    "pending": (
        {"pending": lambda self: None},
        r"pending of own \(Own\), which must return states, failed: TypeError",
    ),
    "check gives nothing": (
        {"check": lambda self, shapes: None},
        r"net: check of own \(Own\) must return a shape for each output \(output\), .* got None",
    ),
    "check gives one shape": (
        {"check": lambda self, shapes: ("rows", 2)},
        r"net: check of own \(Own\) must return .* got \('rows', 2\)",
    ),
    "pump gives nothing": (
        {"pump": lambda instance, batch: None},
        "pump failed for instance 0: expected a list of .* got NoneType",
    ),
    "pump gives no state": (
        {"pump": lambda instance, batch: [(0, instance, batch.arrays[0])]},
        "pump failed for instance 0: expected a state that is a NamedTuple",
    ),
}  # fmt: skip

CLUSTER = ampsim.load_cluster("tflops-1", workers=2)


def simulated(model):
    ampsim.simulate(model, CLUSTER, ampsim.Amp(2))


def forecasted(model):
    table = ampsim.forecast(model, CLUSTER, "amp", max_epochs=1, repeats=1, jobs=1).table
    if note := table["note"].iloc[0]:
        raise AmpsimError(note)


WAYS = [simulated, forecasted, ampsim.try_out]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_names_the_node(fault, way):
    faults, message = FAULTS[fault]
    with pytest.raises(AmpsimError, match=message) as caught:
        way(model(**faults))
    assert "\n" not in str(caught.value)


def test_a_gradient_that_is_not_counted_is_told_by_a_trial():
    with pytest.raises(AmpsimError, match=r"own \(Own\) counted no gradient of Instance"):
        ampsim.try_out(model(backward=counts_nothing))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nothing_is_told_where_nothing_is_wrong(way):
    way(replace(model(), target=0.01))
