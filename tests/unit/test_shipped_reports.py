"""Shipped reports follow, and none does of which a file was dropped, lost or edited.

One of each kind is enough, as the check asks for the files of a kind; `ampsim report --check` has
all of them, which CI runs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from ampsim.files import sha256_of
from ampsim.recipes import beside, checking, programs
from ampsim.recipes.checking import Verdict, check_report, draw_again
from ampsim.recipes.programs import check_program, read_program
from ampsim.recipes.recipe import read_recipe
from ampsim.recipes.redrawing import files_of, read_manifest
from ampsim.runs import witness
from ampsim.runs.witness import tiny_run

REPORTS = Path(__file__).parents[2] / "reports"
RECIPES = ("figure-1", "paper-table-1", "what-hardware-mlp", "solvers-mnist")
"""A chart, a table beside the paper's, a map of hardware, and learning under solvers."""

PROGRAMS = ("engine-workspace",)


@pytest.fixture(scope="module")
def check_recipe() -> Iterator[Callable[[Path], Verdict]]:
    """Check a copy of a report; what it takes long for is done once."""
    drawn: dict[tuple[str, bool], Any] = {}
    first: dict[str, Any] = {}  # by recipe: the report as it was shipped, with its pictures
    tuned_rows, rows = checking._tuned_rows, {}
    copies_of, copies = checking.copies_of, dict[int, Any]()
    tiny: dict[int, Any] = {}  # by row, which `rows` holds, so that no other gets its number

    def rows_once(recipe, manifest):
        key = recipe.name, repr(manifest.get("schedules"))
        if key not in rows:
            rows[key] = tuned_rows(recipe, manifest)
        return rows[key]

    def tiny_once(row, goal, seed):
        if id(row) not in tiny:
            tiny[id(row)] = tiny_run(row, goal, seed)
        return tiny[id(row)]

    def copies_once(given):
        if id(given) not in copies:
            copies[id(given)] = copies_of(given)
        return copies[id(given)]

    def draw_once(results, runs):
        tables, origin = results.tables(), results.origin()
        key = str(tables) + str(origin), runs is not None
        report = str(origin["recipe"])
        if report not in first:
            first[report] = drawn[key] = draw_again(results, runs)
        elif key not in drawn:  # of edited outlines, which the tables tell, or witnesses
            charts = results.charts(None) if runs is None else {}
            drawn[key] = {**first[report], **tables, **charts}
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "read_json", read_once())
        patch.setattr(witness, "condense", condense_once())
        patch.setattr(checking, "_tuned_rows", rows_once)
        patch.setattr(checking, "tiny_run", tiny_once)
        patch.setattr(checking, "copies_of", copies_once)
        patch.setattr(checking, "LONGER", 1)
        patch.setattr(checking, "draw_again", draw_once)
        yield lambda folder: check_report(read_recipe(folder), folder)


def read_once() -> Callable[..., Any]:
    """What reads a file of JSON; those of the same bytes, as of most checks, are parsed once."""
    read, found = beside.read_json, dict[tuple[str, bytes], Any]()

    def read_json(folder, name, kind, parse):
        path = folder / name
        key = kind, path.read_bytes() if path.is_file() else b""
        if key not in found:
            found[key] = read(folder, name, kind, parse)
        return found[key]

    return read_json


def condense_once() -> Callable[..., Any]:
    """What condenses a table; those of tiny runs, of which there is one a row, are so once."""
    condense, found = witness.condense, dict[tuple[int, Any], Any]()

    def condensed(frame, columns=None):
        key = id(frame), columns
        if key not in found:
            found[key] = frame, condense(frame, columns)  # no other table gets this one's number
        return found[key][1]

    return condensed


def edited(name: str, content: bytes) -> bytes:
    """A file in which something small is another, told well-formed: more than rounding."""
    if name == "outlines.json":
        return re.sub(rb'("(?:makespan|epoch)_s":)(\d)', rb"\g<1>9\2", content)
    if name == "witness.json":
        return content.replace(b'"sha256":"', b'"sha256":"0', 1)
    if name.endswith(".png"):
        return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
    digit = [one.start() for one in re.finditer(rb"\d[\d.]*", content)][-1]
    return content[:digit] + str((content[digit] - 47) % 10).encode() + content[digit + 1 :]


