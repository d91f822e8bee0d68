"""Whatever a user's code raises, and wherever, is one line with the user's own file and line."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from covering import together

import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.errors import AmpsimError, OptionError, SimulationError
from ampsim.ir import Graph, Isu
from ampsim.nodes import Linear, ReLU, SoftmaxCrossEntropy
from ampsim.optim import sgd
from ampsim.user_code import place_of, told


class Abandon(BaseException):
    """As wide as KeyboardInterrupt, and nobody's Ctrl-C."""


RAISED = [
    ValueError("a\n  b"),
    OSError(28, "No space left on device"),
    BrokenPipeError(32, "Broken pipe"),
    ConnectionError("gone"),
    StopIteration(3),
    MemoryError(),
    RecursionError("deep"),
    AssertionError(),
    SystemExit(3),
    GeneratorExit(),
    Abandon("so"),
]

DATA = ArrayDataset(
    (np.ones((8, 2)), np.zeros(8, int)), (np.ones((4, 2)), np.zeros(4, int)), batch=4
)


class Rows:
    """A batch whose number of rows is asked from a user's property."""

    def __init__(self, batch, faulty):
        self.arrays, self._faulty = batch.arrays, faulty

    @property
    def rows(self):
        self._faulty("rows")
        return len(self.arrays[0])


class Faulty:
    """Raises in one of a model's functions, the one that is named."""

    def __init__(self, where, error):
        self.where, self.error = where, error

    def __call__(self, here):
        if here == self.where:
            raise self.error

    def model(self):
        def make_data(seed, count):
            self("make_data")
            return data

        def batches(split, *, epoch, seed):
            self("batches")
            for batch in DATA.batches(split, epoch=epoch, seed=seed):
                yield Rows(batch, self)
                self("next batch")

        def count(split):
            self("count")
            return DATA.count(split)

        data: Any = SimpleNamespace(
            name="own", count=count, batches=batches, batch_count=DATA.batch_count
        )

        def pump(instance, batch):
            self("pump")
            return pump_arrays(instance, batch)

        def scale(given):
            assert given is data
            self("error_scale")
            return 1.0

        def rate(epoch):
            self("rate")
            return 0.1

        return ampsim.Model("own", None, self.graph, make_data, pump, sgd(rate), error_scale=scale)

    def graph(self):
        self("make_graph")
        fault = self

        class Own(Linear):
            def forward(self, port, state, payload):
                fault("forward")
                return super().forward(port, state, payload)

            def backward(self, port, state, gradient):
                fault("backward")
                return super().backward(port, state, gradient)

            def take_gradient(self):
                fault("update")
                return super().take_gradient()

            def work(self, direction, shape):
                fault("work")
                return super().work(direction, shape)

            def initialise(self, generator):
                fault("initialise")
                return super().initialise(generator)

            def check(self, shapes):
                fault("check")
                return super().check(shapes)

        graph = Graph("own")
        x, label = graph.controller(x=("rows", 2), label=("rows",))
        graph.end(SoftmaxCrossEntropy("loss"), graph.add(Own("linear", 2, 2), x), label)
        return graph


