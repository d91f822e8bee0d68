"""Faults of a node of one's own are one line that names it: in a run, a forecast and a trial."""

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.data.arrays import Instance
from ampsim.errors import AmpsimError
from ampsim.ir import Graph, Node
from ampsim.nodes import Group, Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd

SPLIT = (np.linspace(-1.0, 1.0, 40).reshape(20, 2), np.arange(20) % 2)
DATA = ArrayDataset(SPLIT, SPLIT, batch=4)


class Own(Linear):
    """A layer whose methods are as they should be but for some, which are given by name."""

    def __init__(self, faults):
        super().__init__("own", 2, 2)
        for name, method in faults.items():
            setattr(self, name, method.__get__(self))


class OwnLoss(SoftmaxCrossEntropy):
    """A loss that says so many rows are right."""

    correct: Any = 3

    def evaluate(self, port, state, payload):
        found = super().evaluate(port, state, payload)
        if found is None or found.report is None:
            return found
        return found._replace(report=replace(found.report, correct=self.correct))


def model(pump=pump_arrays, loss=SoftmaxCrossEntropy, **faults) -> ampsim.Model:
    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        hidden = made.add(Own(faults), made.add(Linear("first", 2, 2), x))
        made.end(loss("loss"), hidden, label)
        return made

    return ampsim.Model("net", None, graph, DATA.for_run, pump, sgd(0.1), target=0.9)


def counts_nothing(self, port, state, gradient) -> Any:
    self._saved.pop(state)
    return [(0, state, gradient)]


def swallows(self, port, state, gradient) -> Any:
    Linear.backward(self, port, state, gradient)
    return []


def keeps(self, port, state, gradient) -> Any:
    saved = self._saved[state]
    sends = Linear.backward(self, port, state, gradient)
    self._saved[state] = saved
    return sends


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "backward gives nothing": (
        {"backward": lambda self, port, state, gradient: self._saved.pop(state) and None},
        r"own \(Own\) failed .*serving backward .*: expected a list of \(port, state, payload\), "
        "got NoneType",
    ),
    "backward swallows": ({"backward": swallows}, "first .* waits for the backward message of"),
    "backward keeps what forward kept": (
        {"backward": keeps},
        r"nothing is left .*, but caches remain: own \(Own\) waits for the backward message of",
    ),
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
    "pump gives what is masked": (
        {
            "pump": lambda instance, batch: [
                (0, Instance(instance), np.ma.masked_less(batch.arrays[0], np.inf))
            ]
        },
        "a payload of the model's pump must have a number at every place, got a masked",
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


def with_solver(model):
    ampsim.simulate(model, CLUSTER, ampsim.SyncSGD())


WAYS = [simulated, forecasted, ampsim.try_out]


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_names_the_node(fault, way):
    faults, message = FAULTS[fault]
    with pytest.raises(AmpsimError, match=message) as caught:
        way(model(**faults))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
def test_a_gradient_that_is_not_counted_is_told(way):
    with pytest.raises(AmpsimError, match=r"own \(Own\) counted no gradient of Instance") as caught:
        way(model(backward=counts_nothing))
    assert "must call self.count_gradient(state, version)" in str(caught.value)


def test_a_gradient_of_none_need_not_be_counted():
    """Nothing of the layer's output is used: a loss that gives no gradient sends None back."""

    def evaluate(self, port, state, payload) -> Any:
        found = SoftmaxCrossEntropy.evaluate(self, port, state, payload)
        return found and found._replace(gradients=[(n, state, None) for n in (0, 1)])

    silent = type("Silent", (SoftmaxCrossEntropy,), {"evaluate": evaluate})
    result = ampsim.simulate(model(loss=silent), CLUSTER, ampsim.Amp(2))
    assert len(result.updates) == 0


@pytest.mark.parametrize(
    "solver",
    [ampsim.SyncSGD(2, backup_ranks=1), ampsim.LocalSGD(1, inner=ampsim.SyncSGD(2))],
    ids=["cancelled", "of a group"],
)
def test_caches_of_a_pass_are_told_where_another_rank_decides_when_it_ends(solver):
    faults, message = FAULTS["backward keeps what forward kept"]
    with pytest.raises(AmpsimError, match=message):
        ampsim.simulate(model(**faults), CLUSTER, solver)


class Half(NamedTuple):
    instance: int
    number: int


class Silent(Group):
    """Joins messages of different states, and does not say what they wait for."""

    joins = Node.joins


def halved(instance, batch):
    (port, _state, x), label = pump_arrays(instance, batch)
    return [*((port, Half(instance, n), x[2 * n :][:2]) for n in range(2)), label]


@pytest.mark.parametrize("schedule", [ampsim.Sequential(), ampsim.SyncSGD(1)])
def test_memory_of_a_node_that_does_not_say_what_it_joins_does_not_grow(schedule):
    def graph() -> Graph:
        made = Graph("net")
        x, label = made.controller(x=("rows", 2), label=("rows",))
        both = made.add(Silent("both", lambda half: (Instance(half.instance), half.number, 2)), x)
        made.end(SoftmaxCrossEntropy("loss"), made.add(Linear("last", 2, 2), both), label)
        return made

    once, thrice = (
        ampsim.simulate(
            replace(model(pump=halved), make_graph=graph), CLUSTER, schedule, epochs=epochs
        ).peak_bytes
        for epochs in (1, 3)
    )
    assert once.equals(thrice)


def sends(change):
    def pump(instance, batch):
        (port, state, x), label = pump_arrays(instance, batch)
        return [(port, state, change(x)), label]

    return pump


LAYER = r"first \(Linear\) failed .*expected \(rows, 2\) of numbers that go with float32, .* got "


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda x: (9 * x).astype(np.int64), r"int64\(4, 2\)"),
        (lambda x: x[:, :1].repeat(3, axis=1), r"float32\(4, 3\)"),
    ],
    ids=["int64", "three columns"],
)
def test_data_that_do_not_fit_the_first_layer_are_told(way, change, got):
    with pytest.raises(AmpsimError, match=LAYER + got):
        way(model(pump=sends(change)))


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda gradient: gradient.astype(np.float64), r"float64\(4, 2\)"),
        (lambda gradient: gradient.sum(axis=0), r"float32\(2,\)"),
    ],
    ids=["float64", "one row"],
)
def test_gradients_that_do_not_fit_a_layer_are_told(way, change, got):
    def backward(self, port, state, gradient):
        ((_port, _state, sent),) = Linear.backward(self, port, state, gradient)
        return [(0, state, sent if self.is_abstract else change(sent))]

    expected = r"first \(Linear\) .*expected inputs and gradients that give float32\(2, 2\), got .*"
    with pytest.raises(AmpsimError, match=expected + got):
        way(model(backward=backward))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_bytes_go_with_single_precision(way):
    way(replace(model(pump=sends(lambda x: (9 * abs(x)).astype(np.uint8))), target=0.01))


