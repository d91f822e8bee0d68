"""ampsim data: which data sets are there, and where the rest comes from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import ampsim
from ampsim.cli.console import Code, answer, complain, in_columns, object_of
from ampsim.errors import AmpsimError
from ampsim.units import format_bytes

if TYPE_CHECKING:
    from ampsim.data import FileStatus


def data(
    name: str | None = None,
    *,
    download: bool = False,
    data: str | None = None,
    json: str | None = None,
) -> Code:
    """Say which files of the data sets are there, how many items they have, and what is missing.

    The object of --json: ampsim, folder, files (a list).
    """
    from ampsim.data.registry import source_named

    names = list(ampsim.data.DATASETS) if name is None else [source_named(name).name]
    code = Code.FINE
    for one in names if download else ():
        try:
            ampsim.data.fetch(one, data, say=complain)
        except AmpsimError as error:  # is a line, and the rest goes on
            complain(error)
            code = Code.FAILED
    files, folder = ampsim.data.survey(data, name), ampsim.data.data_folder(data)
    answer(json, lambda: _as_json(folder, files), lambda: _as_text(folder, names, files))
    for problem in (file.problem for file in files if file.problem):
        complain(problem)
        code = Code.FAILED
    return code


def _as_text(folder: Path, names: list[str], files: list[FileStatus]) -> str:
    parts = [f"data folder: {folder}"]
    for name in names:
        source = ampsim.data.DATASETS[name]
        rows = [
            (
                file.file,
                file.holds,
                "" if file.instances is None else f"{file.instances:,}",
                format_bytes(file.size_bytes),
                _state(file),
            )
            for file in files
            if file.dataset == name
        ]
        heading = f"{name}: {source.description}\n  source: {source.source}"
        parts.append(f"{heading}\n{in_columns(rows, indent='  ')}".rstrip())
    return "\n\n".join(parts)


def _state(file: FileStatus) -> str:
    """Tell whether a file is there, and if not, how to get it."""
    if file.problem:
        return "there, but cannot be used"
    if file.path is not None:
        return "there" if file.is_known else "there, of another content than the one known"
    if file.can_fetch:
        return f"missing; try 'ampsim data {file.dataset} --download'"
    return "missing; nobody gives it out, see its source"


def _as_json(folder: Path, files: list[FileStatus]) -> str:
    rows = [{**dataclasses.asdict(one), "path": one.path and str(one.path)} for one in files]
    return object_of(folder=str(folder), files=rows)