PLACES = [
    "make_graph", "check", "initialise", "make_data", "count", "batches", "rows", "next batch",
    "pump",
    "error_scale", "rate", "forward", "backward", "update", "work",
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    return ampsim.load_cluster("tflops-1", workers=2)


def test_nothing_fails_where_nothing_is_raised(cluster):
    result = ampsim.simulate(Faulty("", None).model(), cluster, ampsim.Amp(2))
    assert len(result.epochs) == 1


@together(
    "where, error, schedule",
    [
        (where, error, ampsim.Amp(2, max_group=group))
        for where in PLACES
        for error in RAISED
        for group in (1, 4)
        if group == 1 or where in ("forward", "backward", "update", "work")
    ],
)
def test_what_a_user_s_code_raises_is_one_line_with_file_and_line(cluster, where, error, schedule):
    with pytest.raises(AmpsimError) as caught:
        ampsim.simulate(Faulty(where, error).model(), cluster, schedule)
    text = str(caught.value)
    assert "\n" not in text
    assert type(error).__name__ in text or (isinstance(error, StopIteration) and "batch" in where)
    assert re.search(r"\([^()]*test_user_code\.py, line \d+\)$", text), text


@pytest.mark.parametrize("where", ["make_data", "next batch", "pump", "forward", "work"])
def test_ctrl_c_stays_ctrl_c(cluster, where):
    with pytest.raises(KeyboardInterrupt):
        ampsim.simulate(Faulty(where, KeyboardInterrupt()).model(), cluster, ampsim.Amp(2))


@pytest.mark.parametrize("where", [place for place in PLACES if place != "error_scale"])
def test_trying_a_model_out_tells_the_same(where):
    if where in ("count", "update"):  # not asked for
        return
    with pytest.raises(AmpsimError, match=r"SystemExit: 3 \([^()]*test_user_code\.py, line \d+\)$"):
        ampsim.try_out(Faulty(where, SystemExit(3)).model())


@pytest.mark.parametrize(
    ("given", "shown"), [(None, "None"), (3, "a int"), (ArrayDataset, "the class ArrayDataset")]
)
def test_data_that_are_none_are_refused_with_a_remedy(cluster, given, shown):
    model = replace(Faulty("", None).model(), make_data=lambda seed, count: given)
    text = (
        "make_data of model own must return a data set with count, batch_count, batches, got "
        f"{shown}; ampsim.ArrayDataset makes one of arrays"
    )
    for run in (
        lambda: ampsim.simulate(model, cluster, ampsim.Amp(2)),
        lambda: ampsim.try_out(model),
    ):
        with pytest.raises(OptionError) as caught:
            run()
        assert str(caught.value) == text


@pytest.mark.parametrize("count", [None, -1, 2.5, "8", True])
def test_a_count_that_is_none_is_refused(cluster, count):
    data = SimpleNamespace(count=lambda split: count, batches=DATA.batches, batch_count=len)
    model = replace(Faulty("", None).model(), make_data=lambda *_: data, error_scale=1.0)
    with pytest.raises(
        SimulationError, match=r"^count\('train'\) of the data of model own must be"
    ):
        ampsim.simulate(model, cluster, ampsim.Amp(2))


@pytest.mark.parametrize(
    "batch", [None, (1, 2), SimpleNamespace(rows="3"), SimpleNamespace(rows=-1)]
)
def test_a_batch_without_rows_is_told(cluster, batch):
    data = SimpleNamespace(
        count=DATA.count, batches=lambda *_, **__: [batch], batch_count=DATA.batch_count
    )
    model = replace(Faulty("", None).model(), make_data=lambda *_: data, error_scale=1.0)
    with pytest.raises(SimulationError, match=r"a batch must have rows, its number of items$"):
        ampsim.simulate(model, cluster, ampsim.Amp(2))


STATE = (
    "expected a state that is a NamedTuple, its first field the instance, got the int 0; "
    "declare one, as in class Token(NamedTuple): instance: int, and send Token(instance)"
)


def test_a_pump_whose_states_are_numbers_says_what_to_do(cluster):
    model = replace(
        Faulty("", None).model(), pump=lambda i, b: [(p, i, a) for p, a in enumerate(b.arrays)]
    )
    with pytest.raises(SimulationError) as caught:
        ampsim.simulate(model, cluster, ampsim.Amp(2))
    assert str(caught.value) == f"the model's pump failed for instance 0: {STATE}"


@pytest.mark.parametrize("state", [([0],), (0, [1]), (0, {}), (0, np.zeros(2))])
def test_a_state_that_can_be_no_key_is_told(cluster, state):
    model = replace(
        Faulty("", None).model(), pump=lambda i, b: [(p, state, a) for p, a in enumerate(b.arrays)]
    )
    with pytest.raises(SimulationError, match=r"expected a state of numbers, .* unhashable type"):
        ampsim.simulate(model, cluster, ampsim.Amp(2))


class Numbers(ReLU):
    """Sends states that are the bare number of the instance."""

    def forward(self, port, state, payload):
        return [
            (port, state[0], payload)
            for port, _state, payload in super().forward(port, state, payload)
        ]


@pytest.mark.parametrize("mode", ["numeric", "sleep"])
@pytest.mark.parametrize(
    "kind",
    [lambda: Numbers("own"), lambda: Isu("own", lambda s: s[0], lambda i: (i,))],
    ids=["node", "isu"],
)
def test_a_node_whose_states_are_numbers_is_told_whoever_stumbles(cluster, kind, mode):
    def graph():
        graph = Graph("own")
        x, label = graph.controller(x=("rows", 2), label=("rows",))
        wire = graph.add(Linear("linear", 2, 2), graph.add(kind(), x))
        graph.end(SoftmaxCrossEntropy("loss"), wire, label)
        return graph

    model = replace(Faulty("", None).model(), make_graph=graph)
    with pytest.raises(SimulationError) as caught:
        ampsim.simulate(model, cluster, ampsim.Amp(2), mode=mode)
    assert "\n" not in str(caught.value)
    assert caught.value.partial is not None
    assert len(caught.value.partial.spans) > 0


def test_an_exception_that_cannot_be_shown_is_told_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert told(Mute()) == "Mute: which cannot be shown"
    assert told(ValueError("x" * 10_000)).endswith("x...")
    assert place_of(ValueError()) is None
