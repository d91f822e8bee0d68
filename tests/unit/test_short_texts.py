"""What devices, models and clusters look like where somebody prints them, and what help lists."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import typer

import ampsim
from ampsim import assets
from ampsim.cli import entry
from ampsim.cli.console import OPTIONS_MAX, PANELS
from ampsim.hardware import load_device

GROUP: Any = typer.main.get_command(entry.app)
COMMANDS = GROUP.commands
LONG = [name for name, one in COMMANDS.items() if len(one.params) > OPTIONS_MAX]


@pytest.mark.parametrize("name", assets.names("devices"))
def test_a_device_is_told_in_a_short_line(name):
    text = repr(load_device(name))
    assert text == str(load_device(name))
    assert text.startswith(f"Device({name!r}: ") and len(text) < 120


def test_a_device_tells_rate_memory_and_how_much_else_it_says():
    assert repr(load_device("tflops-1")) == "Device('tflops-1': 1.00 TFLOP/s)"
    assert repr(load_device("p100")) == (
        "Device('p100': 9.30 TFLOP/s in float32, memory 732 GB/s, 17.1 GB, 6 more numbers)"
    )


@pytest.mark.parametrize("name", assets.names("models"))
def test_a_model_is_told_in_a_short_line(name):
    text = repr(ampsim.load_model(name))
    assert text.startswith(f"Model({name!r}: ") and "\n" not in text and len(text) < 160
    assert " at 0x" not in text


def test_a_model_tells_the_options_that_are_not_as_usual():
    model = ampsim.load_model("rnn", hidden=32)
    text = repr(model)
    assert text.startswith("Model('rnn': hidden=32; ") and "; target 97 %)" in text
    assert "options as usual" in repr(ampsim.load_model("rnn"))
    assert "target" not in repr(replace(model, target=None))


def test_the_commands_with_many_options_are_known():
    many = {"forecast", "run", "gantt", "whatif", "solve", "explore", "search"}
    assert set(LONG) == many


@pytest.mark.parametrize("name", LONG)
def test_help_lists_each_option_under_one_heading(name, call):
    listed = [option for names in PANELS.values() for option in names]
    assert len(set(listed)) == len(listed)
    own = {
        one.name
        for one in COMMANDS[name].params
        if one.param_type_name == "option" and one.name != "help"
    }
    assert own <= set(listed)
    text = call(name, "--help").out
    for panel, names in PANELS.items():
        assert (f"\n{panel}:\n" in text) == bool(own & set(names)), panel


@pytest.mark.parametrize("name", COMMANDS)
def test_a_usage_line_has_one_pair_of_brackets_for_each_argument(call, name):
    usage = call(name, "--help").out.splitlines()[0]
    assert not re.search(r"\[\[|\.\.\.[]}]", usage)


def test_every_option_under_a_heading_is_one_of_some_command():
    known = {one.name for name in LONG for one in COMMANDS[name].params}
    assert {option for names in PANELS.values() for option in names} <= known


@pytest.mark.parametrize("command", ["run", "forecast"])
@pytest.mark.parametrize(
    ("words", "is_free"),
    [((), True), (("--latency-s", "1e-6"), False), (("--topology", "ring"), True),
     (("--bandwidth-bytes-per-s", "1e9"), False), (("--workers", "1"), False)],
)  # fmt: skip
def test_free_links_are_said(command, words, is_free, once):
    few = ("rnn", "--set", "hidden=8", "--instances", "200", "--mode", "sleep", "--quiet")
    ended = once(command, *few, "--schedule", "amp", *words)
    assert ("Links are free here" in ended.out) == is_free
