"""Model files as programs: by messages, with loops in the graph, and unrolled, they learn alike."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import flow, ir, nodes, optim
from ampsim.data import pump_arrays
from ampsim.dataflow import PROGRAMS
from ampsim.errors import DivergenceError, GraphError, OptionError, OutOfMemoryError
from ampsim.hardware import Cluster, Device
from ampsim.study.model import variables_of

OPTIONS: dict[str, dict[str, Any]] = {
    "rnn": {"hidden": 6, "batch": 5, "replicas": 1, "learning_rate": 0.01},
    "mlp": {"hidden": 7, "layers": 3, "batch": 5, "data": "synthetic", "valid_images": 20},
    "lstm_mnist": {"hidden": 4, "batch": 5, "data": "synthetic", "valid_images": 20},
    "dynamic_lstm": {"hidden": 4, "layers": 1, "length": 7, "batch": 5},
    "dynamic_lstm, 2 layers": {"hidden": 4, "layers": 2, "length": 7, "batch": 5},
}
LONG = {"lstm_mnist": 40}
MORE_FLOP = {
    "lstm_mnist": 2 * 4 * 16, "dynamic_lstm": 2 * 4 * 16, "dynamic_lstm, 2 layers": 2 * 2 * 4 * 16,
}  # fmt: skip
"""Of a training item: the gradient of the first state, which the cell's node leaves out, and a loop
has as any other."""

INSTANCES = 100
WAYS = {
    "dataflow": ampsim.Dataflow(),
    "one iteration at a time": ampsim.Dataflow(parallel_iterations=1),
    "unrolled": ampsim.Unrolled(),
    "out of graph": ampsim.OutOfGraph(),
}


def made(name: str, **more: Any) -> Any:
    options = {"dtype": "float64", **OPTIONS[name], **more}
    return ampsim.load_model(name.split(",")[0], **options)


def trained(model: Any, schedule: Any, **more: Any) -> Any:
    more = {"instances": LONG.get(model.name, INSTANCES)} | more
    return ampsim.simulate(model, more.pop("cluster", "tflops-1"), schedule, **more)


TEN = 50
"""Instances of an epoch of ten steps."""


@cache
def by_messages(name: str) -> Any:
    """Twenty steps in two epochs, which all ways are compared with; nobody changes the result."""
    return trained(made(name), ampsim.Sequential(), epochs=2, instances=TEN)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_20_steps_are_those_of_messages_and_cost_as_much(name, way):
    """And the losses and accuracies of both epochs; Appendix C charges the same FLOP."""
    model, expected = made(name), by_messages(name)
    assert 2 * model.data(0, TEN).batch_count("train") >= 20
    result = trained(model, WAYS[way], epochs=2, instances=TEN)
    for key, value in expected.model.parameters().items():
        assert np.abs(result.model.parameters()[key] - value).max() <= 1e-12, key
    learned = ["loss", "accuracy", "train_accuracy", "valid_loss", "instances", "valid_instances"]
    gap = result.epochs[learned].to_numpy() - expected.epochs[learned].to_numpy()
    assert np.abs(gap).max() <= 1e-12
    more = MORE_FLOP.get(name, 0) * int(expected.epochs["instances"].sum())
    assert int(result.spans["flop"].sum()) == int(expected.spans["flop"].sum()) + more
    steps = 2 * model.data(0, TEN).batch_count("train")
    assert set(Counter(result.updates["node"]).values()) == {steps}
    assert (result.staleness_mean, result.staleness_max) == (0.0, 0)


@cache
def subtracted(name: str, way: str) -> dict[str, np.ndarray]:
    """What one step at a rate of 1 subtracts from each parameter; nobody changes it."""
    model = replace(made(name), optimizer=optim.sgd(1.0))
    schedule = WAYS.get(way, ampsim.Sequential())
    result = ampsim.simulate(model, "tflops-1", schedule, instances=OPTIONS[name]["batch"])
    after = result.model.parameters()
    return {key: value - after[key] for key, value in model.parameters().items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_gradient_is_that_of_messages(name, way):
    """A step of gradient descent at a rate of 1 subtracts it."""
    steps = subtracted(name, "messages"), subtracted(name, way)
    assert steps[0].keys() == made(name).parameters().keys()
    for key in steps[0]:
        expected, found = (one[key] for one in steps)
        assert np.abs(expected).max() > 0, key
        assert np.abs(found - expected).max() <= 1e-12, key


def test_replicas_are_one_layer_that_all_have():
    model = made("rnn", replicas=3)
    single = trained(made("rnn"), ampsim.Dataflow()).model.parameters()
    several = trained(model, ampsim.Dataflow()).model.parameters()
    for copy in range(3):
        name = f"linear-1.{copy}.weight"
        assert np.abs(several[name] - single["linear-1.weight"]).max() <= 1e-15


def gradients(model: Any, batch: Any) -> dict[str, np.ndarray]:
    """Gradients of a program, by the names of its variables."""
    program, values = model.program, variables_of(model.graph())
    with flow.FlowGraph() as graph:
        loss = program.build().loss
        held = {node.name: node.outputs[0] for node in graph.given.values() if node.name in values}
        slopes = flow.gradients(loss, list(held.values()))
        flow.set_variables(graph, values)
    found = flow.run(slopes, program.feed(batch)).values
    return dict(zip(held, found, strict=True))


def torch_recall(torch: Any, p: Any, batch: Any) -> Any:
    """The loss of `dynamic_lstm`, one step after the other."""
    layers, hidden = sum(key.endswith("weight") for key in p) - 2, 4
    zeros = torch.zeros((batch.rows, hidden), dtype=torch.float64)
    states, said = [(zeros, zeros)] * layers, []
    for symbols in torch.tensor(batch.symbols):
        x, after = p["embedding.weight"][symbols], []
        for layer, (h, c) in enumerate(states, 1):
            name = f"lstm-{layer}"
            gates = torch.cat([x, h], dim=1) @ p[f"{name}.weight"] + p[f"{name}.bias"]
            o, i, f, g = gates.split(hidden, dim=1)
            c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
            x = torch.sigmoid(o) * torch.tanh(c)
            after.append((x, c))
        states = after
        said.append(x)
    logits = torch.cat(said) @ p["linear.weight"] + p["linear.bias"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))


def torch_loss(torch: Any, name: str, p: Any, batch: Any) -> Any:
    if name.startswith("dynamic_lstm"):
        return torch_recall(torch, p, batch)
    if name == "rnn":
        state = torch.zeros((batch.rows, 6), dtype=torch.float64)
        for row in torch.tensor(batch.tokens):
            joined = torch.cat([state, p["embedding.weight"][row]], dim=1)
            state = torch.relu(joined @ p["linear-1.weight"] + p["linear-1.bias"])
        logits = state @ p["linear-2.weight"] + p["linear-2.bias"]
        return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))
    if name == "lstm_mnist":
        h = c = torch.zeros((batch.rows, 4), dtype=torch.float64)
        for row in torch.tensor(batch.images).reshape(-1, 28, 28).swapaxes(0, 1):
            x = row @ p["linear-1.weight"] + p["linear-1.bias"]
            gates = torch.cat([x, h], dim=1) @ p["lstm.weight"] + p["lstm.bias"]
            o, i, f, g = gates.split(4, dim=1)
            c = torch.sigmoid(i) * torch.tanh(g) + torch.sigmoid(f) * c
            h = torch.sigmoid(o) * torch.tanh(c)
        logits = h @ p["linear-2.weight"] + p["linear-2.bias"]
        return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))
    x = torch.tensor(batch.images)
    for layer in (1, 2):
        x = torch.relu(x @ p[f"linear-{layer}.weight"] + p[f"linear-{layer}.bias"])
    logits = x @ p["linear-3.weight"] + p["linear-3.bias"]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(batch.labels))


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_equal_those_of_torch(name):
    torch = pytest.importorskip("torch")
    model = made(name)
    for batch in itertools.islice(model.data(0, 50).batches("train", epoch=0, seed=0), 5):
        p = {
            key: torch.tensor(value, requires_grad=True)
            for key, value in model.parameters().items()
        }
        torch_loss(torch, name, p, batch).backward()
        for key, slope in gradients(model, batch).items():
            assert np.abs(slope - p[key].grad.numpy()).max() <= 1e-10, key


# --- what a user sees of a run


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("model", OPTIONS)
def test_sleep_has_the_times_of_numeric(model, name):
    both = [
        trained(made(model, dtype="float32"), name, mode=mode, cluster="p100", instances=20)
        for mode in ("numeric", "sleep")
    ]
    numeric, sleep = (one.spans.drop(columns="state") for one in both)
    assert numeric.equals(sleep)
    assert np.isnan(both[1].epochs["loss"]).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_critical_path_goes_back_to_the_start_without_a_gap(name):
    result = trained(made("rnn"), name)
    path = result.critical_path
    assert path["start_s"].iloc[0] == 0
    assert path["end_s"].iloc[-1] == result.makespan_s
    assert np.array_equal(path["start_s"].to_numpy()[1:], path["end_s"].to_numpy()[:-1])
    assert (result.time_by_node["worker"] == 0).all()


def test_a_client_takes_its_round_trip_for_each_predicate():
    """Length + 1 decisions forward and, of training, as many backward; all else waits meanwhile."""
    model = made("rnn")
    trip_s = 1e-3
    outside = trained(model, ampsim.OutOfGraph(round_trip_s=trip_s))
    inside = trained(model, ampsim.Dataflow())
    data = model.data(0, INSTANCES)
    steps = {
        split: sum(b.steps + 1 for b in data.batches(split, epoch=0, seed=0))
        for split in ("train", "valid")
    }
    decisions = 2 * steps["train"] + steps["valid"]
    assert len(outside.transfers) == 2 * decisions
    assert not len(inside.transfers)
    extra_s = outside.makespan_s - inside.makespan_s
    assert 0 <= decisions * trip_s - extra_s <= inside.makespan_s  # a kernel may go on meanwhile


def branched(flag: Any, x: Any) -> Any:
    return flow.cond(flag, lambda: flow.tanh(x), lambda: flow.relu(x))


def looped(n: Any, x: Any) -> Any:
    return flow.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + y), (0, x))[1]


def apart(n: Any, x: Any) -> Any:
    with flow.device(0):
        flag = n > 2
    return branched(flag, x)


def from_outside(n: Any, x: Any) -> Any:
    flag = n > 2
    return flow.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, branched(flag, y)), (0, x))[1]


def carried(n: Any, x: Any) -> Any:
    def body(on: Any, i: Any, y: Any) -> Any:
        return i + 1 < n, i + 1, y + y

    return flow.while_loop(lambda on, i, y: on, body, (n > 0, 0, x))[2]


def carried_in(n: Any, x: Any) -> Any:
    def body(i: Any, on: Any, y: Any) -> Any:
        return i + 1, i > 0, branched(on, y)

    return flow.while_loop(lambda i, on, y: i < n, body, (0, n > 2, x))[2]


def from_a_branch(n: Any, x: Any) -> Any:
    return branched(flow.cond(n > 1, lambda: n > 2, lambda: n > 5), x)


def from_a_loop(n: Any, x: Any) -> Any:
    _, flag = flow.while_loop(lambda i, on: i < n, lambda i, on: (i + 1, i > 1), (0, n > 5))
    return branched(flag, x)


def on_two_workers(n: Any, x: Any) -> Any:
    with flow.device(0):
        other = looped(n, flow.relu(x))
    return looped(n, x) + other


ASKED: dict[Any, int] = {
    apart: 1, from_outside: 5, carried: 4, carried_in: 8, from_a_branch: 2, from_a_loop: 5,
    on_two_workers: 8,
}  # fmt: skip
"""Predicates that a client reads of an instance with n = 3; a loop that goes round n times has one
more."""


@pytest.mark.parametrize("decides", ASKED, ids=lambda one: one.__name__)
def test_a_client_reads_each_predicate_wherever_it_is_made_and_one_at_a_time(decides):
    def build() -> flow.Objective:
        x, label = flow.input("x", (None, 784), "float64"), flow.input("label", (None,), "int64")
        n = flow.input("n", (), "int64")
        with flow.device(1):
            logits = flow.linear("linear-1", x, 10)
            logits = logits + flow.stop_gradient(decides(n, logits))
        return flow.Objective(flow.softmax_cross_entropy(logits, label))

    def feed(batch: Any) -> dict[str, Any]:
        return {"x": batch.images, "label": batch.labels, "n": 3}

    model = replace(made("mlp", layers=1), make_program=lambda: flow.Program(build, feed))
    free = Cluster(name="two", devices=(Device(name="free", flop_per_s=1e24),) * 2)
    result = trained(model, ampsim.OutOfGraph(round_trip_s=1e-3), instances=10, cluster=free)
    data = model.data(0, 10)
    asked = ASKED[decides] * sum(data.batch_count(split) for split in ("train", "valid"))
    assert len(result.transfers) == 2 * asked
    assert result.makespan_s == pytest.approx(asked * 1e-3, rel=1e-9)
    path = result.critical_path
    assert (path["end_s"] - path["start_s"])[path["kind"] == "transfer"].sum() == pytest.approx(
        asked * 1e-3, rel=1e-9
    )


def test_the_host_hides_behind_the_device_in_the_graph_alone():
    """With `dispatch_s`: out of the graph both take turns; unrolled there is less to issue."""
    device = Device(name="gpu", flop_per_s=1e9, dispatch_s=1e-6)
    cluster = Cluster(name="one", devices=(device,))
    model = made("rnn", batch=20)
    inside, unrolled, outside = (
        trained(model, one, cluster=cluster).makespan_s
        for one in (ampsim.Dataflow(), ampsim.Unrolled(), ampsim.OutOfGraph(round_trip_s=0.0))
    )
    assert unrolled < inside < outside


@pytest.mark.slow
def test_what_control_flow_costs_the_host_is_hidden_by_larger_batches():
    """F7: in-graph over unrolled, for more and more work an operator, falls to 1."""
    device = Device(name="gpu", flop_per_s=1e9, dispatch_s=1e-6)
    cluster = Cluster(name="one", devices=(device,))
    ratios: list[float] = []
    for batch in (10, 100, 1000):
        model = ampsim.load_model("rnn", hidden=16, replicas=1, batch=batch)
        inside, unrolled = (
            ampsim.simulate(model, cluster, one, instances=2 * batch, mode="sleep").makespan_s
            for one in (ampsim.Dataflow(), ampsim.Unrolled())
        )
        ratios.append(inside / unrolled)
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 1.5
    assert 1 <= ratios[-1] < 1.02


def test_memory_is_counted_and_ends():
    def cluster(memory_bytes: int) -> Cluster:
        device = Device(name="small", flop_per_s=1e9, memory_bytes=memory_bytes)
        return Cluster(name="one", devices=(device,))

    model = made("rnn")
    run = partial(trained, model, instances=30)
    peaks = {name: int(run(name, cluster=cluster(10**7)).peak_bytes[0]) for name in PROGRAMS}
    parameters = 8 * sum(one.size for one in model.parameters().values())
    for name, peak in peaks.items():
        assert peak > 4 * parameters, name  # Adam keeps two arrays, and a step writes a new one
        assert run(name, cluster=cluster(peak)).peak_bytes[0] == peak
        with pytest.raises(OutOfMemoryError, match=r"worker 0 \(small\) is out of memory"):
            run(name, cluster=cluster(peak - 1))
    row = ampsim.forecast(
        model, cluster(peak - 1), name, instances=30, max_epochs=1, repeats=1, target=0.5
    ).table.iloc[0]
    assert row["note"].startswith("1 of 1 runs failed: worker 0 (small) is out of memory")
    assert 4 * parameters < row["peak_bytes"] < peak  # what lay there


def test_swapping_trains_the_same_in_less_memory():
    def cluster(memory_bytes: int) -> Cluster:
        numbers = {"flop_per_s": 1e9, "copy_bandwidth_bytes_per_s": 1e9}
        device = Device(name="small", memory_bytes=memory_bytes, **numbers)
        return Cluster(name="one", devices=(device,))

    model = made("rnn", hidden=32, batch=50)
    whole = ampsim.simulate(model, cluster(10**8), ampsim.Dataflow(), instances=300)
    room = cluster(int(whole.peak_bytes[0] * 0.95))
    with pytest.raises(OutOfMemoryError):
        ampsim.simulate(model, room, ampsim.Dataflow(), instances=300)
    swapped = ampsim.simulate(
        model, room, ampsim.Dataflow(swap_memory=True, swap_threshold=0.2), instances=300
    )
    assert "copy-out" in set(swapped.spans["lane"])
    for key, value in whole.model.parameters().items():
        assert np.array_equal(swapped.model.parameters()[key], value)


def test_each_device_that_takes_part_must_be_able_to_swap():
    numbers: dict[str, Any] = {"flop_per_s": 1e9, "memory_bytes": 10**6}
    first = Device(name="first", copy_bandwidth_bytes_per_s=1e9, **numbers)
    second = Device(name="second", **numbers)
    model = ampsim.load_model("dynamic_lstm", layers=2, devices=2, hidden=8, length=3)
    with pytest.raises(
        OptionError, match=r"^dataflow: swap_memory needs copy_.* and second has none; add"
    ):
        ampsim.simulate(
            model, Cluster(name="two", devices=(first, second)),
            ampsim.Dataflow(swap_memory=True), instances=50, mode="sleep",
        )  # fmt: skip


def test_forecasts_have_rows_of_programs():
    forecast = ampsim.forecast(
        made("rnn"), "tflops-1", schedules="sequential,dataflow,unrolled,out-of-graph",
        instances=30, target=0.01, max_epochs=1, repeats=1,
    )  # fmt: skip
    table = forecast.table.set_index("schedule")
    assert list(table.index) == ["sequential", *PROGRAMS]
    assert (table["train_per_s"].to_numpy(float) > 0).all()
    per_s = dict(zip(table.index, table["train_per_s"].to_numpy(float), strict=True))
    assert per_s["out-of-graph"] < per_s["dataflow"]


def test_more_devices_than_one_are_said_to_be_idle():
    cluster = ampsim.load_cluster("tflops-1", workers=4)
    result = trained(made("mlp"), ampsim.Dataflow(), cluster=cluster)
    assert result.origin["assumptions"] == ["dataflow runs the program on the first of 4 devices"]
    assert set(result.spans["worker"]) == {0}


# --- a model file of one's own


def fed(batch: Any) -> dict[str, Any]:
    return dict(zip(("x", "label"), batch.arrays, strict=True))


def tiny(**more: Any) -> Any:
    """A linear classifier."""

    def graph() -> ir.Graph:
        made = ir.Graph("tiny")
        x, label = made.controller(x=("rows", 4), label=("rows",))
        made.end(nodes.SoftmaxCrossEntropy("loss"), made.add(nodes.Linear("layer", 4, 3), x), label)
        return made

    def program() -> flow.Program:
        def build() -> flow.Objective:
            x, label = flow.input("x", (None, 4)), flow.input("label", (None,), "int64")
            logits = flow.linear(more.get("layer", "layer"), x, 3)
            loss = flow.softmax_cross_entropy(logits, label) + more.get("shift", 0.0)
            return flow.Objective(loss)

        return flow.Program(
            build, lambda batch: dict(zip(("x", "label"), batch.arrays, strict=True))
        )

    rng = np.random.default_rng(0)
    x, label = rng.normal(size=(40, 4)), rng.integers(0, 3, 40)

    def data(seed: int, count: int | None) -> Any:
        return ampsim.ArrayDataset((x, label), (x[:10], label[:10]), batch=5, dtype="float64")

    made: Any = more.get("make_program", program)
    return ampsim.Model(
        "tiny", None, graph, data, pump_arrays, optim.sgd(0.1), dtype="float64",
        make_program=made,
    )  # fmt: skip


def refused(kind: type[Exception], text: str, model: Any) -> None:
    with pytest.raises(kind, match=text) as raised:
        ampsim.simulate(model, "tflops-1", "dataflow")
    assert "\n" not in str(raised.value)


def test_what_is_no_program_of_the_model_is_refused():
    refused(
        OptionError,
        r"^model tiny has no program; give make_program in its file .* such as sequential$",
        tiny(make_program=None),
    )
    refused(
        GraphError,
        r"^make_program of model tiny must return a flow.Program, got int",
        tiny(make_program=lambda: 3),
    )
    refused(
        GraphError, r"must have the parameters .* got no variable for 'layer.bias'; call a layer",
        tiny(layer="other"),
    )  # fmt: skip
    refused(
        DivergenceError, r"^the loss became inf for instance 0 at .* s; try a lower learning rate",
        tiny(shift=np.inf),
    )  # fmt: skip
    with pytest.raises(GraphError, match="got no variable for"):
        ampsim.try_out(tiny(layer="other"))


def own_training(train: Any) -> Any:
    """The linear classifier, validated by twice its loss; `train` is given how that is built."""
    inputs: list[flow.Tensor] = []

    def loss() -> flow.Tensor:
        return flow.softmax_cross_entropy(flow.linear("layer", inputs[-2], 3), inputs[-1])

    def build() -> flow.Objective:
        inputs.extend([flow.input("x", (None, 4)), flow.input("label", (None,), "int64")])
        return flow.Objective(loss() * 2.0)

    program = flow.Program(build, fed, lambda minimize: train(loss, minimize))
    return replace(tiny(), make_program=lambda: program)


def test_a_program_may_say_what_training_does():
    """In a branch that is always taken it learns what others learn."""

    def train(loss: Any, minimize: Any) -> flow.Objective:
        measured = loss()
        never = flow.constant(False)
        done = flow.cond(measured < 100.0, lambda: minimize(loss()), lambda: never)
        return flow.Objective(measured, done=done)

    own = ampsim.simulate(own_training(train), "tflops-1", "dataflow", epochs=2)
    usual = ampsim.simulate(tiny(), "tflops-1", "dataflow", epochs=2)
    for key, value in usual.model.parameters().items():
        assert np.array_equal(own.model.parameters()[key], value), key
    assert np.array_equal(own.epochs["loss"], usual.epochs["loss"])
    assert np.array_equal(own.epochs["valid_loss"], 2 * usual.epochs["valid_loss"])


def test_training_that_steps_nothing_is_refused():
    text = r"^train of a program must run what its minimize gives, .*; return that in done=$"
    with pytest.raises(GraphError, match=text):
        ampsim.simulate(
            own_training(lambda loss, minimize: flow.Objective(loss())), "tflops-1", "dataflow"
        )


def test_a_loop_that_decides_by_numbers_cannot_be_unrolled():
    def build() -> flow.Objective:
        x, label = flow.input("x", (None, 4)), flow.input("label", (None,), "int64")
        (y,) = flow.while_loop(lambda y: flow.sum(y) > 1e9, lambda y: (y * 0.5,), (x,))
        return flow.Objective(flow.softmax_cross_entropy(flow.linear("layer", y, 3), label))

    program = flow.Program(
        build, lambda batch: dict(zip(("x", "label"), batch.arrays, strict=True))
    )
    model = replace(tiny(), make_program=lambda: program)
    ampsim.simulate(model, "tflops-1", "dataflow")
    with pytest.raises(
        GraphError, match=r"greater-1 .* is not known before the program runs, .* by dataflow"
    ):
        ampsim.simulate(model, "tflops-1", "unrolled")
