"""What the pages in `docs/` name exists: files, classes and functions, columns, and links."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ampsim
from ampsim.errors import AmpsimError
from ampsim.hardware import (
    Checkpoints,
    Device,
    Edge,
    Event,
    Failures,
    HostPorts,
    Level,
    Link,
    Messages,
    Ports,
    Topology,
)
from ampsim.hardware.cluster_file import _ClusterFile, _DeviceEntry, _RouteEntry
from ampsim.hardware.device import NUMBERS
from ampsim.ir import Node
from ampsim.study.result import Result
from ampsim.study.run_tables import SCHEMAS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "reports" / "README.md"])
GLOSSARY = ROOT / "docs" / "glossary.md"
ONE_MESSAGE = ROOT / "docs" / "one-message.md"
API = ROOT / "docs" / "api.md"
HARDWARE = ROOT / "docs" / "own-device-and-cluster.md"


def quoted(text: str) -> list[str]:
    """All that stands between single backticks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def rows(path: Path) -> list[list[str]]:
    """Cells of all tables of a page, without their headings."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [line for line in cells if line[0] not in ("term", "module")]


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


def described(page: Path) -> set[str]:
    """Names of a module that its page describes; all public ones, unless it lists some."""
    text = page.read_text("utf-8")
    (name,) = re.findall(r"^\.\. automodule:: (\S+)$", text, re.MULTILINE)
    assert name == page.stem
    listed = re.findall(r"^ +:members: (.+)$", text, re.MULTILINE)
    left_out = set(", ".join(re.findall(r":exclude-members: (.+)", text)).split(", "))
    names = listed[0].split(", ") if listed else public(importlib.import_module(name))
    return {f"{name}.{one}" for one in names} - {f"{name}.{one}" for one in left_out}


def public(module: ModuleType) -> list[str]:
    """What a module says is public, or without a word what is defined there."""
    own = [name for name, value in vars(module).items() if is_of(value, module)]
    return getattr(module, "__all__", own)


def is_of(value: Any, module: ModuleType) -> bool:
    name = getattr(value, "__name__", "_")
    return getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")


def test_every_public_module_has_its_page_in_the_reference():
    listed = [quoted(line[0].partition("]")[0])[0] for line in rows(API)]
    assert sorted(listed) == sorted(page.stem for page in (ROOT / "docs" / "api").glob("*.rst"))
    assert {name for name in ampsim.__all__ if isinstance(getattr(ampsim, name), ModuleType)} <= {
        name.removeprefix("ampsim.") for name in listed
    }


def test_every_public_name_is_described_in_the_reference():
    names = {name for page in (ROOT / "docs" / "api").glob("*.rst") for name in described(page)}
    things = [resolve(name) for name in names]
    missing = [
        name
        for name in ampsim.__all__
        if not isinstance(getattr(ampsim, name), ModuleType)
        and not any(getattr(ampsim, name) is thing for thing in things)
    ]
    assert missing == []


def keys_and_defaults(heading: str) -> dict[str, str]:
    """The keys of a section's tables, and what holds without them, as the page says."""
    text = HARDWARE.read_text("utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: dict[str, str] = {}
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        headings, _line, *lines = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
        ]
        for line in lines:
            cells = dict(zip(headings, line, strict=True))
            found[quoted(cells["key"])[0]] = cells["without it"]
    return found


def test_the_page_on_devices_has_every_key_and_says_which_are_needed():
    told = keys_and_defaults("A device")
    assert told.keys() == Device.model_fields.keys()
    for key in NUMBERS:
        is_needed = Device.model_fields[key].is_required()
        assert (told[key] == "needed") == is_needed, key


def test_the_page_on_clusters_has_every_key():
    told = keys_and_defaults("A cluster")
    records = (_ClusterFile, _DeviceEntry, _RouteEntry, Link)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {field.alias or name for name, field in fields}
    for name, field in fields:
        if field.is_required() and name != "name":  # which the file's name stands for
            assert told[field.alias or name].startswith("needed"), name


def test_the_page_on_events_has_every_key():
    told = keys_and_defaults("Events, failures and messages")
    records = (Event, Failures, Checkpoints, Messages)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {name for name, _field in fields}
    for name, field in fields:
        if field.is_required():
            assert told[name].startswith("needed"), name


def test_the_page_on_edges_and_ports_has_every_key():
    told = keys_and_defaults("Edges and ports")
    records = (Topology, Level, Edge, Ports, HostPorts)
    fields = [(name, field) for record in records for name, field in record.model_fields.items()]
    assert told.keys() == {name for name, _field in fields}
    for name, field in fields:
        if field.is_required():
            assert told[name].startswith("needed"), name


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
    assert "Fabric" in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
    assert "Fabrics" not in definitions(ROOT / "ampsim" / "machine" / "fabric.py")
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
