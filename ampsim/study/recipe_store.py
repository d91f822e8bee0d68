"""Finished runs of a report, kept in a folder beside it, so that a long one can be resumed.

A run lies under the hash of everything that decides it: of ampsim's code, model, cluster, schedule,
data files, options and seed. Nothing there is ever wrong, only unused; git does not see the folder.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.files import prepare_folder, write_bytes, write_text
from ampsim.study.outline import Outline

FOLDER: Final = ".runs"
_TABLES: Final = ("epochs", "spans", "staleness", "utilisation_by_worker")
_NUMBERS: Final = tuple(one.name for one in fields(Outline) if one.name not in _TABLES)
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError)


def key_of(what: Mapping[str, Any]) -> str:
    """The name under which a run lies: SHA-256 over everything that decides it."""
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RunStore:
    """Runs in a folder, which is made when the first is kept."""

    folder: Path

    def get(self, key: str) -> tuple[Outline, str | None] | None:
        """The run of that key and why it failed, if it did; None where it is not kept whole."""
        place = self.folder / key
        try:
            content = json.loads((place / "numbers.json").read_text(encoding="utf-8"))
            tables: dict[str, Any] = {
                name: pd.read_parquet(place / f"{name}.parquet") for name in _TABLES
            }
            numbers: dict[str, Any] = {name: _number(content["numbers"][name]) for name in _NUMBERS}
            return Outline(**numbers, **tables), content["failure"]
        except _UNREADABLE:  # absent, cut off, or of another version: then it is run again
            return None

    def put(self, key: str, run: Outline, failure: str | None) -> None:
        """Keep a run; its numbers are written last, so that it is whole or not there.

        Raises:
            OutputError: the folder cannot be written.
        """
        prepare_folder(self.folder)
        write_text(self.folder / ".gitignore", "*\n")
        place = prepare_folder(self.folder / key)
        for name in _TABLES:
            frame: pd.DataFrame = getattr(run, name)
            content = frame.to_parquet(None, engine="pyarrow", compression="zstd", index=False)
            write_bytes(place / f"{name}.parquet", content)
        numbers = {name: _text(getattr(run, name)) for name in _NUMBERS}
        content = json.dumps({"numbers": numbers, "failure": failure}, indent=1, allow_nan=False)
        write_text(place / "numbers.json", content + "\n")


def _text(value: Any) -> Any:
    """A number as JSON has it; NaN is the text "nan", for null means that there is none."""
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _number(value: Any) -> Any:
    return math.nan if value == "nan" else value
