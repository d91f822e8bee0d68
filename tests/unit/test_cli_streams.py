"""Closed streams lose no result, and names command no terminal."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from ampsim.cli import main, start
from ampsim.cli.console import complain, in_columns, write
from ampsim.cli.entry import app
from ampsim.cli.progress import title_of
from ampsim.metric import Metric
from ampsim.study import Progress

RNN = ("--instances", "20", "--set", "hidden=4", "--set", "replicas=1")
SMALL = (*RNN, "--mode", "sleep")
FEW = (*SMALL, "--workers", "2")
RECIPE = """
title = "A test"
model = "rnn"
mode = "sleep"
instances = 20
epochs = 1
[[schedules]]
name = "amp"
label = "=amp"
"""
ASKED = (*RNN, "--quiet", "--for", "workers=1,2", "--jobs", "1")
LEARNED = ("--target", "0.11", "--max-epochs", "1", "--repeats", "1")
COMMANDS = {
    "forecast": ("rnn", *SMALL, "--schedule", "amp", "--out", "f", "--jobs", "1"),
    "run": ("rnn", *SMALL, "--out", "g"),
    "gantt": ("kept", "--out", "g.json"),
    "compare": ("kept", "kept"),
    "calibrate": ("machine", "--rounds", "1", "--out", "c", "--quiet"),
    "devices": ("tflops-1",),
    "models": ("rnn",),
    "data": ("sst",),
    "report": ("--list", "./r"),
    "check": ("r/recipe.toml",),
    "whatif": ("rnn", *FEW, "--out", "w", "--jobs", "1"),
    "solve": (
        "rnn",
        *RNN,
        "--for",
        "workers=1..2",
        "--until",
        "epoch_s <= 1",
        "--out",
        "s",
        "--jobs",
        "1",
    ),
    "explore": ("rnn", *ASKED, *LEARNED, "--out", "e"),
    "search": ("rnn", *ASKED, "--minimise", "epoch_s", "--trials", "2", "--out", "o"),
    "import": ("net.py:make", "--out", "made.py"),
}
FAILS = {"import": 2}
"""Commands that end with a mistake here: there is no such file."""
WRITTEN = {
    "forecast": "f/manifest.toml", "run": "g/manifest.toml", "gantt": "g.json",
    "whatif": "w/manifest.toml", "solve": "s/manifest.toml", "explore": "e/manifest.toml",
    "search": "o/manifest.toml",
}  # fmt: skip
LOST = "ampsim: cannot write to standard output: it is closed\n"


@pytest.fixture
def prepared(once: Any) -> None:
    """A run that was kept, and a recipe."""
    Path("r").mkdir()
    Path("r/recipe.toml").write_text(RECIPE)
    once("run", "rnn", *SMALL, "--out", "kept", "--quiet")


def test_every_command_is_tried_here():
    command: Any = typer.main.get_command(app)
    assert set(COMMANDS) == set(command.commands)


@pytest.mark.slow(6)
@pytest.mark.usefixtures("prepared", "undrawn", "hasty")
def test_a_command_whose_streams_are_closed_does_its_work_and_ends_with_the_right_code(
    monkeypatch, capsys
):
    """Each command with each stream, and one with both: no command knows of two."""
    for command, words in COMMANDS.items():
        if command == "search" and importlib.util.find_spec("optuna") is None:
            continue
        both = [(("stdout", "stderr"), 1)] if command == "run" else []
        for closed, code in ((("stdout",), 1), (("stderr",), 0), *both):
            capsys.readouterr()
            with monkeypatch.context() as patch:
                for name in closed:
                    patch.setattr(sys, name, None)
                with pytest.raises(SystemExit) as ending:
                    main((command, *words))
            said = capsys.readouterr()
            code = FAILS.get(command, code)
            assert (command, closed, ending.value.code) == (command, closed, code)
            if closed == ("stdout",) and command not in FAILS:
                assert (said.out, said.err.endswith(LOST)) == ("", True)
            assert Path(WRITTEN.get(command, "r")).exists()


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("run", "--help"), ()])
def test_help_that_nobody_can_read_is_told(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ending:
        main(words)
    assert (ending.value.code, capsys.readouterr().err) == (1, LOST)


def test_a_mistake_keeps_its_code_where_standard_output_is_closed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ending:
        main(("forecast", "rrn"))
    assert ending.value.code == 2
    assert capsys.readouterr().err.startswith("ampsim: no model named 'rrn'")


class Broken:
    """A stream whose reader is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_what_nobody_hears_on_standard_error_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Broken())
    complain("something")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs a shell that closes streams")
