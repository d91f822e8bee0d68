"""Commands take their output folder, and replace in it what they wrote and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from ampsim.cli.entry import app
from ampsim.output_folder import MANIFEST, taken

RNN = ("rnn", "--instances", "20", "--set", "hidden=4", "--set", "replicas=1", "--quiet")
SMALL = (*RNN, "--mode", "sleep")
ASKED = (*RNN, "--for", "workers=1,2", "--out", "out", "--jobs", "1")
COMMANDS = {
    "run": ("run", *SMALL, "--schedule", "amp", "--out", "out"),
    "forecast": ("forecast", *SMALL, "--schedule", "amp", "--out", "out", "--jobs", "1"),
    "report": ("report", "./out", "--quiet", "--jobs", "1"),
    "calibrate": ("calibrate", "machine", "--out", "out", "--rounds", "1", "--quiet"),
    "whatif": ("whatif", *SMALL, "--workers", "2", "--schedule", "amp", "--out", "out", "-j", "1"),
    "solve": (
        "solve",
        *RNN,
        "--for",
        "workers=1..2",
        "--until",
        "epoch_s <= 1",
        "--out",
        "out",
        "--jobs",
        "1",
    ),
    "explore": ("explore", *ASKED, "--target", "0.11", "--max-epochs", "1", "--repeats", "1"),
    "search": ("search", *ASKED, "--minimise", "epoch_s", "--trials", "2"),
}
NAMES = {
    "run": "out/index.html",
    "forecast": "out/forecast.csv",
    "report": "out/report.csv",
    "calibrate": "out/points.csv",
    "whatif": "out/whatif.csv",
    "solve": "out/solve.csv",
    "explore": "out/explore.csv",
    "search": "out/search.csv",
}
KINDS: dict[str, Any] = {
    "calibrate": "calibration",
    "explore": "exploration",
}  # where it is not the command's name


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> str:
    """Each command in turn, if what it needs is installed."""
    if request.param == "search":
        pytest.importorskip("optuna", reason="optuna is not installed")
    return request.param


@pytest.fixture
def recipe(call: Any, tmp_path: Path, small_recipe: str, only: Any) -> Path:
    """The folder `out`, which has a recipe in it; what-if tries little."""
    only(factor=2.0)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "recipe.toml").write_text(small_recipe)
    return tmp_path / "out"


def test_every_command_with_an_output_folder_is_tried_here():
    command: Any = typer.main.get_command(app)
    found = {
        name
        for name, one in command.commands.items()
        if any("--out" in option.opts and option.metavar == "DIR" for option in one.params)
    }
    # `devices import` writes one file, never over one
    assert found - {"devices"} == set(COMMANDS)


def test_a_command_refuses_a_folder_that_another_has_taken(command, mistake, recipe):
    with taken(recipe, KINDS.get(command, command)):
        line = mistake(*COMMANDS[command])
    assert "out: another ampsim is writing there; wait until it has ended, or choose" in line
    assert [path.name for path in recipe.iterdir()] == ["recipe.toml"]


def test_a_command_refuses_a_file_that_is_not_its_own_before_the_work(command, mistake, recipe):
    Path(NAMES[command]).write_text("mine")
    line = mistake(*COMMANDS[command])
    assert f"{NAMES[command]}: is not replaced, for it is not known as written by this" in line
    assert Path(NAMES[command]).read_text() == "mine"
    assert {path.name for path in recipe.iterdir()} == {"recipe.toml", Path(NAMES[command]).name}


def test_a_command_refuses_the_manifest_of_another_program(command, mistake, recipe):
    for text in ("", "kind = 3", 'kind = "other"', "a = ", "\0"):
        (recipe / MANIFEST).write_text(text)
        assert "out/manifest.toml: is not replaced" in mistake(*COMMANDS[command]), text
        assert (recipe / MANIFEST).read_text() == text


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "hasty")
def test_a_command_replaces_what_it_wrote_but_not_what_was_changed_since(
    command, call, mistake, recipe, small_recipe
):
    assert call(*COMMANDS[command]).code == 0
    first = {path.name for path in recipe.iterdir()}
    assert call(*COMMANDS[command]).code == 0
    assert {path.name for path in recipe.iterdir()} == first
    path = Path(NAMES[command])
    path.write_text("changed by hand")
    assert f"{path}: is not replaced" in mistake(*COMMANDS[command])
    assert path.read_text() == "changed by hand"
    assert (recipe / "recipe.toml").read_text() == small_recipe
