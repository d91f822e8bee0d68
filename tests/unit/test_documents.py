"""What the pages in `docs/` name exists: files, classes and functions, columns, and links."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ampsim
from ampsim.errors import AmpsimError
from ampsim.ir import Node
from ampsim.study.result import Result
from ampsim.study.run_tables import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "reports" / "README.md"])
GLOSSARY = ROOT / "docs" / "glossary.md"
ONE_MESSAGE = ROOT / "docs" / "one-message.md"


def quoted(text: str) -> list[str]:
    """All that stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def rows(path: Path) -> list[list[str]]:
    """Cells of all tables of a page, without their headings."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [line for line in cells if line[0] != "term"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_files_that_a_page_names_are_there(page):
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target
    for name in quoted(text):
        is_path = re.fullmatch(r"(ampsim|tests|docs|models|devices)/[\w./-]+", name)
        if is_path and "/_shipped/" not in name:  # which is in the wheel only
            assert (ROOT / name).exists(), name


def resolve(name: str) -> Any:
    """What a dotted name of the glossary stands for."""
    if name.startswith("ampsim."):
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)
    first, _, last = name.partition(".")
    owner = {"Node": Node, "Result": Result}.get(first) or getattr(ampsim, first)
    return getattr(owner, last) if hasattr(owner, last) else owner.__dataclass_fields__[last]


def test_every_name_of_the_glossary_exists():
    named = 0
    for _term, _meaning, code, _column in rows(GLOSSARY):
        for name in quoted(code):
            if "/" in name or "=" in name or "." not in name:
                continue
            resolve(name)
            named += 1
    assert named > 20


def test_every_column_of_the_glossary_is_one_of_a_table():
    forecast = ampsim.forecast("rnn", "tflops-1", "amp", instances=200, mode="sleep").table
    known = {f"{table}.{column}" for table, schema in SCHEMAS.items() for column in schema}
    known |= {*forecast.columns, "critical_path.kind", "controller"}
    columns = [name for *_others, column in rows(GLOSSARY) for name in quoted(column)]
    assert len(columns) > 25
    tables = {*SCHEMAS, "_s"}
    assert [name for name in columns if name not in known | tables] == []


def test_what_the_way_of_a_message_names_is_in_the_files_that_it_names():
    """A name in backticks, such as `send`, is defined there."""
    names = quoted(ONE_MESSAGE.read_text("utf-8"))
    defined = {name for file in names if "/" in file for name in definitions(ROOT / file)}
    others = [name for name in names if "/" not in name]
    assert len(others) > 15
    assert set(others) <= defined


def definitions(path: Path) -> set[str]:
    """Names of the functions and classes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, kinds)
    }


def test_the_search_for_names_would_find_a_wrong_one():
    assert "Channel" in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
    assert "Channels" not in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
    with pytest.raises(AttributeError):
        resolve("ampsim.trace.critical_paths")
    assert issubclass(resolve("ampsim.errors.OptionError"), AmpsimError)


def test_the_pages_and_the_skipped_tests_name_the_same_pytorch():
    told = [ROOT / "tests" / "oracle" / "torch_oracle.py", ROOT / "CONTRIBUTING.md"]
    told.append(ROOT / ".ci" / "run")
    versions = [re.findall(r"\btorch==[\d.]+\d", path.read_text("utf-8")) for path in told]
    assert all(len(found) == 1 for found in versions)
    assert len({found[0] for found in versions}) == 1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert not [name for names in extras.values() for name in names if name.startswith("torch")]
