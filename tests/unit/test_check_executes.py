"""Checking a model, or a recipe that names one, executes its file: which is said, and cannot pass
in silence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

RECIPE = """
title = "A"
model = "./own.py"
epochs = 1

[[schedules]]
name = "amp"
"""
GOOD = """
import dataclasses
import sys
import ampsim

@dataclasses.dataclass(frozen=True)
class Config:
    hidden: int = 4

def build(config):
    return ampsim.load_model("rnn", hidden=config.hidden)
"""
ENDINGS = ["sys.exit()", "sys.exit(0)", "sys.exit('done')", "raise SystemExit", "exit()"]
ENDINGS += ["raise KeyError", "raise GeneratorExit"]


@pytest.fixture
def put(call, tmp_path):
    """`put(text)` writes the model file of a recipe, both in the folder where the user is."""

    def write(text: str) -> None:
        (tmp_path / "own.py").write_text(text)
        (tmp_path / "recipe.toml").write_text(RECIPE)

    return write


@pytest.mark.parametrize("file", ["own.py", "recipe.toml"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("place", ["file", "build"])
def test_a_file_that_exits_does_not_pass(call, put, file, ending, place):
    in_build = GOOD.replace("    return", f"    {ending}\n    return")
    put(in_build if place == "build" else f"{GOOD}\n{ending}\n")
    ended = call("check", file)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert "own.py: " in ended.err
    assert "line " in ended.err


@pytest.mark.parametrize("file", ["own.py", "recipe.toml"])
def test_a_file_that_does_not_exit_passes(call, put, file):
    put(GOOD)
    assert call("check", file).out.startswith(f"ok: {file}: ")


def test_help_and_the_page_on_commands_say_that_a_model_is_executed(call):
    said = " ".join(call("check", "--help").out.split())
    assert "is executed: check only files that you would run" in said.replace("│ ", "")
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    (line,) = [one for one in page.splitlines() if one.startswith("| `ampsim check")]
    assert "is executed" in line
