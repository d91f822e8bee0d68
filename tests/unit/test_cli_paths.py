"""Every path of every command: what cannot be read or written is one line, and never waited for."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from covering import among

from ampsim.cli.entry import app

SMALL = ("--instances", "20", "--set", "hidden=4", "--mode", "sleep", "--quiet")
WORDS = {
    "forecast": ("rnn", *SMALL, "--schedule", "amp"),
    "run": ("rnn", *SMALL),
    "whatif": ("rnn", *SMALL),
    "solve": (
        "rnn",
        "--instances",
        "20",
        "--set",
        "hidden=4",
        "--quiet",
        "--for",
        "latency_s=1e-6..1",
        "--until",
        "epoch_s <= 1",
    ),
    "explore": ("rnn", *SMALL[:4], "--quiet", "--for", "workers=1,2", "--budget", "1m"),
    "search": (
        "rnn",
        *SMALL[:4],
        "--quiet",
        "--for",
        "workers=1,2",
        "--minimise",
        "epoch_s",
        "--trials",
        "2",
    ),
    "gantt": ("rnn", "--instances", "20", "--out", "g.png"),
    "compare": ("a", "b"),
    "calibrate": ("machine", "--rounds", "1", "--quiet"),
    "devices": (),
    "models": ("rnn",),
    "data": ("sst",),
    "report": ("./r", "--quiet"),
    "check": (),
    "import": ("net.py:make", "--out", "made.py"),
}
RECIPE = """
title = "A test"
model = "rnn"
mode = "sleep"
instances = 20
epochs = 1
[[schedules]]
name = "amp"
"""
SUFFIXES = {("gantt", "--out"): ".png", ("models", "--graph"): ".dot", ("models", "name"): ".py"}
SUFFIXES |= {
    (name, "model"): ".py" for name in ("forecast", "run", "whatif", "solve", "explore", "search")
} | {("gantt", "source"): ".py", ("import", "source"): ".py:make", ("import", "--out"): ".py"}
ENTRIES = ("FILE", "DIR", "MODEL", "RUN_")
OUTPUTS = ("--out", "--json", "--graph")


def commands() -> dict[str, Any]:
    command: Any = typer.main.get_command(app)
    return command.commands


def paths() -> Iterator[tuple[str, str]]:
    """Each command with each of its options and arguments that may be a path."""
    for name, command in commands().items():
        for one in command.params:
            shown = one.metavar or ""
            if any(word in shown for word in ENTRIES):
                yield name, next((o for o in one.opts if o.startswith("--")), one.name)


PATHS = list(paths())
OBSTACLES = ("pipe", "socket", "device", "stranger", "long", "loop", "below a file", "zero byte")


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """Raise where a command waits for ever."""

    def late(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`obstacle(kind, suffix)`: the path of something that can be neither read nor written."""
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:

        def make(kind: str, suffix: str) -> str:
            path = Path(f"it{suffix}")
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "socket":
                bound.bind(str(path))
            elif kind == "device":
                path.symlink_to("/dev/zero")
            elif kind == "loop":
                path.symlink_to(path)
            elif kind == "below a file":
                Path("file").write_text("mine")
                path = Path("file") / path
            named = {"stranger": f"~nobody-has-this-name/a{suffix}", "long": f"{'x' * 300}{suffix}"}
            named["zero byte"] = f"a\0b{suffix}"
            return named.get(kind, f"./{path}")

        yield make


def test_every_command_is_tried_here():
    assert set(WORDS) == set(commands())
    assert {"--placement", "--device", "--data", "--json", "--out"} <= {one for _, one in PATHS}


CASES = among([(*path, kind) for path in PATHS for kind in OBSTACLES])
"""Every path; every command, and every option whatever its command, meets every obstacle."""


@pytest.mark.parametrize(("command", "place", "kind"), CASES)
def test_a_path_that_leads_to_nothing_of_use_is_one_line(command, place, kind, call, obstacle):
    if kind == "device" and place in OUTPUTS:
        pytest.skip("a device is written as it is")
    Path("r").mkdir()
    Path("r/recipe.toml").write_text(RECIPE)
    path = obstacle(kind, SUFFIXES.get((command, place), ".toml"))
    words = (
        (*WORDS[command], place, path) if place.startswith("--") else (path, *WORDS[command][1:])
    )
    if (command, place) == ("calibrate", "file"):
        words = ("table", path)
    ended = call(command, *words)
    if ended.code == 0:  # data that are not there need not be read
        assert place == "--data"
        assert kind in ("pipe", "socket", "device", "loop", "below a file", "long")
        return
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.startswith("ampsim: ") and ended.err.count("\n") == 1, ended.err


@pytest.mark.skipif(os.name == "nt", reason="needs a folder that can go while one is in it")
def test_a_file_of_json_in_a_folder_that_is_gone_is_one_line(call, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert call("devices", "p100", "--json", str(tmp_path / "x.json")).code == 0
    code, _, said = call("devices", "p100", "--json", "x.json")
    assert code == 2
    assert re.fullmatch(r"ampsim: cannot write in folder \.: its folder does not exist; .*\n", said)
