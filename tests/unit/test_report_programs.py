"""Reports that a program makes: written, checked, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import ampsim.recipes.programs as programs
from ampsim.cli.report_programs import do_program
from ampsim.cli.say import Code
from ampsim.errors import FileFormatError, SimulationError

PROGRAM = '''"""Squares."""
import pandas as pd
from ampsim.recipes.programs import Curves

TITLE = "Squares"
TEXT = "Of a few numbers."
CURVES = [Curves("squares", "Squares", "numbers", "x", "y", "kind", "x", "y", is_log_y=True)]


def tables():
    return {"numbers": pd.DataFrame({"x": [1, 2, 3], "y": [1.0, 4.0, 9.0], "kind": "all"})}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert do_program(tmp_path, tmp_path, "write").code is Code.FINE
    return tmp_path


def test_a_report_has_page_tables_figures_and_manifest(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"report.md", "numbers.csv", "squares.png", "manifest.toml"} <= names
    assert (folder / "numbers.csv").read_text() == "x,y,kind\n1,1.0,all\n2,4.0,all\n3,9.0,all\n"
    assert do_program(folder, folder, "check").state == "follows"
    assert do_program(folder, folder, "rerun").state == "follows"


def test_an_edited_table_and_another_program_are_found(folder):
    (folder / "numbers.csv").write_text("x,y,kind\n1,2.0,all\n")
    outcome = do_program(folder, folder, "check")
    assert outcome.faults == ("numbers.csv is not as it was written",)
    (folder / "program.py").write_text(PROGRAM.replace("9.0", "8.0"))
    assert "the program has changed" in do_program(folder, folder, "check").faults


def test_where_the_code_has_changed_numbers_decide(folder, monkeypatch):
    monkeypatch.setattr(programs, "source_digest", lambda: "another")
    outcome = do_program(folder, folder, "check")
    assert (outcome.state, outcome.notes) == ("follows", ("ampsim's code has changed",))
    monkeypatch.setattr(programs.Program, "tables", lambda self: moved(programs, folder))
    assert do_program(folder, folder, "check").faults == (
        "numbers.csv: y of row 3 was 9.0 and is 9.5",
    )


def moved(module, folder):
    tables = dict(module.read_program(folder).make_tables())
    tables["numbers"] = tables["numbers"].replace(9.0, 9.5)
    return tables


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("TITLE = 1", FileFormatError, "missing TEXT, CURVES, tables"),
        ("1 / 0", SimulationError, "failed: ZeroDivisionError"),
        (PROGRAM.replace("return {", "return 3 # {"), FileFormatError, "must give tables by name"),
    ],
)
def test_a_program_that_is_none_is_told_in_one_line(tmp_path, text, kind, said):
    (tmp_path / "program.py").write_text(text)
    with pytest.raises(kind, match=said) as raised:
        do_program(tmp_path, tmp_path, "write")
    assert "\n" not in str(raised.value)