def writes_what_it_got(self, port, state, payload):
    if not self.is_abstract:
        payload *= 2
    return Linear.forward(self, port, state, payload)


def writes_what_came_back(self, port, state, gradient):
    if not self.is_abstract:
        gradient *= 2
    return Linear.backward(self, port, state, gradient)


@pytest.mark.parametrize(
    "faults", [{"forward": writes_what_it_got}, {"backward": writes_what_came_back}]
)
def test_a_trial_finds_who_writes_to_what_was_sent(faults):
    direction = next(iter(faults))
    message = rf"own \(Own\) failed serving {direction} .*: ValueError: .*read-only .*, line \d+\)$"
    with pytest.raises(AmpsimError, match=message):
        ampsim.try_out(model(**faults))


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
@pytest.mark.parametrize("correct", [5, -1])
def test_more_right_than_there_are_rows_are_refused(way, correct, monkeypatch):
    monkeypatch.setattr(OwnLoss, "correct", correct)
    message = rf"loss \(OwnLoss\) failed .*: expected 0 to 4 rows that are right, got {correct}$"
    with pytest.raises(AmpsimError, match=message):
        way(model(loss=OwnLoss))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_is_right_may_be_unknown(way, monkeypatch):
    monkeypatch.setattr(OwnLoss, "correct", None)
    way(replace(model(loss=OwnLoss), target=None))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_nothing_is_told_where_nothing_is_wrong(way):
    way(replace(model(), target=0.01))


@pytest.mark.parametrize(
    "ask",
    [
        lambda model: ampsim.explore(
            model, CLUSTER, ["sequential", "amp"], over={"workers": [1, 2]}, max_epochs=1, repeats=2
        ),
        lambda model: ampsim.whatif(model, CLUSTER, "amp", max_epochs=1, repeats=2),
    ],
    ids=["explore", "whatif"],
)
def test_a_question_says_why_all_of_its_runs_failed(ask):
    faults, message = FAULTS["no gradient"]  # which mode sleep does not ask for
    sentences = ask(model(**faults)).sentences
    assert any(
        re.match(rf"(\d+) of \1 runs failed, the first: {message}", one) for one in sentences
    )
    assert not any(one.startswith("No run reached") for one in sentences)


def test_a_graph_of_another_model_may_be_built_anew_each_time():
    """As by those who change a node of it; it has its weights already."""
    made = model()
    for _run in range(2):
        with_solver(replace(made, make_graph=made.graph))


@pytest.mark.parametrize("way", [*WAYS, with_solver], ids=lambda way: way.__name__)
@pytest.mark.parametrize("parts", ["graph", "nodes"])
def test_runs_that_would_share_a_graph_are_refused(way, parts):
    """Weights, counts and caches of one run were another's: numbers were wrong, or ranks one."""
    made = model()
    assert made.make_graph is not None
    graph = made.make_graph()
    nodes = [Linear("first", 2, 2), Linear("last", 2, 2)]

    def of_nodes() -> Graph:
        again = Graph("net")
        x, label = again.controller(x=("rows", 2), label=("rows",))
        again.end(SoftmaxCrossEntropy("loss"), again.add(nodes[1], again.add(nodes[0], x)), label)
        return again

    shared = replace(made, make_graph=(lambda: graph) if parts == "graph" else of_nodes)
    said = (
        "^make_graph of model net must build every node anew whenever it is called; it gave first"
    )
    with pytest.raises(AmpsimError, match=said):
        [way(shared) for _run in range(2)]  # of one alone nothing is shared
