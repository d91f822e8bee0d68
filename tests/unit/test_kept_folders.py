"""A kept folder that was tampered with is one line, whatever was changed and whoever reads it."""

from __future__ import annotations

import copy
import hashlib
import io
import random
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ampsim.runs.folder import TABLES
from ampsim.text import to_toml

SMALL = ("--instances", "20", "--set", "hidden=4", "--mode", "sleep", "--quiet")
READERS = (
    ("gantt", "bad", "--out", "g.png"),
    ("gantt", "bad", "--out", "g.html"),
    ("gantt", "bad", "--out", "g.json"),
    ("compare", "bad", "kept"),
    ("compare", "kept", "bad", "--json", "-"),
)
pytestmark = pytest.mark.usefixtures("unpainted")

ODD: tuple[Any, ...] = (
    3, -1, 10**30, 0.5, float("nan"), True, "text", "", [], [1], {}, {"a": 1}, [{"device": 3}],
    [{"device": "a", "workers": 10**9}], "\x1b[31m",
)  # fmt: skip


def places(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The place of each value in nested tables, tables themselves among them."""
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def changed(manifest: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The manifest with another value there; without any where the value is None."""
    made = copy.deepcopy(manifest)
    table = made
    for key in place[:-1]:
        table = table[key]
    table[place[-1]] = value
    return made


def frames(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The table with other columns, types or values."""
    yield "empty", frame.iloc[:0]
    yield "nothing", pd.DataFrame()
    yield "other", pd.DataFrame({"a": [1, 2]})
    yield "more", frame.assign(more=1)
    for name in frame.columns:
        yield f"no {name}", frame.drop(columns=name)
        for value in (None, "text", -1, 2**31 - 1, 1e300, np.nan, True):
            yield f"{name} = {value!r}", frame.assign(**{str(name): value})
        if frame[name].dtype.kind in "if":
            for number in (-1, 0, np.iinfo(np.int32).max):
                column = pd.Series(number, frame.index).astype(frame[name].dtype)
                yield f"{name} = {number} of its type", frame.assign(**{str(name): column})


def as_bytes(frame: pd.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.to_parquet(content, engine="pyarrow", index=False)
    return content.getvalue()


class Folders:
    """A run that was kept, and ways to spoil a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.kept, self.bad = folder / "kept", folder / "bad"
        self.manifest = tomllib.loads((self.kept / "manifest.toml").read_text("utf-8"))

    def spoil(self, manifest: dict[str, Any] | None = None, **contents: bytes) -> None:
        """Make the copy anew, with another manifest, and tables that it knows."""
        shutil.rmtree(self.bad, ignore_errors=True)
        shutil.copytree(self.kept, self.bad)
        made = copy.deepcopy(self.manifest if manifest is None else manifest)
        for name, content in contents.items():
            (self.bad / f"{name}.parquet").write_bytes(content)
            made["files"][name]["sha256"] = hashlib.sha256(content).hexdigest()
        if manifest is not None or contents:
            (self.bad / "manifest.toml").write_text(to_toml(made), "utf-8")


@pytest.fixture
def folders(once: Any, tmp_path: Path) -> Folders:
    assert once("run", "rnn", *SMALL, "--out", "kept").code == 0
    return Folders(tmp_path)


def expect_a_line(call: Any, what: object, words: tuple[str, ...]) -> None:
    """The command works, or says one line; anything else would have been raised."""
    ended = call(*words)
    assert ended.code in (0, 2), (what, words, ended)
    if ended.code == 2:
        assert ended.out == "", (what, words, ended)
        assert ended.err.startswith("ampsim: ") and ended.err.count("\n") == 1, (what, ended)


@pytest.mark.slow
def test_a_manifest_with_other_values_is_one_line(call, folders):
    cases = [(place, value) for place in places(folders.manifest) for value in (None, *ODD)]
    for place, value in random.Random(1).sample(cases, 40):
        folders.spoil(changed(folders.manifest, place, value))
        expect_a_line(call, (place, value), random.Random(repr(place)).choice(READERS))


@pytest.mark.slow
def test_a_manifest_whose_needed_keys_are_of_other_kinds_is_refused(call, mistake, folders):
    needed = [("model", "name"), ("schedule", "name"), ("cluster", "workers")]
    needed += [("cluster", "groups"), ("files", "spans", "rows"), ("files", "epochs", "sha256")]
    for place in needed:
        for value in ({"a": 1}, 0.5, True):
            folders.spoil(changed(folders.manifest, place, value))
            said = f"bad/manifest.toml: {'.'.join(place)} must be "
            assert said in mistake("compare", "bad", "kept")


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_other_columns_types_or_values_is_one_line(name, call, folders):
    frame = pd.read_parquet(folders.kept / f"{name}.parquet")
    cases = list(frames(frame))
    for what, other in random.Random(2).sample(cases, min(len(cases), 10)):
        folders.spoil(**{name: as_bytes(other)})
        expect_a_line(call, (name, what), random.Random(what).choice(READERS))


@pytest.mark.slow
def test_a_table_that_is_cut_lost_or_no_table_is_one_line(call, folders, mistake):
    for name in TABLES:
        whole = (folders.kept / f"{name}.parquet").read_bytes()
        contents = (b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], whole[::-1], b"\0" * 99)
        for content in contents:
            folders.spoil(**{name: content})
            expect_a_line(call, (name, content[:9]), ("compare", "bad", "kept"))
            expect_a_line(call, (name, content[:9]), ("gantt", "bad", "--out", "g.json"))
        folders.spoil()
        (folders.bad / f"{name}.parquet").unlink()
        (folders.bad / f"{name}.parquet").mkdir()
        assert "expected a file, got a folder" in mistake("compare", "bad", "kept")
