"""Runs that a command has finished, kept until all of them are.

A run lies under the hash of everything that decides it: of model, cluster, schedule, data files,
options, seed, and of ampsim itself: in a report, of what the row's witness says, which outlives
code that changes and does the same; in a forecast, of the code. With it lie its witness and the
hashes of its own content; a run that was edited, or whose witness says otherwise, is not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.errors import FileFormatError
from ampsim.files import prepare_folder, read_regular, write_bytes, write_text
from ampsim.runs.run import NUMBER_FIELDS, TABLE_FIELDS, Run, numbers_from_plain, numbers_to_plain
from ampsim.runs.task import Row, Task
from ampsim.runs.witness import Witness, agree, witness_from_plain
from ampsim.study.provenance import about

FOLDER: Final = ".runs"
NUMBERS: Final = "numbers.json"
LEARNINGS: Final = "learned"
TIMINGS: Final = "timings.jsonl"  # what questions keep of runs that are only timed
_IGNORE: Final = ".gitignore"
_UNREADABLE: Final = (
    FileFormatError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
)  # fmt: skip


def _verified(place: Path) -> dict[str, Any]:
    """Read the file of numbers, if it is as it was written."""
    with contextlib.suppress(*_UNREADABLE):
        content: dict[str, Any] = json.loads(read_regular(place / NUMBERS))
        if content.pop("sha256") == _hash(content):
            return content
    raise FileFormatError(f"{NUMBERS} is not as it was written")


def _table(place: Path, name: str, content: dict[str, Any]) -> pd.DataFrame:
    try:
        table = read_regular(place / f"{name}.parquet")
    except (FileFormatError, OSError):
        raise FileFormatError(f"{name}.parquet is missing or cannot be read") from None
    if hashlib.sha256(table).hexdigest() != content["tables"][name]:
        raise FileFormatError(f"{name}.parquet is not as it was written")
    untyped: Any = parquet
    file = untyped.ParquetFile(io.BytesIO(table))  # pandas reads a small one half as fast
    return file.read(use_threads=False).to_pandas(use_threads=False)


def _hash(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RunKey:
    """A run's key, and the witness of its row if the key is of one."""

    key: str
    witness: Witness | None


@dataclass(slots=True)
class RunCache:
    """A folder in which finished runs are kept, and from which they are taken."""

    folder: Path  # that of the report or forecast; the runs lie in a hidden folder within
    is_fresh: bool = False  # make every run, also those that are there
    with_failures: bool = True  # also keep runs that ended early
    say: Callable[[str], None] = lambda line: None  # told of each run that is taken, or refused
    _used: set[str] = field(default_factory=set[str], init=False)
    _has_learnings: bool = field(default=False, init=False)

    @property
    def runs(self) -> Path:
        """The folder of runs, which is made when the first is kept."""
        return self.folder / FOLDER

    def take(self, task: Task, known: RunKey) -> Run | None:
        """A run from the store, if it is there and may be taken."""
        self._used.add(known.key)
        if self.is_fresh:
            return None
        name = f"{task.label}, seed {task.seed}"
        try:
            kept = self.read(known)
        except FileFormatError as error:
            self.say(f"{name}: its kept run is not taken, it is run again: {error}")
            return None
        if kept is not None:
            self.say(f"{name}: kept from before")
        return kept

    def read(self, known: RunKey) -> Run | None:
        """The run of that key, by no name; None where it is not there.

        Raises:
            FileFormatError: it is not as it was written, or is of code that did something else.
        """
        place = self.runs / known.key
        if not os.path.lexists(place / NUMBERS):
            return None
        content = _verified(place)
        if known.witness and not agree(witness_from_plain(content["witness"]), known.witness):
            raise FileFormatError("what it learned is not what ampsim gives now")
        try:
            tables: dict[str, Any] = {name: _table(place, name, content) for name in TABLE_FIELDS}
            numbers = numbers_from_plain(content["numbers"])
        except KeyError as error:
            raise FileFormatError(f"{NUMBERS} has no {error}") from None
        return Run(failure=content["failure"], **numbers, **tables)

    def put(self, known: RunKey, run: Run) -> None:
        """Keep a run that was made; its numbers are written last, so that it is whole or not there.

        Raises:
            OutputError: the folder cannot be written.
        """
        if run.failure is not None and not self.with_failures:
            return
        prepare_folder(self.runs)
        write_text(self.runs / _IGNORE, "*\n")
        place = prepare_folder(self.runs / known.key)
        (place / NUMBERS).unlink(missing_ok=True)
        hashes: dict[str, str] = {}
        for name in TABLE_FIELDS:
            frame: pd.DataFrame = getattr(run, name)
            table = frame.to_parquet(None, engine="pyarrow", compression="zstd", index=False)
            write_bytes(place / f"{name}.parquet", table)
            hashes[name] = hashlib.sha256(table).hexdigest()
        content = {
            "numbers": numbers_to_plain(run),
            "failure": run.failure,
            "tables": hashes,
            "witness": None if known.witness is None else known.witness.plain(),
        }
        text = json.dumps({**content, "sha256": _hash(content)}, indent=1, allow_nan=False)
        write_text(place / NUMBERS, text + "\n")

    def forget(self) -> None:
        """Remove the runs that were asked for: what they were kept for is written."""
        with contextlib.suppress(OSError):
            (self.runs / TIMINGS).unlink()
        self._drop()

    def _drop(self) -> None:
        """Remove the runs that were asked for, and the folder if it holds no others."""
        shutil.rmtree(self.runs / LEARNINGS, ignore_errors=True)
        for place in (self.runs / key for key in self._used):
            with contextlib.suppress(OSError):  # its numbers first, so that it is whole or not
                (place / NUMBERS).unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            if os.listdir(self.runs) == [_IGNORE]:
                (self.runs / _IGNORE).unlink()
            self.runs.rmdir()

    def learnings(self) -> Path:
        """The folder of what runs learn; without what earlier commands learned, if all is fresh."""
        folder = self.runs / LEARNINGS
        if self.is_fresh and not self._has_learnings:
            shutil.rmtree(folder, ignore_errors=True)
        self._has_learnings = True
        return folder

    def tidy(self) -> None:
        """Remove what was learned where no run is kept."""
        if not any(self.runs.glob(f"*/{NUMBERS}")):
            self._drop()


Keeping = RunCache
"""Its former name, for one release."""


def known_by(
    row: Row, seeds: Sequence[int], witness: Witness | None = None, **more: Any
) -> list[RunKey]:
    """Return the keys of a row's runs, one a seed: SHA-256 over all that decides them.

    Args:
        row: whose runs they are.
        seeds: of the runs.
        witness: which stands for ampsim itself; None for its code and what computes for it.
        more: what decides them besides.
    """
    itself = {"about": about()} if witness is None else {"witness": witness.digest}
    what = {"inputs": {**row.decided_by, **more}, **itself}
    digest = _hash({**what, "numbers": NUMBER_FIELDS, "tables": TABLE_FIELDS})
    keys = (hashlib.sha256(f"{digest}, seed {seed}".encode()).hexdigest() for seed in seeds)
    return [RunKey(key, witness) for key in keys]


def named(run: Run, task: Task) -> Run:
    """The run, called by the task that it was made for."""
    name = task.schedule.name
    return replace(run, schedule=name, repeat=task.repeat, seed=task.seed, label=task.label)