def tampered(folder: Path, name: str, way: str) -> None:
    """Drop a file's line, lose the file, or edit it and put its new hash in."""
    manifest, path = folder / "manifest.toml", folder / name
    text, digest = manifest.read_text(), files_of(read_manifest(folder))[name]
    if way == "lost":
        path.unlink()
    elif way == "dropped":
        lines = text.splitlines(keepends=True)
        manifest.write_text("".join(one for one in lines if digest not in one))
    else:
        path.write_bytes(edited(name, path.read_bytes()))
        manifest.write_text(text.replace(digest, sha256_of(path)))


def require_told(check: Callable[[Path], Verdict], folder: Path, spare: Path) -> None:
    """A report follows; whatever is done to one of its files, it does not, and says which."""
    shutil.copytree(folder, spare, ignore=shutil.ignore_patterns(".runs", "__pycache__"))
    whole = check(spare)
    assert whole.faults == ()
    for name, digest in files_of(read_manifest(folder)).items():
        is_compared = not any(name in note for note in whole.notes)
        for way in ("lost", "dropped", "edited") if is_compared else ("lost", "dropped"):
            manifest = (spare / "manifest.toml").read_text()
            tampered(spare, name, way)
            faults = check(spare).faults
            known = name.split(".")[0] if name != "witness.json" else "behaves otherwise"
            assert any(name in one or known in one for one in faults), (way, name, faults)
            shutil.copyfile(folder / name, spare / name)
            (spare / "manifest.toml").write_text(manifest)
            assert sha256_of(spare / name) == digest


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_every_file_of_a_shipped_recipe_is_demanded_and_drawn_again(check_recipe, tmp_path, name):
    require_told(check_recipe, REPORTS / name, tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_file_of_a_shipped_program_is_demanded_and_made_again(tmp_path, monkeypatch, name):
    program = read_program(REPORTS / name)
    tables = program.tables()
    contents = programs.contents_of(program, tables)
    monkeypatch.setattr(type(program), "tables", lambda self: tables)
    monkeypatch.setattr(programs, "contents_of", lambda _program, _tables: contents)
    require_told(
        lambda folder: check_program(program, folder),
        REPORTS / name,
        tmp_path / name,
    )


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"{}", b"[1]\n", b"a,b\n1", None])
@pytest.mark.parametrize(
    "file", ["manifest.toml", "outlines.json", "witness.json", "report.csv", "report.md"]
)
def test_a_damaged_file_is_one_line_that_names_it(check_recipe, tmp_path, file, content):
    folder = Path(shutil.copytree(REPORTS / "figure-1", tmp_path / "figure-1"))
    before = files_of(read_manifest(folder)).get(file, "")
    damaged = (folder / file).read_bytes()[:-40] if content is None else content
    (folder / file).write_bytes(damaged)
    if before:
        manifest = folder / "manifest.toml"
        manifest.write_text(manifest.read_text().replace(before, sha256_of(folder / file)))
    faults = check_recipe(folder).faults
    assert any(one.startswith(file) for one in faults), faults
    assert all("\n" not in one for one in faults)


def test_of_table_1_one_time_is_fitted_and_where_memory_ends_is_held_out(monkeypatch):
    """On a device of one's own, of 1 ms a step and 2 more by the share, with room for 550 steps."""
    program = read_program(REPORTS / "swapping").make_tables.__globals__
    curve = program["K40"].efficiency

    def run(length, swap, hardware, batch=512):
        if swap == "off" and length > 550:
            return None
        share = hardware.devices[0].efficiency[-1][1] / curve[-1][1]
        seconds = length * (1.0 + 2.0 / share) / 1e3
        return SimpleNamespace(epochs=pd.DataFrame({"train_s": [seconds]}), peak_bytes=[1])

    monkeypatch.setitem(program, "run", run)
    table, _longest = program["times"](program["cluster"](program["fitted"]()))
    fitted = table[table["which"] == "fitted"]
    assert fitted[["swap", "length"]].to_numpy().tolist() == [["off", 100]]
    assert fitted["ampsim_ms"].tolist() == pytest.approx(fitted["paper_ms"].tolist())
    assert set(table["which"].drop(fitted.index)) == {"held out"}
    shipped = pd.read_csv(REPORTS / "swapping" / "times.csv")
    assert shipped["which"].tolist() == table["which"].tolist()
    assert (shipped["paper_ms"] == "OOM").sum() == 4
