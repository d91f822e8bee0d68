"""`ampsim check PLACEMENT --model MODEL`: the file names the model's nodes, each and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ampsim
from ampsim import assets

MODEL = ("--model", "rnn", "--set", "replicas=2")


@pytest.fixture
def lines() -> list[str]:
    """The lines of a placement on two workers, for each node of the RNN with two replicas."""
    nodes = ampsim.load_model("rnn", replicas=2).graph().nodes[1:]  # the first is the controller
    return [f'"{node.name}" = {place % 2}' for place, node in enumerate(nodes)]


def write(lines: list[str]) -> None:
    Path("placed.toml").write_text("\n".join(lines))


def test_a_placement_of_every_node_is_right(call, lines):
    write(lines)
    said = f"ok: placed.toml: placement of {len(lines)} nodes on 2 workers"
    assert call("check", "placed.toml") == (0, f"{said}\n", "")
    assert call("check", "placed.toml", *MODEL) == (0, f"{said}, all those of model rnn\n", "")


def test_a_node_that_the_model_has_not_is_one_line(mistake, lines):
    write([*lines, "lienar-2 = 1"])
    line = mistake("check", "placed.toml", *MODEL)
    assert "placed.toml: no node named 'lienar-2'; did you mean 'linear-2'?" in line


def test_a_node_without_a_worker_is_one_line(mistake, lines):
    left_out = next(line for line in lines if line.startswith('"relu"'))
    write([line for line in lines if line != left_out])
    line = mistake("check", "placed.toml", *MODEL)
    assert "placed.toml: missing key 'relu'; give each node a worker, as in relu = 0" in line


def test_options_of_the_model_decide_which_nodes_there_are(mistake, lines):
    write(lines)
    line = mistake("check", "placed.toml", "--model", "rnn", "--set", "replicas=3")
    assert "placed.toml: missing key 'linear-1.2'; give each node a worker" in line


def test_each_file_is_told_and_json_has_the_same(call, lines):
    write(lines)
    Path("wrong.toml").write_text("loss = 0\n")
    ended = call("check", "placed.toml", "wrong.toml", *MODEL, "--json", "-")
    right, wrong = json.loads(ended.out)["files"]
    assert (ended.code, right["is_right"], wrong["is_right"]) == (2, True, False)
    assert right["text"].endswith(", all those of model rnn")
    assert wrong["error"] in ended.err


def test_a_model_that_is_not_there_is_one_line(mistake, lines):
    write(lines)
    assert "no model named 'rrn'; did you mean 'rnn'?" in mistake(
        "check", "placed.toml", "--model", "rrn"
    )


def test_settings_without_a_model_are_refused(mistake, lines):
    write(lines)
    line = mistake("check", "placed.toml", "--set", "replicas=2")
    assert "--set belongs to --model; add it, or leave --set out" in line


def test_a_model_that_concerns_no_file_is_told(call):
    device = assets.named("devices", "tflops-1")
    Path("mine.toml").write_bytes(device.read_bytes())
    ended = call("check", "mine.toml", "--model", "rnn")
    assert (ended.code, ended.err) == (0, "ampsim: note: --model has no effect on mine.toml\n")
