"""What is learned in batches is what is learned live but for rounding; each time to the bit."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from covering import pairwise
from short_runs import MODELS, Few, schedule_of

import ampsim
from ampsim.data import ArrayDataset
from ampsim.hardware import Cluster, Device, Event, Link
from ampsim.ir import Graph, Partition
from ampsim.learning import batches, rows, why_by_message
from ampsim.learning.operations import OPERATIONS
from ampsim.learning.routes import ROUTES
from ampsim.model_parallel import SCHEDULES, needs_chain
from ampsim.nodes import Distribute, Linear, SoftmaxCrossEntropy, SquaredError
from ampsim.optim import sgd
from ampsim.runs import task as tasks
from ampsim.runs.task import RunPlan, Task
from ampsim.study.simulation import RunOptions, Simulation

SEED = 3
SLOW = Event(kind="slow", worker=1, from_s=1e-8, until_s=1.0, factor=7.0)
VARIES: dict[str, dict[str, Any]] = {
    "free links": {},
    "links": {"link": Link(latency_s=1e-7, bandwidth_bytes_per_s=1e9)},
    "slow": {"events": (SLOW,), "link": Link(latency_s=1e-8)},
}
GRAPHS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, options) for name, options in MODELS.items()},
    "dropped": ("tree_lstm", MODELS["tree_lstm"] | {"keep_probability": 0.6}),
    "composed": ("tree_lstm", MODELS["tree_lstm"] | {"cell": "composed"}),
    "by gate": ("tree_lstm", MODELS["tree_lstm"] | {"cell": "by-gate"}),
    "composed gru": ("ggnn", MODELS["ggnn"] | {"cell": "composed"}),
}
IN_BATCHES = sorted(set(GRAPHS) - {"lenet", "rnn", "dynamic_lstm", "lstm_mnist"})
"""The others have nodes without an operation of many rows, and are served by message."""

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "within": {"validate_every": 30},
    "off the clock": {"times_validation": False},
}
CASES = [
    case
    for case in pairwise(SCHEDULES, IN_BATCHES, VARIES, OPTIONS)
    if case[1] == "mlp" or not needs_chain(SCHEDULES[case[0]]())
]


@pytest.fixture
def any_rows(monkeypatch):
    """Batches also where messages have many rows each; rows move often in small arrays."""
    monkeypatch.setattr(batches, "FEW_ROWS", np.inf)
    monkeypatch.setattr(rows, "CAPACITY", 8)


@cache
def model_of(name: str, dtype: str = "float64", train: int = 5) -> Any:
    shipped, options = GRAPHS[name]
    whole = ampsim.load_model(shipped, **options, dtype=dtype)
    data = Few(whole.make_data(0, None), (("train", train), ("valid", 1)))
    return replace(whole, make_data=lambda _seed, _count: data, error_scale=1.0)


def cluster_of(varies: str) -> Cluster:
    one = Device(name="one", flop_per_s=1e12)
    return Cluster(name="some", devices=(one,) * 4, **VARIES[varies])


def result_of(
    model: Any, schedule: Any, varies: str = "links", epochs: int = 2, **options: Any
) -> Any:
    run = Simulation(model, cluster_of(varies), schedule, seed=SEED, **options)
    for _epoch in range(epochs):
        run.run_epoch()
    return run.result()


def weights_of(result: Any) -> np.ndarray:
    return np.concatenate([one.reshape(-1) for one in result.model.parameters().values()])


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_batches_learn_what_is_learned_live(case, any_rows):
    schedule, model, options = schedule_of(case[0]), model_of(case[1]), OPTIONS[case[3]]
    live = result_of(model, schedule, case[2], **options)
    found = result_of(model, schedule, case[2], learning="batched", **options)
    reads_latest = schedule.weights.versions is None and schedule.weights.remedy == "none"
    splits = schedule.order.splits_backward and not schedule.admission.drains
    if splits or not reads_latest:
        assert found.origin["arithmetic"] == "by message"
        assert found.digest == live.digest
        return
    assert found.origin["arithmetic"] == "batched"
    assert np.abs(weights_of(found) - weights_of(live)).max() <= 1e-12
    for told in ("loss", "accuracy", "absolute_error"):
        if told in live.validations:
            np.testing.assert_allclose(found.validations[told], live.validations[told], 1e-11)
    assert found.learning_digest == live.learning_digest


def two_losses(kind: Any, wanted: np.ndarray) -> Any:
    """Each message's rows go to one loss or to another, which may get none of them."""
    rng = np.random.default_rng(0)
    x, kinds = rng.normal(size=(64, 3)), (rng.random(64) < 0.25).astype(int)

    def graph() -> Graph:
        made = Graph("two losses")
        x, y, control = made.controller(x=("rows", 3), y=("rows", *wanted.shape[1:]), c=("rows",))
        guessed = made.branch(Distribute("guessed", 2), made.add(Linear("l", 3, 2), x), control)
        others = made.branch(Distribute("y", 2), y, control)
        for number, ends in enumerate(zip(guessed, others, strict=True)):
            made.end(kind(f"loss-{number}"), *ends)
        return made

    def pump(instance: int, batch: Any) -> list[Any]:
        x, y, kinds = batch.arrays
        ways = Partition([np.flatnonzero(kinds == one) for one in (0, 1)], size=len(x))
        return [("x", (instance,), x), ("y", (instance,), y), ("c", (instance,), ways)]

    train = x, wanted, kinds
    data = ArrayDataset(
        train=train, valid=tuple(one[:16] for one in train), batch=4, dtype="float64"
    )
    return ampsim.Model("two", None, graph, data.for_run, pump, sgd(0.5), dtype="float64")


