"""Reports of programs: a folder whose `program.py` makes tables, and says which curves they are.

A program is what no recipe of models and schedules can say, such as one on a dependency engine. It
is run by `ampsim report NAME`, as recipes are; `ampsim report --check` runs it again where it or
the code has changed, and compares all numbers.
"""

from __future__ import annotations

import io
import math
import os
import runpy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError
from ampsim.files import sha256_of
from ampsim.paths import read_regular
from ampsim.recipes.checking import Verdict, edits_of, read_manifest
from ampsim.recipes.places import PROGRAM
from ampsim.recipes.running import FORMAT, KIND
from ampsim.study.source_digest import source_digest
from ampsim.user_code import user_code

PAGE: Final = "report.md"
TOLERANCE: Final = 1e-9
"""Relative difference of a number of a table; chosen: rounding of sums in another order."""

_NAMES: Final = ("TITLE", "TEXT", "CURVES", "tables")


@dataclass(frozen=True, slots=True)
class Curves:
    """A figure of a table: one curve for each value of a column.

    Args:
        name: of the figure's file, without its suffix.
        title: its heading.
        table: name of the table.
        x, y, by: columns of it; `by` tells the curves apart.
        x_label, y_label: of the axes.
        is_log_x, is_log_y: whether an axis is logarithmic.
    """

    name: str
    title: str
    table: str
    x: str
    y: str
    by: str
    x_label: str
    y_label: str
    is_log_x: bool = False
    is_log_y: bool = False

    @property
    def columns(self) -> tuple[str, str, str]:
        """Columns of x and y, and the one that tells curves apart."""
        return self.x, self.y, self.by

    @property
    def words(self) -> tuple[str, str, str]:
        """Title, and labels of x and y."""
        return self.title, self.x_label, self.y_label

    @property
    def are_logarithmic(self) -> tuple[bool, bool]:
        """Whether x is, and y."""
        return self.is_log_x, self.is_log_y


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was read.

    Args:
        folder: where it lies.
        sha256: of its file.
        title: of the report.
        text: its paragraphs, in Markdown.
        curves: its figures.
        make_tables: runs it.
    """

    folder: Path
    sha256: str
    title: str
    text: str
    curves: tuple[Curves, ...]
    make_tables: Callable[[], Mapping[str, pd.DataFrame]]

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.resolve().name

    def tables(self) -> dict[str, pd.DataFrame]:
        """Run the program: a table for each name.

        Raises:
            FileFormatError: it gives something else.
            SimulationError: it fails.
        """
        with user_code(f"{self.folder / PROGRAM} failed"):
            tables = self.make_tables()
        if not isinstance(tables, dict) or not tables:
            raise FileFormatError(f"{self.folder / PROGRAM}: tables() must give tables by name")
        for name, table in tables.items():
            if not isinstance(table, pd.DataFrame):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's code
                raise FileFormatError(
                    f"{self.folder / PROGRAM}: table {name!r} must be a DataFrame"
                )
        return tables

    def manifest(self) -> dict[str, Any]:
        """What a report of it says of its origin."""
        return {
            "kind": KIND,
            "format": FORMAT,
            "code": source_digest(),
            "program": {"file": PROGRAM, "sha256": self.sha256},
        }


def read_program(folder: Path) -> Program:
    """Read the program of a folder.

    Raises:
        FileFormatError: it lacks one of the names TITLE, TEXT, CURVES and tables.
        SimulationError: it cannot be run.
    """
    path = folder / PROGRAM
    digest = sha256_of(path)
    with user_code(f"{path} failed"):
        names = runpy.run_path(str(path))
    missing = [name for name in _NAMES if name not in names]
    if missing:
        raise FileFormatError(f"{path}: missing {', '.join(missing)}; a program has {_NAMES}")
    return Program(
        folder, digest, names["TITLE"], names["TEXT"], tuple(names["CURVES"]), names["tables"]
    )


def check_program(program: Program, folder: Path, *, is_fresh: bool = False) -> Verdict:
    """Whether a report follows from its program and the code, by hashes and, at need, by a run.

    Args:
        program: what made it.
        folder: where it lies.
        is_fresh: run again in any case.
    """
    try:
        manifest = read_manifest(folder)
    except FileFormatError as error:
        return Verdict((str(error),))
    faults = list(edits_of(folder, manifest, PAGE))
    before = manifest.get("program")
    if not isinstance(before, dict) or before.get("sha256") != program.sha256:  # pyright: ignore[reportUnknownMemberType]  # any TOML
        faults.append("the program has changed")
    notes: tuple[str, ...] = ()
    if manifest.get("code") != source_digest():
        notes = ("ampsim's code has changed",)
    if not faults and (notes or is_fresh):
        faults += _differences(program.tables(), folder)
    return Verdict(tuple(faults), notes)


def _differences(tables: Mapping[str, pd.DataFrame], folder: Path) -> Iterator[str]:
    """The first number of each table that is not what it was."""
    for name, now in tables.items():
        path = folder / f"{name}.csv"
        if not os.path.isfile(path):
            yield f"{path.name} is missing"
            continue
        content = read_regular(path, path.name)
        before = pd.read_csv(io.BytesIO(content))
        now = pd.read_csv(io.StringIO(now.to_csv(index=False)))
        if list(before.columns) != list(now.columns) or len(before) != len(now):
            yield f"{path.name} has other rows or columns"
            continue
        yield from _first_difference(path.name, before, now)


def _first_difference(name: str, before: pd.DataFrame, now: pd.DataFrame) -> Iterator[str]:
    for column in now.columns:
        pairs = zip(before[column], now[column], strict=True)
        for row, (old, new) in enumerate(pairs):
            if not _is_same(old, new):
                yield f"{name}: {column} of row {row + 1} was {old} and is {new}"
                return


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, str) or isinstance(new, str):
        return str(old) == str(new)
    both_unknown = math.isnan(float(old)) and math.isnan(float(new))
    return both_unknown or math.isclose(float(old), float(new), rel_tol=TOLERANCE)
