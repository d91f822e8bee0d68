"""Reports that a program makes: written, checked, refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from ampsim.errors import FileFormatError
from ampsim.recipes import programs
from ampsim.recipes.checking import Verdict
from ampsim.recipes.programs import (
    check_program,
    read_program,
    redraw_program,
    write_program_report,
)

PROGRAM = '''"""Squares."""
import datetime
import numpy as np
import pandas as pd
from ampsim.recipes.programs import Curves

TITLE = "Squares"
TEXT = "Of a few numbers."
CURVES = [Curves("squares", "Squares", "numbers", "x", "y", "kind", "x", "y", is_log_y=True)]


def tables():
    return {"numbers": pd.DataFrame({"x": [1, 2, 3], "y": [1.0, 4.0, 9.0], "kind": "all"})}
'''


def write(folder: Path) -> None:
    program = read_program(folder)
    write_program_report(program, program.tables(), folder)


def check(folder: Path) -> Verdict:
    return check_program(read_program(folder), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    write(tmp_path)
    return tmp_path


def test_a_report_has_page_tables_figures_and_manifest(folder):
    names = {path.name for path in folder.iterdir()}
    assert {"report.md", "numbers.csv", "squares.png", "manifest.toml"} <= names
    assert (folder / "numbers.csv").read_text() == "x,y,kind\n1,1.0,all\n2,4.0,all\n3,9.0,all\n"
    assert check(folder) == Verdict(())


def test_an_edited_table_and_another_program_are_found(folder):
    (folder / "numbers.csv").write_text("x,y,kind\n1,2.0,all\n")
    assert check(folder).faults == ("numbers.csv is not as it was written",)
    (folder / "program.py").write_text(PROGRAM.replace("9.0", "8.0"))
    assert "the program has changed" in check(folder).faults


def test_where_the_code_has_changed_numbers_decide(folder, monkeypatch):
    monkeypatch.setattr(programs, "source_digest", lambda: "another")
    assert check(folder) == Verdict((), ("ampsim's code has changed",))
    tables = programs.ReportProgram.tables
    moved = {"numbers": tables(read_program(folder))["numbers"].replace(9.0, 9.5)}
    monkeypatch.setattr(programs.ReportProgram, "tables", lambda self: moved)
    said = "numbers.csv is not what program.py gives: y of 3 is '9.0' in place of '9.5'"
    assert said in check(folder).faults


def test_a_program_that_is_wrong_now_is_a_fault_of_its_report(folder):
    text = PROGRAM.replace("1.0, 4.0", "'a', 4.0")
    (folder / "program.py").write_text(text)
    manifest = (folder / "manifest.toml").read_text()
    digest = programs.sha256_of(folder / "program.py")
    before = programs.read_manifest(folder)["program"]["sha256"]
    (folder / "manifest.toml").write_text(manifest.replace(before, digest))
    (fault,) = check(folder).faults
    assert "y of row 1 must be a number" in fault


SPANS = """
from ampsim.recipes.programs import Timeline

TIMELINES = [Timeline("who", "Who worked", "spans")]
numbers_alone = tables
SPANS = {
    "worker": [0, 0], "lane": ["compute", "copy-out"], "node": ["a", "b"],
    "direction": ["forward", "backward"], "instance": [1, 2], "start_s": [0.0, 0.5],
    "end_s": [1.0, 1.5],
}


def tables():
    return {**numbers_alone(), "spans": pd.DataFrame(SPANS)}
"""


def test_a_timeline_is_drawn_of_spans_in_lanes(folder):
    (folder / "program.py").write_text(PROGRAM + SPANS)
    write(folder)
    page = (folder / "report.md").read_text()
    assert page.index("![Squares](squares.png)") < page.index("![Who worked](who.png)")
    assert check(folder) == Verdict(())
    drawn = (folder / "who.png").read_bytes()
    (folder / "program.py").write_text(PROGRAM + SPANS.replace("0.5]", "0.9]"))
    write(folder)
    assert (folder / "who.png").read_bytes() != drawn


SMALL = """
N = 3
WITNESS = {"N": 2}