@pytest.mark.parametrize("kind", [SoftmaxCrossEntropy, SquaredError])
def test_a_loss_that_gets_no_row_of_a_message_divides_the_others_by_theirs(kind):
    of_class = kind is SoftmaxCrossEntropy
    rng = np.random.default_rng(1)
    model = two_losses(kind, rng.integers(0, 2, 64) if of_class else rng.normal(size=(64, 2)))
    for schedule in (ampsim.GPipe(4), ampsim.Amp(8)):
        live = result_of(model, schedule)
        found = result_of(model, schedule, learning="batched")
        assert found.origin["arithmetic"] == "batched"
        assert np.abs(weights_of(found) - weights_of(live)).max() <= 1e-12


def classes_of(name: str) -> set[type]:
    return {type(node) for node in model_of(name).graph().nodes}


def test_every_class_of_the_registries_is_in_a_graph_that_is_compared():
    met = set().union(*(classes_of(name) for name in IN_BATCHES))
    assert {*OPERATIONS, *ROUTES} <= met


@pytest.mark.parametrize("name", ["tree_lstm", "bilstm_tagger", "ggnn"])
def test_single_precision_differs_by_rounding(name, any_rows):
    """Adam divides by a gradient's own size: where that is about 0, a rounding is a step."""
    schedule, model = ampsim.Amp(8), model_of(name, "float32", train=12)
    live, found = (
        weights_of(result_of(model, schedule, learning=how)).astype(np.float64)
        for how in ("live", "batched")
    )
    off = np.abs(found - live)
    assert off.max() > 0
    assert np.sqrt(np.mean(off**2)) <= 1e-6
    assert np.mean(off > 1e-5) <= 1e-3


def test_batches_give_the_same_bits_each_time(tmp_path):
    """Alone, kept, found, and in the order in which a schedule with other times had decided."""
    model, schedule = model_of("tree_lstm", "float32", train=9), ampsim.Amp(6)
    options: dict[str, Any] = {"learning": "batched"}
    first = result_of(model, schedule, **options)
    assert first.origin["arithmetic"] == "batched"
    for folder in (None, tmp_path, tmp_path):
        assert result_of(model, schedule, learnings=folder, **options).digest == first.digest
    drained = [
        weights_of(result_of(model, one, varies, **options)).tobytes()
        for one in (ampsim.Pipeline(4), ampsim.GPipe(4))
        for varies in VARIES
    ]
    assert len(set(drained)) == 1


def test_the_arithmetic_is_in_the_key_of_what_is_kept(tmp_path):
    model, schedule = model_of("tree_lstm", "float32", train=9), ampsim.Amp(6)
    alone = {how: result_of(model, schedule, learning=how) for how in ("apart", "batched")}
    assert alone["apart"].digest != alone["batched"].digest
    for how in ("apart", "batched"):
        found = result_of(model, schedule, learning=how, learnings=tmp_path)
        assert found.digest == alone[how].digest
    arithmetics = {how: one.origin["arithmetic"] for how, one in alone.items()}
    assert arithmetics == {"apart": "by message", "batched": "batched"}
    assert result_of(model, schedule).origin["arithmetic"] == "by message"


class OwnLinear(Linear):
    """As of a user, who may override a step."""


