"""Texts that would command what shows them, and numbers of any size: refused, or made visible."""

from __future__ import annotations

import tomllib
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from covering import together
from pydantic import BaseModel

import ampsim.calibration  # noqa: F401  # likewise
from ampsim.errors import FileFormatError, OptionError
from ampsim.hardware.record import HARDWARE
from ampsim.text import MARK, is_commanding, to_cell, to_toml
from ampsim.toml_file import Record, read_table

COMMANDING = ("\x1b[31m", "\x07", "\x00", "\x7f", "\x9b1m", "\x85", "\u2028", "\u202e", "\u2066")
"""Characters of each kind: ESC, others of C0, DEL, C1, ends of lines, and directions."""

ORDINARY = (
    "two\nlines\t",
    "caf\u00e9",
    "\U0001f469\u200d\U0001f52c",
    "\u0645\u06cc\u200c",
    "\u00a0",
)
"""Texts that are as they should be, with joiners and spaces that are not seen."""


def commanding(text: str) -> set[str]:
    """Found without the code under test."""
    turning = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    return {
        c
        for c in text
        if unicodedata.bidirectional(c) in turning
        or (unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in "\n\r\t")
    }


@together(
    "place, table, text",
    [
        (place, table, text)
        for place, table in (
            ("a", {"a": "{}"}),
            ("a.b[1].c", {"a": {"b": [1, {"c": "{}"}]}}),
            ("a[1]", {"a": ["x", "{}"]}),
            ("a key", {"a": {"{}": 1}}),
        )
        for text in COMMANDING
    ],
)
def test_no_file_may_hold_a_commanding_text_anywhere(
    tmp_path: Path, text: str, table: dict[str, Any], place: str
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {filled(key): filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.format(f"x{text}") if isinstance(value, str) else value

    path = tmp_path / "file.toml"
    path.write_text(to_toml(filled(table)), encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"must be text without control char") as caught:
        read_table(path, "file.toml", HARDWARE)
    assert str(caught.value).startswith(f"file.toml: {place} must be")
    assert not commanding(str(caught.value))


@pytest.mark.parametrize("number", [2**63, -(2**63), 10**400])
def test_no_file_may_hold_a_number_beyond_64_bits(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file.toml"
    path.write_text(f"[a]\nb = [[1, {number}]]\n")
    with pytest.raises(FileFormatError, match=r"a\.b\[0\]\[1\] must be a number that fits in 64"):
        read_table(path, "file.toml", HARDWARE)


def _records(kind: type[BaseModel] = Record) -> list[type[BaseModel]]:
    found = [one for below in kind.__subclasses__() for one in (below, *_records(below))]
    return sorted(dict.fromkeys(found), key=lambda one: (one.__module__, one.__name__))


FIELDS = [(record, name) for record in _records() for name in record.model_fields]
BEYOND = (("x\x1b", "without control characters"), (10**400, "fits in 64 bits"))


@together(
    "said, value, record, name", [(said, value, *f) for value, said in BEYOND for f in FIELDS]
)
def test_no_record_takes_a_commanding_text_or_a_number_beyond_64_bits(
    said: str, value: object, record: type[BaseModel], name: str
) -> None:
    key = record.model_fields[name].alias or name
    with pytest.raises(OptionError, match=said) as caught:
        record(**{key: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", [*COMMANDING, *ORDINARY])
def test_toml_holds_every_text_and_shows_what_commands(text: str) -> None:
    document = {f"a {text}": {"b": [text, {"c": f"x{text}y"}]}}
    written = to_toml(document)
    assert tomllib.loads(written) == document
    assert not commanding(written)


@pytest.mark.parametrize("text", COMMANDING)
def test_a_cell_shows_what_commands(text: str) -> None:
    cell = to_cell(f"=a{text}b")
    assert is_commanding(text)
    assert not commanding(cell)
    assert cell.startswith("'=a\\")


@pytest.mark.parametrize("text", ORDINARY)
def test_a_cell_of_an_ordinary_text_gives_it_back(text: str) -> None:
    assert not is_commanding(text)
    assert to_cell(text).removeprefix(MARK) == text


MODEL = """
from dataclasses import dataclass, replace
import ampsim

@dataclass(frozen=True)
class Config:
    words: str = "none"

def build(config):
    given = ampsim.load_model("rnn", hidden=4)
    return replace(given, name="mine\\x1b[2J\\x9b\\u202e", config=config)
"""
TEXT_SUFFIXES = {".csv", ".toml", ".md", ".html", ".json", ".svg"}


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("command", ["run", "forecast", "gantt json", "gantt html", "models dot"])
def test_no_file_that_is_written_commands_what_shows_it(call, tmp_path, command) -> None:
    command, _, suffix = command.partition(" ")
    name = "odd\x1b[31m\u202e\x9b"
    (tmp_path / f"{name}.py").write_text(MODEL)
    words = [command, f"{name}.py", "--set", f"words={name}"]
    if command == "models":
        words += ["--graph", f"made.{suffix}"]
    else:
        words += ["--instances", "20", "--schedule", "amp", "--workers", "2"]
        words += ["--out", f"made.{suffix}"] if suffix else ["--quiet", "--out", "made"]
        words += ["--max-epochs", "1"] if command == "forecast" else []
    ended = call(*words)
    assert ended.code == 0, ended.err
    files = [path for path in tmp_path.rglob("made*") if path.is_file()]
    files += [path for path in tmp_path.glob("made/*") if path.suffix in TEXT_SUFFIXES]
    assert files
    for path in files:
        assert not commanding(path.read_text(encoding="utf-8")), path.name
