"""Finished runs of a report or forecast, in a folder beside it, so that a long one can be resumed.

A run lies under the hash of everything that decides it: of model, cluster, schedule, data files,
options, seed, and of what the row's witness says of ampsim itself. With it lie its witness and the
hashes of its own content; a run that was edited, or whose witness says otherwise, is not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from ampsim.errors import FileFormatError
from ampsim.files import prepare_folder, write_bytes, write_text
from ampsim.paths import read_regular
from ampsim.study.outline import (
    NUMBER_FIELDS,
    TABLE_FIELDS,
    Outline,
    number_from_plain,
    number_to_plain,
)
from ampsim.study.witness import Witness, agree, from_plain

FOLDER: Final = ".runs"
NUMBERS: Final = "numbers.json"
_IGNORE: Final = ".gitignore"
_UNREADABLE: Final = (
    FileFormatError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
)  # fmt: skip


def keys_of(what: Mapping[str, Any], witness: Witness, seeds: Iterable[int]) -> list[str]:
    """The names under which runs lie: SHA-256 over everything that decides them.

    Args:
        what: everything but the seed and ampsim itself.
        witness: which stands for ampsim itself.
        seeds: of the runs.
    """
    row = _hash(
        {
            "inputs": what,
            "witness": witness.digest,
            "numbers": NUMBER_FIELDS,
            "tables": TABLE_FIELDS,
        }
    )
    return [hashlib.sha256(f"{row}, seed {seed}".encode()).hexdigest() for seed in seeds]


@dataclass(frozen=True, slots=True)
class RunStore:
    """Runs in a folder, which is made when the first is kept."""

    folder: Path

    def get(self, key: str, witness: Witness) -> tuple[Outline, str | None] | None:
        """The run of that key and why it failed, if it did; None where it is not there.

        Raises:
            FileFormatError: it is not as it was written, or is of code that did something else.
        """
        place = self.folder / key
        if not os.path.lexists(place / NUMBERS):
            return None
        content = _verified(place)
        if not agree(from_plain(content["witness"]), witness):
            raise FileFormatError("what it learned is not what ampsim gives now")
        try:
            tables: dict[str, Any] = {name: _table(place, name, content) for name in TABLE_FIELDS}
            numbers: dict[str, Any] = {
                name: number_from_plain(content["numbers"][name]) for name in NUMBER_FIELDS
            }
        except KeyError as error:
            raise FileFormatError(f"{NUMBERS} has no {error}") from None
        return Outline(**numbers, **tables), content["failure"]

    def put(self, key: str, run: Outline, failure: str | None, witness: Witness) -> None:
        """Keep a run; its numbers are written last, so that it is whole or not there.

        Raises:
            OutputError: the folder cannot be written.
        """
        prepare_folder(self.folder)
        write_text(self.folder / _IGNORE, "*\n")
        place = prepare_folder(self.folder / key)
        (place / NUMBERS).unlink(missing_ok=True)
        hashes: dict[str, str] = {}
        for name in TABLE_FIELDS:
            frame: pd.DataFrame = getattr(run, name)
            table = frame.to_parquet(None, engine="pyarrow", compression="zstd", index=False)
            write_bytes(place / f"{name}.parquet", table)
            hashes[name] = hashlib.sha256(table).hexdigest()
        numbers = {name: number_to_plain(getattr(run, name)) for name in NUMBER_FIELDS}
        content = {
            "numbers": numbers,
            "failure": failure,
            "tables": hashes,
            "witness": witness.plain(),
        }
        text = json.dumps({**content, "sha256": _hash(content)}, indent=1, allow_nan=False)
        write_text(place / NUMBERS, text + "\n")

    def remove(self, keys: Iterable[str]) -> None:
        """Remove runs, as far as they are there, and the folder if it holds no others."""
        for key in keys:
            with contextlib.suppress(
                OSError
            ):  # its numbers first, so that it is whole or not there
                (self.folder / key / NUMBERS).unlink(missing_ok=True)
            shutil.rmtree(self.folder / key, ignore_errors=True)
        with contextlib.suppress(OSError):
            if os.listdir(self.folder) == [_IGNORE]:
                (self.folder / _IGNORE).unlink()
            self.folder.rmdir()


def _verified(place: Path) -> dict[str, Any]:
    """What the file of numbers holds, if it is as it was written."""
    try:
        content: dict[str, Any] = json.loads(read_regular(place / NUMBERS))
        written = content.pop("sha256")
    except _UNREADABLE:
        raise FileFormatError(f"{NUMBERS} is not as it was written") from None
    if written != _hash(content):
        raise FileFormatError(f"{NUMBERS} is not as it was written")
    return content


def _table(place: Path, name: str, content: dict[str, Any]) -> pd.DataFrame:
    try:
        table = read_regular(place / f"{name}.parquet")
    except (FileFormatError, OSError):
        raise FileFormatError(f"{name}.parquet is missing or cannot be read") from None
    if hashlib.sha256(table).hexdigest() != content["tables"][name]:
        raise FileFormatError(f"{name}.parquet is not as it was written")
    return pd.read_parquet(io.BytesIO(table))


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