def with_own_node(model: Any) -> Any:
    def make_graph() -> Graph:
        graph = model.make_graph()
        (classifier,) = (node for node in graph.nodes if node.name == "classifier")
        classifier.__class__ = OwnLinear
        return graph

    return replace(model, make_graph=make_graph)


def test_a_node_without_an_operation_is_served_by_message_with_all_others():
    model, schedule = with_own_node(model_of("tree_lstm")), ampsim.Amp(4)
    found = result_of(model, schedule, learning="batched")
    assert found.origin["arithmetic"] == "by message"
    assert found.digest == result_of(model, schedule).digest


def why(model: Any, schedule: Any) -> str:
    run = Simulation(model, cluster_of("links"), schedule, seed=SEED)
    return run._subject.why_by_message()


RULES = {
    "own node": (lambda: with_own_node(model_of("tree_lstm")), ampsim.Amp(4), "OwnLinear"),
    "convolution": (lambda: model_of("lenet"), ampsim.Amp(4), "no operation of many rows"),
    "rows": (lambda: model_of("mlp"), ampsim.Amp(4), "100 rows in the mean, more than"),
    "versions": (lambda: model_of("mlp"), ampsim.PipeDream(4), "several versions"),
    "predicted": (
        lambda: model_of("tree_lstm"), ampsim.Amp(4, remedy="weight-prediction"), "latest",
    ),
    "trees": (lambda: model_of("tree_lstm"), ampsim.Amp(4), ""),
    "sentences": (lambda: model_of("bilstm_tagger"), ampsim.Amp(4), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_who_is_served_by_message_is_told_why(case):
    make, schedule, said = RULES[case]
    told = why(make(), schedule)
    assert (said in told) if said else (told == "")


def test_a_graph_is_as_it_was_when_it_has_been_looked_at():
    model = model_of("tree_lstm")
    graph = model.graph()
    batch = next(model.data(0, None).batches("train", epoch=0, seed=0))
    sends = [(0, *model.pump(0, batch)[0][1:]), (1, *model.pump(0, batch)[1][1:])]
    assert why_by_message(graph, sends) == ""
    assert all(node.is_training for node in graph.nodes)
    assert not any(list(node.pending()) for node in graph.nodes)


def test_what_diverges_in_batches_tells_what_it_tells_live(any_rows):
    whole = ampsim.load_model("mlp", data="synthetic", hidden=6, layers=3, learning_rate=1e9)
    plan = RunPlan(whole, cluster_of("links"), RunOptions(instances=300, learning="batched"))
    told_of = [
        Task(one, ampsim.Amp(3), SEED, "row", 1, 1).run(None)[1]
        for one in (plan, plan.having(learning="live"))
    ]
    assert told_of[0] == told_of[1] and "stopped being finite" in str(told_of[0])


def test_what_is_found_is_learned_again_in_the_same_arithmetic(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "CHECKED_OF", 1)
    options = RunOptions(learning="batched", learnings=tmp_path)
    plan = RunPlan(model_of("tree_lstm", "float32", train=9), cluster_of("links"), options)
    found = [Task(plan, ampsim.Amp(6), SEED, "row", 1, 1).run(None)[0] for _run in range(2)]
    assert found[0].digest == found[1].digest
    assert found[1].origin["arithmetic"] == "batched"


def test_weights_that_are_gone_are_learned_again_in_the_same_arithmetic(tmp_path):
    options = RunOptions(learning="batched", epochs=2)
    plan = RunPlan(model_of("tree_lstm", "float32", train=9), cluster_of("links"), options)

    def result(**others: Any) -> Any:
        return Task(plan.having(**others), ampsim.Amp(6), SEED, "row", 1, 1).run(None)[0]

    result(learnings=tmp_path, epochs=1)
    for file in tmp_path.glob("*.weights"):
        file.write_bytes(b"")
    assert result(learnings=tmp_path).digest == result().digest != result(learning="live").digest


def test_a_step_that_fails_is_named(any_rows):
    model = model_of("tree_lstm")

    def pump(instance: int, tree: Any) -> list[Any]:
        word, (port, state, labels) = model.pump(instance, tree)
        return [word, (port, state, labels + 5)]

    broken = replace(model, pump=pump)
    for how in ("live", "batched"):
        with pytest.raises(
            ampsim.errors.SimulationError, match=r"loss .*failed .*serving forward At"
        ):
            result_of(broken, ampsim.Amp(4), learning=how)