def tables():
    marks = ["first", 0.5, float("nan"), 7, "last"]
    each = [{"x": x, "y": x**2.0, "kind": "all", "mark": marks[x % 5]} for x in range(1, 2 * N)]
    return {"numbers": pd.DataFrame(each)}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A report whose program has a witness of two numbers."""
    (tmp_path / "program.py").write_text(PROGRAM + SMALL)
    write(tmp_path)
    return tmp_path


def again(folder: Path) -> Verdict:
    return check_program(read_program(folder), folder, is_again=True)


def test_the_witness_is_what_the_program_gives_with_its_small_values(small):
    rows = ["x,y,kind,mark", "1,1.0,all,0.5", "2,4.0,all,", "3,9.0,all,7.0"]
    told = json.loads((small / "witness.json").read_text())
    assert told == {"kind": "witness", "tables": {"numbers": rows}}
    assert len((small / "numbers.csv").read_text().splitlines()) == 6
    assert check(small) == again(small) == Verdict(())


def test_with_a_witness_only_that_is_run_again(small, monkeypatch):
    def none(self) -> None:
        raise AssertionError

    monkeypatch.setattr(programs, "source_digest", lambda: "another")
    whole = programs.ReportProgram.tables
    monkeypatch.setattr(
        programs.ReportProgram,
        "tables",
        lambda self: whole(self) if self.make_tables.__globals__["N"] == 2 else none(self),
    )
    assert check(small) == Verdict((), ("ampsim's code has changed",))
    with pytest.raises(AssertionError):
        again(small)


def test_numbers_that_move_are_seen_in_the_witness_and_in_a_whole_run(small, monkeypatch):
    whole = programs.ReportProgram.tables
    monkeypatch.setattr(
        programs.ReportProgram,
        "tables",
        lambda self: {"numbers": whole(self)["numbers"].replace({"y": {9.0: 9.000001}})},
    )
    (fault,) = check(small).faults
    assert fault.startswith("witness.json is not what numbers.csv and WITNESS of program.py give")
    assert "'9.0' in place of '9.000001'" in fault
    assert any(
        one.startswith("numbers.csv is not what program.py gives") for one in again(small).faults
    )


def test_with_a_witness_an_edited_table_with_its_new_hash_is_not_what_was_drawn(small):
    before = programs.sha256_of(small / "numbers.csv")
    (small / "numbers.csv").write_text((small / "numbers.csv").read_text().replace("16.0", "17.0"))
    manifest = (small / "manifest.toml").read_text()
    now = programs.sha256_of(small / "numbers.csv")
    (small / "manifest.toml").write_text(manifest.replace(before, now))
    files = [one.split(" is not what numbers.csv")[0] for one in check(small).faults]
    assert files == ["squares.png", "report.md"]


def test_with_a_witness_a_report_is_redrawn_of_its_tables(small, monkeypatch):
    before = {path.name: path.read_bytes() for path in small.glob("*.csv")}
    program = small / "program.py"
    program.write_text(program.read_text().replace("Of a few", "Of some"))
    assert check(small).faults == ("the program has changed",)
    whole = programs.ReportProgram.tables

    def only_tiny(self):
        tables = whole(self)
        assert len(tables["numbers"]) == 3, "the whole program was run"
        return tables

    monkeypatch.setattr(programs.ReportProgram, "tables", only_tiny)
    redraw_program(read_program(small), small)
    assert check(small) == Verdict(())
    assert "Of some numbers." in (small / "report.md").read_text()
    assert {path.name: path.read_bytes() for path in small.glob("*.csv")} == before


def test_a_program_that_does_something_else_is_not_redrawn(small):
    program = small / "program.py"
    program.write_text(program.read_text().replace("x**2.0", "x**3.0"))
    with pytest.raises(FileFormatError, match=r"^witness\.json is not .* run it again$"):
        redraw_program(read_program(small), small)


def test_an_edited_table_is_not_redrawn(small):
    (small / "numbers.csv").write_text((small / "numbers.csv").read_text().replace("16.0", "17.0"))
    with pytest.raises(FileFormatError, match=r"^numbers\.csv is not as it was written; run it"):
        redraw_program(read_program(small), small)


def test_a_text_that_reads_as_a_number_cannot_be_read_again(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM + SMALL.replace('"first"', '"12345"'))
    with pytest.raises(FileFormatError, match="a text must not read as a number"):
        write(tmp_path)


NO_TIMELINE = {
    "a list of others": ("[Timeline(", "[3, Timeline(", "must be a list of Timeline, got [3"),
    "a name that is taken": ('"who"', '"Squares"', "TIMELINES[0].name must be up to 60 letters"),
    "a table that is missing": ('"spans")]', '"span")]', "no table named 'span'; did you mean"),
    "a column that is missing": ('"node": ["a", "b"],', "", "no column named 'node'"),
    "half a worker": ('"worker": [0, 0]', '"worker": [0, 0.5]', "worker of row 1 must be a whole"),
    "a lane that is none": ('"copy-out"', '"copy-over"', "lane of row 2 must be a lane, got"),
    "a direction": ('"backward"', '"upward"', "direction of row 2 must be a direction, got 'upwa"),
    "a time of text": ("[1.0, 1.5]", '[1.0, "b"]', "end_s of row 2 must be a number, got 'b'"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", NO_TIMELINE)
def test_a_timeline_of_what_are_no_spans_is_refused(tmp_path, wrong):
    before, after, said = NO_TIMELINE[wrong]
    assert before in SPANS
    (tmp_path / "program.py").write_text(PROGRAM + SPANS.replace(before, after))
    with pytest.raises(FileFormatError, match=re.escape(said)):
        write(tmp_path)
    assert not (tmp_path / "report.md").exists()


TABLE = '{"numbers": pd.DataFrame({"x": [1, 2, 3], "y": [1.0, 4.0, 9.0], "kind": "all"})}'
WRONG = {
    "a name is missing": ("TITLE = ", "TITEL = ", "missing TITLE"),
    "it fails": ("TITLE = ", "1 / 0\nTITLE = ", "failed: ZeroDivisionError"),
    "it ends": ("TITLE = ", "raise SystemExit(3)\nTITLE = ", "failed: SystemExit"),
    "it is no Python": ("TITLE = ", "TITLE == = ", "failed: SyntaxError"),
    "a title that is none": ('TITLE = "Squares"', "TITLE = 3", "TITLE must be text"),
    "a title of bytes": ('TITLE = "S', 'TITLE = b"S', "TITLE must be text"),
    "a title of escapes": ('TITLE = "S', 'TITLE = "\\x1b[31m', "TITLE must be text"),
    "a text of half a character": ('TEXT = "', 'TEXT = "\\ud800', "TEXT must be text"),
    "no list of curves": ("CURVES = [", "CURVES = 3 # [", "CURVES must be a list of Curves"),
    "curves of text": ("CURVES = [", 'CURVES = ["a"] # [', "CURVES must be a list of Curves"),
    "curves of a number": ('"Squares", "numbers"', '3, "numbers"', "CURVES[0].title must be text"),
    "a flag of text": ("is_log_y=True", 'is_log_y="yes"', "is_log_y must be true or false"),
    "a figure elsewhere": ('Curves("squares"', 'Curves("../../x"', "CURVES[0].name must be up to"),
    "too few curves": ('"kind", "x", "y", is', '"kind", is', "failed: TypeError"),
    "tables that are none": ("def tables():", "tables = 3\ndef other():", "tables must be a func"),
    "an unknown table": ('"numbers", "x"', '"numbres", "x"', "no table named 'numbres'"),
    "an unknown column": ('"numbers", "x"', '"numbers", "z"', "no column named 'z'"),
    "a figure of text": ('"x", "y", "kind"', '"kind", "y", "x"', "kind of row 1 must be a number"),
    "a logarithm of 0": ("[1.0, 4.0", "[0.0, 4.0", "y of row 1 must be a number above 0"),
    "an axis of infinity": ("9.0]", 'float("inf")]', "y of row 3 must be a number"),
    "a witness of a list": ("TITLE = ", "WITNESS = [1]\nTITLE = ", "WITNESS must be small values"),
    "a witness of nobody": ("TITLE = ", 'WITNESS = {"TEXTS": 1}\nTITLE = ', "no global named"),
    "no tables": (TABLE, "{}", "must give tables by name, got {}"),
    "a list of tables": (TABLE, "[1]", "must give tables by name, got [1]"),
    "nothing": (TABLE, "None", "must give tables by name, got None"),
    "a table that fails": (TABLE, "[][0]", "failed: IndexError"),
    "no frame": (TABLE, '{"numbers": {"x": [1]}}', "table 'numbers' must be a DataFrame"),
    "a table elsewhere": ('{"numbers"', '{"../../x"', "the name of a table must be up to 60"),
    "a table at the root": ('{"numbers"', '{"/x"', "the name of a table must be up to 60"),
    "a table of two lines": ('{"numbers"', '{"a\\nb"', "the name of a table must be up to 60"),
    "a table without a name": ('{"numbers"', '{""', "the name of a table must be up to 60"),
    "a table by number": ('{"numbers"', "{3", "the name of a table must be up to 60"),
    "a name that is too long": ('{"numbers"', '{"n" * 300', "the name of a table must be up to"),
    "two names that are one": (TABLE, TABLE[:-1] + ', "Numbers": 3}', "be given once"),
    "a date": ('"all"})', 'datetime.date(2020, 1, 1)})', "kind of row 1 must be text or a number"),
    "a time": ('"all"})', 'pd.Timestamp(0)})', "kind of row 1 must be text or a number"),
    "bytes": ('"all"})', 'b"all"})', "kind of row 1 must be text or a number"),
    "lists": ('"all"})', '[[1], [2], [3]]})', "kind of row 1 must be text or a number"),
    "no value": ('"all"})', "None})", "kind of row 1 must be text or a number, got None"),
    "a complex number": ("[1.0, 4.0", "[1j, 4.0", "y of row 1 must be text or a number"),
    "a number without end": ("[1, 2, 3]", "[10**400, 2, 3]", "x of row 1 must be text or a number"),
    "escapes": ('"all"})', '"\\x1b[31m"})', "kind of row 1 must be text or a number"),
    "half a character": ('"all"})', 'pd.Series(["\\ud800"] * 3, dtype=object)})', "kind of row 1"),
    "a column by number": ('"all"})', '"all", 3: 4})', "columns must be texts that differ"),
    "two columns of one": (TABLE, f'{{"n": {TABLE}["numbers"].iloc[:, [0, 0]]}}', "that differ"),
    "no rows": (TABLE, f'{{"numbers": {TABLE}["numbers"].iloc[:0]}}', "must have a row"),
    "no columns": (TABLE, '{"numbers": pd.DataFrame(index=[1, 2])}', "must have a row"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report that is right, to be copied to one of the same name."""
    folder = tmp_path_factory.mktemp("reports") / "mine"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    write(folder)
    return folder


@pytest.mark.parametrize("way", ["write", "--check"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_program_is_told_in_one_line_and_nothing_is_written(
    call, tmp_path, mine, wrong, way
):
    before, after, said = WRONG[wrong]
    place = tmp_path / "outer" / "reports" / "mine"
    assert before in PROGRAM
    shutil.copytree(mine, place)
    text = PROGRAM.replace(before, after)
    (place / "program.py").write_text(text, errors="surrogatepass")
    manifest = place / "manifest.toml"
    digests = (
        programs.read_manifest(place)["program"]["sha256"],
        programs.sha256_of(place / "program.py"),
    )
    manifest.write_text(manifest.read_text().replace(*digests))
    (tmp_path / "x.csv").write_text("mine")
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ended = call("report", str(place), *([way] if way == "--check" else []))
    told = ended.out + ended.err
    assert ended.code in (1, 2)
    assert said in " ".join(told.split())
    assert told.count("\n") == 1
    assert "Traceback" not in told
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: one for path, one in left.items() if "__pycache__" not in path.parts} == kept