@pytest.mark.parametrize(("closed", "code"), [(">&-", 1), ("2>&-", 0), ("<&- >&- 2>&-", 1)])
def test_a_process_whose_streams_are_closed_keeps_its_run_whole(closed, code, call, tmp_path):
    program = str(Path(__file__).parents[1] / "unpainted.py")
    words = " ".join((sys.executable, program, "run", "rnn", *FEW, "--out", "kept"))
    ended = subprocess.run(["sh", "-c", f"{words} {closed}"], cwd=tmp_path, check=False)
    assert ended.returncode == code
    assert "Identical to the bit" in call("compare", "kept", "kept").out


HOSTILE = "a\x1b[31mb\x9bc\x07\u202ed\x7f\r\b"


def is_harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text)


def test_what_is_said_commands_no_terminal(capsys):
    complain(HOSTILE)
    write(f"{HOSTILE}\nnext")
    write(in_columns([(HOSTILE, "b", HOSTILE)]))
    said = capsys.readouterr()
    assert is_harmless(said.out) and is_harmless(said.err)
    assert r"a\x1b[31mb\x9bc\x07\u202ed\x7f" in said.out
    assert r"a\x1b[31mb\x9bc\x07\u202ed\x7f" in said.err


class Terminal(io.StringIO):
    """A terminal of 40 characters."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_lines_are_broken_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    line = "  budget 5.00 s: each row tuned by twenty trials of --validate-every, then seeds"
    monkeypatch.setattr(sys, "stdout", said := Terminal())
    write(f"{line}\nshort")
    *parts, last = said.getvalue().splitlines()
    assert (" ".join(map(str.strip, parts)), last) == (line.strip(), "short")
    assert all(part.startswith("  ") and len(part) <= 40 for part in parts)
    monkeypatch.setattr(sys, "stdout", said := Terminal())
    with pytest.raises(SystemExit):
        main(["models", "--json", "-"])
    assert json.loads(said.getvalue())["models"]  # a line that is broken is no JSON


def test_a_last_column_without_room_stands_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", Terminal())
    words = "one two three four five six seven"
    assert in_columns([("a" * 5, words)]).splitlines() == [f"aaaaa  {words}"]
    assert in_columns([("a" * 20, words)]).splitlines() == ["a" * 20, f"    {words}"]


def test_a_bar_commands_no_terminal():
    told = Progress(HOSTILE, 1, 1, 1, 1, 2, None, False, Metric())
    assert is_harmless(title_of(told))


@pytest.mark.slow
@pytest.mark.usefixtures("prepared", "undrawn")
def test_names_in_files_reach_no_terminal_as_they_are(call):
    escape = "\\u001b[31m"
    source = 'source = {kind = "assumed", text = "ESC"}'.replace("ESC", escape)
    Path("d.toml").write_text(
        f'name = "{escape}"\ndescription = "{escape}"\nflop_per_s = 1e12\n'
        f'sources.flop_per_s = {{kind = "assumed", text = "{escape}"}}\n{source and ""}'
    )
    text = Path(__file__).parents[2].joinpath("models", "rnn.py").read_text("utf-8")
    Path("m.py").write_text(text.replace('name="rnn"', 'name="\\x1b[31mrnn"'), "utf-8")
    run = (*SMALL, "--device", "d.toml", "--schedule", "amp")
    for words in (
        ("devices", "d.toml"), ("check", "d.toml"), ("models", "m.py"), ("check", "m.py"),
        ("run", "m.py", *run, "--out", "x"), ("compare", "x", "kept"),
        ("forecast", "m.py", *run, "--out", "y", "--jobs", "1"),
        ("report", "./r", "--jobs", "1"), ("report", "--list", "./r"),
        ("gantt", "x", "--out", "\x1b[31m.json"), ("devices", "\x1b[31m"), ("run", "\x1b[31m"),
        ("data", "\x1b[31m"), ("\x1b[31m",), ("run", "--\x1b[31m"), ("run", "rnn", "--set", "\x1b"),
    ):  # fmt: skip
        ended = call(*words)
        assert ended.code in (0, 2), ended
        assert is_harmless(ended.out), words
        assert is_harmless(ended.err), words
    assert Path("r/report.csv").read_text("utf-8").splitlines()[1].startswith("'=")


def test_a_letter_that_a_stream_does_not_know_is_a_question_mark(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")  # which a command sets
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    start._prepared()
    monkeypatch.undo()
    for stream in streams:
        stream.write("25 µs\n")
        stream.flush()
        assert stream.buffer.getvalue() == b"25 ?s\n"


def test_what_could_not_be_written_is_forgotten(monkeypatch, tmp_path):
    with (tmp_path / "out").open("w", encoding="utf-8") as stream:
        stream.write("left")
        monkeypatch.setattr(sys, "stdout", stream)
        start.forget()
        monkeypatch.undo()
    assert (tmp_path / "out").read_bytes() == b""
