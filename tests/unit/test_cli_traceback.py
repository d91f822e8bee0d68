"""--traceback: every command has it, and it shows the lines of a user's own model."""

import pickle
from typing import Any

import pytest
from typer.main import get_command

from ampsim.cli.entry import app
from ampsim.errors import Failure

COMMANDS = sorted(get_command(app).commands)  # pyright: ignore[reportAttributeAccessIssue]  # a group

WRONG = """
import ampsim
from ampsim.data import ArrayDataset, pump_arrays
from ampsim.ir import Graph
from ampsim.nodes import Linear, SoftmaxCrossEntropy
from ampsim.optim import sgd
from dataclasses import dataclass

@dataclass(frozen=True)
class Config: ...

class Own(Linear):
    def forward(self, port, state, payload):
        return payload.my_own_mistake

def graph():
    graph = Graph("own")
    x, label = graph.controller(x=("rows", 2), label=("rows",))
    graph.end(SoftmaxCrossEntropy("loss"), graph.add(Own("linear", 2, 2), x), label)
    return graph

def build(config):
    data = ArrayDataset(([[1.0, 2.0]] * 8, [0] * 8), ([[1.0, 2.0]], [0]), batch=4)
    return ampsim.Model("own", config, graph, data.for_run, pump_arrays, sgd(0.1))
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_it(call, command):
    ended = call(command, "--help")
    assert ended.code == 0
    assert "--traceback" in ended.out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "forecast", "run", "gantt"])
def test_it_shows_the_lines_of_a_model_before_the_one_line(call, tmp_path, command):
    (tmp_path / "own.py").write_text(WRONG)
    words = {"gantt": ["--out", "g.png", "--instances", "8"], "forecast": ["--jobs", "1"]}.get(
        command, []
    )
    if command != "check":
        words += ["--schedule", "amp", "--mode", "sleep", "--workers", "2"]
        words += [] if command == "gantt" else ["--quiet"]
    short = call(command, "own.py", *words)
    assert short.code == 2
    assert short.err.count("\n") == 1
    assert "AttributeError" in short.err
    assert "own.py, line 14)" in short.err
    whole = call(command, "own.py", *words, "--traceback")
    assert whole.code == 2
    assert "Traceback (most recent call last)" in whole.err
    assert "        return payload.my_own_mistake\n".strip() in whole.err
    assert whole.err.splitlines()[-1] == short.err.rstrip("\n")


def test_a_mistake_that_is_no_code_s_shows_it_too(call):
    ended = call("devices", "nowhere", "--traceback")
    assert ended.code == 2
    assert "Traceback" in ended.err
    assert "Traceback" not in call("devices", "nowhere").err


def test_why_a_run_failed_is_text_that_keeps_its_traceback_when_sent():
    try:
        raise ValueError("so")
    except ValueError as error:
        failure = Failure.of(error)
    again: Any = pickle.loads(pickle.dumps(failure))
    assert "raise ValueError" in again.traceback
    assert again == "so"
