"""Folders that ampsim wrote, in which a file was changed, cut off, taken away or put elsewhere."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mutation import bases
from mutation.case import Call, Command, Function, Place
from mutation.text import bent, damaged, to_toml

_DECOYS = ("folder", "fifo", "loop", "dangling", "zero", "missing", "empty")


def run_folder(place: Place) -> Call:
    """A changed folder of `ampsim run`."""
    import ampsim

    random = place.random
    for name in ("run-folder", "other"):
        shutil.copytree(place.shared / "run-folder", place.folder / name)
    place.write("model.py", bases.MODEL)
    _change(place.folder / "run-folder", random, has_hashes=True)
    few = ["--instances", "4", "--workers", "2", "--quiet", "--out", "run-folder"]
    words = (
        *(["gantt", "run-folder", "--out", "chart.json"],) * 10,
        *(["gantt", "run-folder", "--out", "chart.html"],) * 6,
        ["gantt", "run-folder", "--out", "chart.png"],
        *(["compare", "run-folder", "other"],) * 10,
        *(["compare", "other", "run-folder", "--json", "-"],) * 6,
        ["run", "model.py", *few],
    )
    load_run: Any = getattr(ampsim, "load_run", None)
    if load_run is not None and random.random() < 0.3:
        return Function("load_run", lambda: _looked_at(load_run("run-folder")), "run-folder")
    return Command(random.choice(words))


def _looked_at(run: Any) -> None:
    """Read what a kept run gives."""
    for name in ("spans", "transfers", "updates", "epochs", "stashes"):
        getattr(run, name, None)
    repr(run)


def report_folder(place: Place) -> Call:
    """A changed folder of `ampsim report`, its kept runs among it."""
    random = place.random
    shutil.copytree(place.shared / "reports", place.folder / "reports")
    _change(place.folder / "reports" / "toy", random, has_hashes=False)
    words = (
        *(["report", "--check", "toy"],) * 15,
        ["report", "--check", "--rerun", "--quiet", "--jobs", "1", "toy"],
        ["report", "--quiet", "--jobs", "1", "toy"],
        *(["check", "reports/toy/recipe.toml"],) * 3,
    )
    return Command(random.choice(words))


def _change(folder: Path, random: random.Random, *, has_hashes: bool) -> None:
    """Change one file of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    own = [path for path in files if path.suffix in (".toml", ".parquet", ".json", ".csv")]
    path = random.choice([*own, *own, *files])
    kind = random.randrange(10)
    if kind == 0:
        _put_decoy(path, random)
    elif kind < 5 and path.suffix == ".toml":
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        path.write_bytes(to_toml(bent(table, random)).encode("utf-8", "surrogateescape"))
    elif kind < 7 and path.suffix == ".parquet":
        path.write_bytes(_bent_table(path, random))
        if has_hashes:
            _describe_again(path)
    else:
        path.write_bytes(damaged(path.read_bytes(), random))
        if has_hashes and path.suffix == ".parquet" and random.random() < 0.5:
            _describe_again(path)


def _put_decoy(path: Path, random: random.Random) -> None:
    """Put something else in a file's place."""
    path.unlink()
    decoy = random.choice(_DECOYS)
    if decoy == "folder":
        path.mkdir()
    elif decoy == "fifo":
        os.mkfifo(path)
    elif decoy == "empty":
        path.touch()
    elif decoy != "missing":
        path.symlink_to({"loop": path.name, "dangling": "nowhere", "zero": "/dev/zero"}[decoy])


def _bent_table(path: Path, random: random.Random) -> bytes:
    """A table of a trace in which a column is not what it should be."""
    frame = pd.read_parquet(path)
    if not len(frame.columns):  # of what nobody counted
        frame = pd.DataFrame({"other": [1, 2]})
    column = random.choice(list(frame.columns))
    values = frame[column]
    numbers = values if values.dtype.kind in "iuf" else pd.Series(np.arange(len(values)))
    ways = (
        lambda: frame.drop(columns=column),
        lambda: frame.rename(columns={column: f"{column}_"}),
        lambda: frame.assign(**{column: None}),
        lambda: frame.assign(**{column: "\x1b[31mtext"}),
        lambda: frame.assign(**{column: -numbers.astype(float)}),
        lambda: frame.assign(**{column: numbers.astype(float) * np.nan}),
        lambda: frame.assign(**{column: np.inf}),
        lambda: frame.assign(**{column: 2**62}),
        lambda: frame.assign(**{column: numbers.astype(float) * 1e300}),
        lambda: frame.assign(**{column: True}),
        lambda: frame.assign(**{column: pd.Timestamp("2020-01-01")}),
        lambda: frame.assign(**{column: values.astype(str)}),
        lambda: frame.assign(**{column: pd.Series([[1, 2]] * len(frame))}),
        lambda: frame.iloc[:0],
        lambda: frame.iloc[:1],
        lambda: frame.iloc[::-1],
        lambda: pd.concat([frame, frame]),
        lambda: pd.DataFrame({"other": [1, 2]}),
        lambda: pd.DataFrame(),
    )
    content = io.BytesIO()
    random.choice(ways)().to_parquet(content, engine="pyarrow", index=False)
    return content.getvalue()


def _describe_again(path: Path) -> None:
    """Let the manifest say that the file is the one that was written."""
    manifest = path.parent / "manifest.toml"
    if not manifest.is_file():
        return
    table = tomllib.loads(manifest.read_text(encoding="utf-8"))
    table["files"][path.stem]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(to_toml(table), encoding="utf-8")
