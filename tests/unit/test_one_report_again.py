"""CI runs the report again that was verified longest ago, and writes down what it found."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "one_report.py"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The module, which lies outside the package."""
    spec = importlib.util.spec_from_file_location("one_report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look their annotations up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def root(tmp_path, small_recipe, make_report, monkeypatch) -> Path:
    """A checkout whose one report is `mine`."""
    folder = tmp_path / "reports" / "mine"
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(small_recipe)
    make_report(folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entry(script, date: str, seconds: float):
    return script.Entry(date, "c0ffee", seconds, "follows")


def log(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "reports" / "verified.toml").read_text())


def test_the_report_verified_longest_ago_that_fits_the_time_is_chosen(script):
    found = {
        "a": entry(script, "2026-03-01", 5.0),
        "b": entry(script, "2026-02-01", 5.0),
        "c": entry(script, "2026-01-01", 60.0),
        "d": entry(script, "2026-02-01", 5.0),
    }
    assert script.choose(["a", "b", "c"], found, 60.0) == "b"
    assert script.choose(["a", "b", "c", "d"], found, 60.1) == "c"
    assert script.choose(["a", "d", "e"], found, 60.0) == "e"
    assert script.choose(["c"], found, 60.0) is None
    assert script.choose([], found, 60.0) is None


def test_commits_take_turns_among_those_of_one_day(script):
    found = {name: entry(script, "2026-03-01", 5.0) for name in "abcd"} | {
        "old": entry(script, "2026-02-01", 30.0)
    }
    chosen = [script.choose([*"abcd", "old"], found, 30.0, f"{n:x}") for n in range(60)]
    assert set(chosen) == set("abcd")
    assert script.choose([*"abcd"], found, 30.0, "7") == chosen[7]
    assert {script.choose([*"ab", "new", "newer"], found, 30.0, f"{n:x}") for n in range(9)} == {
        "new", "newer",
    }  # fmt: skip


def test_what_cannot_fit_is_not_tried(script, tmp_path):
    """Two million messages take longer than half a minute; what is known to fit does."""
    text = '{"runs": [{"numbers": {"messages": %d}}, {"numbers": {"messages": null}}]}'
    for name, messages in (("short", 1_000), ("long", 2_000_000), ("timed", 2_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.toml").write_text("")
        (tmp_path / name / "witness.json").write_text("")
        (tmp_path / name / "outlines.json").write_text(text % messages)
    found = {"timed": entry(script, "2026-02-01", 5.0)}
    assert script.candidates(tmp_path, found, 30.0) == ["short", "timed"]
    assert script.candidates(tmp_path, found, 60.0) == ["long", "short", "timed"]


def test_the_log_names_reports_that_are_there(script):
    reports = SCRIPT.parents[1] / "reports"
    found = script.read_log(reports / script.LOG)
    assert len(found) > 8
    assert [name for name in found if not (reports / name / "witness.json").is_file()] == []


def test_only_reports_with_witnesses_and_data_take_part(script, tmp_path, monkeypatch):
    monkeypatch.setenv("AMPSIM_DATA", str(tmp_path / "data"))
    data = '[[data]]\nfile = "set/one.txt"\nsha256 = ""\n'
    for name, manifest in (("plain", ""), ("fed", data), ("old", ""), ("never", None)):
        (tmp_path / name).mkdir()
        if manifest is not None:
            (tmp_path / name / "manifest.toml").write_text(manifest)
        if name != "old":
            (tmp_path / name / "witness.json").write_text("")
    assert script.candidates(tmp_path, {}, 30.0) == ["plain"]
    (tmp_path / "data" / "set").mkdir(parents=True)
    (tmp_path / "data" / "set" / "one.txt").write_text("")
    assert script.candidates(tmp_path, {}, 30.0) == ["fed", "plain"]


def test_what_was_found_is_written_by_name_and_read_again(script, tmp_path):
    path = tmp_path / "verified.toml"
    assert script.read_log(path) == {}
    found = {"b-2": entry(script, "2026-02-01", 5.0), "a": entry(script, "2026-03-01", 61.5)}
    script.write_log(path, found)
    assert list(tomllib.loads(path.read_text())) == ["a", "b-2"]
    assert script.read_log(path) == found


@pytest.mark.slow
def test_a_report_that_follows_is_written_down_and_one_that_does_not_fails(script, root, capsys):
    assert script.main([str(root), "--commit", "c0ffee"]) == 0
    first = log(root)["mine"]
    assert (first["commit"], first["verdict"]) == ("c0ffee", "follows")
    assert 0 < first["seconds"] < 120
    assert capsys.readouterr().out.startswith(f"mine: follows ({first['seconds']:g} s)\n\n# When ")
    table = root / "reports" / "mine" / "report.csv"
    table.write_text("mine")
    assert script.main([str(root)]) == 1
    said = "does not follow: report.csv is not as it was written"
    assert (log(root)["mine"]["verdict"], log(root)["mine"]["commit"]) == (said, "unknown")
    (root / "reports" / "mine" / "recipe.toml").write_text("title = ")
    assert script.main([str(root)]) == 2
    assert log(root)["mine"]["verdict"].startswith("could not be run: ampsim: reports/mine/recipe")


@pytest.mark.slow
def test_a_time_out_is_written_down_and_is_no_fault(script, root, capsys):
    assert script.main([str(root), "--seconds-max", "0.1"]) == 0
    found = log(root)["mine"]
    assert (found["verdict"], found["seconds"]) == ("not known: took more than 0.1 s", 0.1)
    assert script.main([str(root), "--seconds-max", "0.1"]) == 0
    assert "no report fits" in capsys.readouterr().out
