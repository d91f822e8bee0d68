"""A model that is a program only: what runs it, and what says that it needs a graph of messages."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ampsim
from ampsim import flow, nodes
from ampsim.data import pump_arrays
from ampsim.data_parallel import SOLVERS
from ampsim.errors import GraphError, OptionError
from ampsim.forecasting.forecast import cc_ratio
from ampsim.model_parallel import SCHEDULES

FILE = '''"""A choice by its own numbers."""

from dataclasses import dataclass

import numpy as np

import ampsim
from ampsim import flow, nodes, optim


@dataclass(frozen=True)
class Config:
    rows: int = 5


def program():
    def build():
        x, label = flow.input("x", (None, 4)), flow.input("label", (None,), "int64")
        logits = flow.linear("layer", x, 3)
        logits = flow.cond(flow.sum(logits) > 0.0, lambda: logits * 2.0, lambda: logits)
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    return flow.Program(build, lambda batch: dict(zip(("x", "label"), batch.arrays, strict=True)))


def data(config, seed):
    rng = np.random.default_rng(seed)
    x, label = rng.normal(size=(40, 4)), rng.integers(0, 3, 40)
    return ampsim.ArrayDataset((x, label), (x[:10], label[:10]), batch=config.rows, dtype="float64")


def build(config):
    return ampsim.Model(
        "choice", config, None, lambda seed, count: data(config, seed), None, optim.sgd(0.1),
        dtype="float64", make_program=program, make_layers=lambda: [nodes.Linear("layer", 4, 3)],
    )
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "choice.py"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def model(file: Path) -> Any:
    return ampsim.load_model(file)


def counted() -> flow.Program:
    """What goes on by numbers that are fed for that alone."""

    def build() -> flow.Objective:
        x, label = flow.input("x", (None, 4)), flow.input("label", (None,), "int64")
        trips, is_even = flow.input("trips", (), "int64"), flow.input("is_even", (), "bool")
        given = flow.linear("layer", x, 3)
        factor = flow.cond(is_even, lambda: 2, lambda: 3)
        assert factor.shape == ()

        def body(i: Any, y: Any) -> Any:
            return i + 1, y * factor + given

        _, logits = flow.while_loop(lambda i, y: i < trips, body, (0, given))
        loss = flow.softmax_cross_entropy(logits, label)
        return flow.Objective(loss, flow.count_right(logits, label))

    def feed(batch: Any) -> dict[str, Any]:
        x, label = batch.arrays
        trips = int(label.sum()) % 3
        return {"x": x, "label": label, "trips": trips, "is_even": trips % 2 < 1}

    return flow.Program(build, feed)


@pytest.mark.parametrize("program", [None, counted], ids=["by value", "by what is fed"])
def test_schedules_of_programs_train_it_alike(model, program):
    model = replace(model, make_program=program) if program else model
    found = [
        ampsim.simulate(model, "tflops-1", name, epochs=2).model.parameters()
        for name in ("dataflow", "out-of-graph", "unrolled")
    ]
    assert not np.array_equal(found[0]["layer.weight"], model.parameters()["layer.weight"])
    for one in found[1:]:
        for key, value in found[0].items():
            assert np.array_equal(one[key], value), key


def test_its_layers_say_what_it_starts_from_and_can_be_set(model):
    first, other = model.parameters(), ampsim.simulate(model, "tflops-1", "dataflow", seed=1)
    assert {key: value.shape for key, value in first.items()} == {
        "layer.weight": (4, 3), "layer.bias": (3,),
    }  # fmt: skip
    assert not np.array_equal(first["layer.weight"], model.graph(1)["layer"].theta[:12])
    again = model.set_parameters(other.model.parameters()).parameters()
    assert np.array_equal(again["layer.weight"], other.model.parameters()["layer.weight"])


def test_it_has_a_ratio_a_trial_and_rows_of_a_forecast(model):
    assert cc_ratio(model) == pytest.approx(2 * 4 * 3 / 15)
    trial = ampsim.try_out(model)
    assert (trial.mode, trial.items) == ("numeric", 5)
    assert trial.messages > 0
    forecast = ampsim.forecast(
        model, "tflops-1", "dataflow,out-of-graph", target=0.99, max_epochs=1
    )
    assert (forecast.table["train_per_s"].to_numpy(float) > 0).all()


@pytest.mark.parametrize("name", [*SCHEDULES, *SOLVERS])
def test_schedules_of_messages_and_solvers_refuse_it(model, name):
    text = (
        rf"^schedule {name} needs a graph of messages, and model choice is a program only; take "
        "the schedule dataflow or out-of-graph$"
    )
    with pytest.raises(OptionError, match=text):
        ampsim.simulate(model, ampsim.load_cluster("tflops-1", workers=4), name)
    with pytest.raises(OptionError, match=text):
        ampsim.forecast(model, ampsim.load_cluster("tflops-1", workers=4), f"dataflow,{name}")


def test_placements_refuse_it(model, tmp_path):
    with pytest.raises(OptionError, match=r"^placement balanced needs a graph .* flow\.device, "):
        ampsim.simulate(model, "tflops-1", "dataflow", placement="balanced")
    (tmp_path / "place.toml").write_text("layer = 0\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"^placement .* a program only; .* flow\.device, "):
        ampsim.simulate(model, "tflops-1", "dataflow", placement=tmp_path / "place.toml")


@pytest.mark.parametrize(
    "options", [{"min_update_interval": 3}, {"node_update_intervals": {"layer": 2}}]
)
def test_intervals_of_messages_are_refused(model, options):
    text = "^program choice has no use for intervals; leave them out$"
    with pytest.raises(OptionError, match=text):
        replace(model, **options)


def test_sleep_refuses_what_decides_by_numbers(model):
    with pytest.raises(OptionError, match=r"^greater-1 .* decides by floating-point .*numeric"):
        ampsim.simulate(model, "tflops-1", "dataflow", mode="sleep")


@pytest.mark.parametrize("question", [
    "explore --for device.flop_per_s=1e11,1e12 --target 1 --schedule dataflow,out-of-graph",
    "search --for device.flop_per_s=1e11..1e12 --schedule dataflow --target 1",
    "whatif --schedule dataflow",
    "solve --for device.flop_per_s=1e10..1e12 --until epoch_s<=0.01 --schedule dataflow",
])  # fmt: skip
def test_questions_that_time_without_learning_refuse_it_in_a_line(call, file, tmp_path, question):
    name, *options = question.split()
    if name == "search":
        pytest.importorskip("optuna", reason="optuna is not installed")
    told = call(name, str(file), *options, "--out", str(tmp_path / "out"))
    assert told.code == 2
    assert re.fullmatch(
        r"(?:ampsim: note: .*\n)*ampsim: greater-1 .* decides by floating-point numbers, which "
        r"sleep mode does not compute, in which explore, search, whatif and solve time runs; use "
        r'mode="numeric", or ask forecast\n',
        told.err,
    ), told.err


def test_commands_tell_it_from_a_graph(call, file):
    told = call("models", str(file))
    assert "Program: 1 layer, 15 parameters; CC ratio 1.6" in told.out
    assert "controller" not in told.out
    drawn = call("models", str(file), "--graph", str(file.parent / "graph.dot"))
    assert drawn.code == 2
    assert drawn.err == (
        "ampsim: --graph needs a graph of messages, and model choice is a program only; leave it "
        "out, and see its layers and options\n"
    )
    assert (
        "a program of 1 layer, 15 parameters; an instance of 5 items"
        in call("check", str(file)).out
    )


@pytest.mark.usefixtures("unpainted")
def test_commands_run_it_by_schedules_of_programs_unless_one_is_named(call, file, tmp_path):
    kept = tmp_path / "kept"
    assert "choice, dataflow, " in call("run", str(file), "--out", str(kept)).out
    words = ("--max-epochs", "1", "--target", "0.99", "--quick", "--out", str(tmp_path / "rows"))
    told = call("forecast", str(file), *words, "--json", "-")
    assert [row["schedule"] for row in json.loads(told.out)["rows"]] == ["dataflow", "out-of-graph"]
    assert call("gantt", str(file), "--out", str(tmp_path / "chart.svg")).code == 0


@pytest.mark.usefixtures("undrawn")
def test_a_run_over_several_workers_says_what_went_between_them(call):
    words = ("run", "moe_rnn", "--schedule", "dataflow", "--workers", "2", "--instances", "50")
    told = call(*words, "--set", "devices=2", "--set", "hidden=4", "--set", "experts=3")
    once = call(*words, "--set", "devices=2", "--set", "hidden=4", "--set", "experts=3",
                "--broadcast-dead", "--out", "once")  # fmt: skip
    line = r"Between workers went [\d,]+ tensors, \d+ predicates, \d+ signals of control edges and "
    counts = [int(re.findall(line + r"(\d+) dead signals\.", one.out)[0]) for one in (told, once)]
    assert counts[1] < counts[0] / 2
    assert "Between workers" not in call(*words, "--set", "hidden=4", "--out", "alone").out


def test_half_a_model_is_refused(model):
    without = "^model choice without make_graph must have make_program and make_layers, and no pu"
    for change in ({"make_layers": None}, {"make_program": None}, {"pump": pump_arrays}):
        with pytest.raises(OptionError, match=without):
            replace(model, **change)
    whole = ampsim.load_model("mlp", data="synthetic")
    for change in ({"pump": None}, {"make_layers": list}):
        with pytest.raises(OptionError, match=r"^model mlp with make_graph must have pump, and no"):
            replace(whole, **change)


def test_layers_are_nodes_with_parameters(model):
    with pytest.raises(GraphError, match=r"^make_layers of model choice must return .*, got 3$"):
        replace(model, make_layers=lambda: [3]).graph()
    with pytest.raises(GraphError, match="make_layers of model choice must return nodes"):
        replace(model, make_layers=lambda: [nodes.ReLU("relu")]).graph()
    double = [nodes.Linear("layer", 4, 3), nodes.Linear("layer", 4, 3)]
    with pytest.raises(GraphError, match="two nodes are named 'layer'"):
        replace(model, make_layers=lambda: double).graph()
    other = replace(model, make_layers=lambda: [nodes.Linear("other", 4, 3)])
    with pytest.raises(GraphError, match=r"got no parameter of the model for 'layer.bias'"):
        ampsim.simulate(other, "tflops-1", "dataflow")
