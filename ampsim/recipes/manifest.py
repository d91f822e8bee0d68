"""A report's manifest: what it must hold, and whether the files beside it are those it lists."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ampsim.errors import FileFormatError
from ampsim.files import sha256_of
from ampsim.output_folder import MANIFEST, read_table
from ampsim.recipes.beside import read_beside
from ampsim.recipes.running import FORMAT, KIND
from ampsim.text import mapping, sequence

_TABLES: Final = ("recipe", "model", "cluster", "program", "files")
_LISTS: Final = ("schedules", "data", "costs")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a report.

    Raises:
        FileFormatError: it is missing, is that of something else, or one of its tables is none.
    """
    missing = f"it was never made: there is no {MANIFEST}"
    manifest = read_beside(lambda: read_table(folder / MANIFEST, MANIFEST), MANIFEST, missing)
    if manifest.get("kind") != KIND or manifest.get("format") != FORMAT:
        raise FileFormatError(f"{MANIFEST} is not that of a report of this version")
    for fault in _faults(manifest):
        raise FileFormatError(f"{MANIFEST}: {fault}; run it again")
    return manifest


def _faults(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What is not of the type that every report's manifest has there."""
    for key in _TABLES:
        if not isinstance(manifest.get(key, {}), dict):
            yield f"{key} must be a table, got {_short(manifest[key])}"
    for key in _LISTS:
        entries = manifest.get(key, [])
        if not isinstance(entries, list) or any(not isinstance(one, dict) for one in entries):  # pyright: ignore[reportUnknownVariableType]  # any TOML
            yield f"{key} must be a list of tables, got {_short(entries)}"
    for one in sequence(manifest.get("data")):
        if not isinstance(one.get("file"), str) or not isinstance(one.get("sha256"), str):
            yield f"an entry of data must have file and sha256, got {_short(one)}"
    for name, digest in mapping(manifest.get("files", {})).items():
        if Path(name).name != name or "\0" in name or name == MANIFEST:
            yield f"files must be names of files beside it, got {_short(name)}"
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            yield f"files.{name} must be a SHA-256, got {_short(digest)}"


def _short(value: Any) -> str:
    return repr(value)[:60]


def files_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each file that a manifest lists, by its name."""
    return {name: str(digest) for name, digest in mapping(manifest.get("files", {})).items()}


def edits_of(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Files that the manifest lists and that are not as they were written."""
    for name, digest in files_of(manifest).items():
        path = folder / name
        if not os.path.isfile(path):
            yield f"{name} is missing"
            continue
        try:
            if sha256_of(path) != digest:
                yield f"{name} is not as it was written"
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
