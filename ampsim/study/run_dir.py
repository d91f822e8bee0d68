"""A run as a folder: manifest.toml and one Parquet file for each table of its trace.

The manifest is written last and names the hash of every table, so that a folder is either a whole
run or none.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pandas as pd
from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.errors import FileFormatError
from ampsim.files import prepare_folder, sha256_of, write_bytes, write_text
from ampsim.hardware.cluster import WORKERS_MAX
from ampsim.output_folder import MANIFEST, read_table
from ampsim.paths import expanded, read_regular
from ampsim.shown import short
from ampsim.study.energy import UPKEEP
from ampsim.study.memory_tables import no_timeline
from ampsim.study.outages import no_outages
from ampsim.study.provenance import data_files
from ampsim.study.result import Result
from ampsim.study.run_tables import DAMAGED, decoded, refused, without_rows
from ampsim.study.run_to_keep import Outcome
from ampsim.study.source_digest import source_digest
from ampsim.toml_text import is_tables, mapping, to_toml

TableName: TypeAlias = Literal[
    "spans", "transfers", "admissions", "updates", "stashes", "epochs", "outages", "memory",
    "exchanges", "collectives",
]  # fmt: skip
TABLES: Final[tuple[TableName, ...]] = (
    "spans", "transfers", "admissions", "updates", "stashes", "epochs",
)  # fmt: skip
SELDOM: Final[tuple[TableName, ...]] = ("outages", "memory", "exchanges", "collectives")
"""Tables that are kept only where they have rows."""

KIND: Final = "run"
FORMAT: Final = 2
_CHUNK_ROWS: Final = 1 << 17  # chosen: rows that `chunks` gives at once; fewer cost space on disk


@dataclass(frozen=True)
class KeptRun:
    """A run read back from its folder.

    Attributes:
        folder: where it lies.
        manifest: where it came from; see `write_run`.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.manifest["model"]["name"])

    @property
    def cluster(self) -> str:
        """The cluster's name."""
        return str(self.manifest["cluster"]["name"])

    @property
    def workers(self) -> int:
        """How many workers there were."""
        return int(self.manifest["cluster"]["workers"])

    @property
    def devices(self) -> list[str]:
        """The name of each worker's device."""
        groups = self.manifest["cluster"]["groups"]
        return [str(one["device"]) for one in groups for _ in range(int(one["workers"]))]

    @property
    def schedule(self) -> str:
        """The schedule's name."""
        return str(self.manifest["schedule"]["name"])

    def table(self, name: TableName) -> pd.DataFrame:
        """Read one table of the trace, with the columns and types that `Result` gives.

        Raises:
            FileFormatError: the file is missing or not the one that was written.
        """
        if not self._has(name):
            if name in ("exchanges", "collectives"):
                return without_rows(name)
            return no_outages() if name == "outages" else no_timeline()
        path = self.folder / f"{name}.parquet"
        content = _read(path)
        self._require(path, name, hashlib.sha256(content).hexdigest())

        def read() -> Any:
            return pd.read_parquet(io.BytesIO(content), engine="pyarrow")

        return decoded(read, name, path, self.workers)

    def chunks(self, name: TableName) -> Iterator[pd.DataFrame]:
        """The same rows in order, in frames of a bounded size; the whole is never in memory.

        Raises:
            FileFormatError: the file is missing or not the one that was written.
        """
        if not self._has(name):
            return
        path = self.verified(name)
        untyped: Any = parquet
        try:
            opened = untyped.ParquetFile(path)
        except DAMAGED as error:
            raise refused(path, f"expected a Parquet file, got {type(error).__name__}") from error
        with opened as file:
            for group in range(file.num_row_groups):  # iter_batches keeps 80 MB of earlier pages

                def read(group: int = group) -> Any:
                    return file.read_row_group(group, use_threads=False).to_pandas()

                yield decoded(read, name, path, self.workers)

    def verified(self, name: TableName) -> Path:
        """The file of one table.

        Raises:
            FileFormatError: it is missing or not the one that was written.
        """
        path = self.folder / f"{name}.parquet"
        try:
            digest = sha256_of(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        self._require(path, name, digest)
        return path

    def _has(self, name: TableName) -> bool:
        return name not in SELDOM or name in self.manifest["files"]

    def _require(self, path: Path, name: TableName, digest: str) -> None:
        if digest != self.manifest["files"][name]["sha256"]:
            raise FileFormatError(
                f"{path}: is not the file that {MANIFEST} describes; run again, or copy it again"
            )


def write_run(
    outcome: Outcome, folder: str | os.PathLike[str], pages: Sequence[Path] = ()
) -> list[Path]:
    """Write the run into `folder`, made if missing; return the files in the order written.

    A run that lay there is replaced. The manifest says how the run ended, and, of each table, its
    rows and hash, beside the origin of the result, and the hashes of `pages`, files beside it.

    Raises:
        OutputError: the folder or a file in it cannot be written.
    """
    place = prepare_folder(folder)
    if os.path.isfile(place / MANIFEST):  # until the new one is there, the folder holds no run
        (place / MANIFEST).unlink()
    written: list[Path] = []
    files: dict[str, dict[str, Any]] = {}
    for name in tables_of(outcome.result):
        frame: pd.DataFrame = getattr(outcome.result, name)
        content = frame.to_parquet(
            None, engine="pyarrow", compression="zstd", index=False, row_group_size=_CHUNK_ROWS
        )
        written.append(place / f"{name}.parquet")
        write_bytes(written[-1], content)
        files[name] = {"rows": len(frame), "sha256": hashlib.sha256(content).hexdigest()}
    start = {"kind": KIND, "format": FORMAT, "ended": outcome.ended, "epochs": outcome.epochs}
    inputs = {"code": source_digest(), "data": data_files(outcome.result.model)}
    hashes = {"files": files, "pages": {path.name: sha256_of(path) for path in pages}}
    origin = {**start, **inputs, **outcome.result.origin, **hashes}
    write_text(place / MANIFEST, to_toml(origin))
    return [*written, place / MANIFEST]


def tables_of(result: Result) -> list[TableName]:
    """The tables of a run that are kept."""
    return [*TABLES, *(name for name in SELDOM if len(getattr(result, name)))]


def read_run(folder: str | os.PathLike[str]) -> KeptRun:
    """Read the run in `folder`; its tables are read when they are asked for.

    Raises:
        FileFormatError: the folder does not hold a whole run.
    """
    place = expanded(folder)
    if not os.path.isdir(place):
        raise FileFormatError(f"{place}: expected a folder that `ampsim run` wrote, found none")
    path = place / MANIFEST
    if not os.path.lexists(path):
        raise FileFormatError(
            f"{place}: expected a folder that `ampsim run` wrote, but it has no {MANIFEST}"
        )
    return KeptRun(place, _checked(_parse(path), path))


def _parse(path: Path) -> dict[str, Any]:
    try:
        return read_table(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise FileFormatError(f"{path}: is not valid TOML: {reason}; run again") from error


def _checked(manifest: dict[str, Any], path: Path) -> dict[str, Any]:
    """The manifest itself, if it is that of a run and has all that is read from it."""
    if manifest.get("kind") != KIND:
        raise FileFormatError(
            f"{path}: is not the manifest of a run; `ampsim run` keeps one, a forecast does not"
        )
    if manifest.get("format") != FORMAT:
        raise FileFormatError(
            f"{path}: format must be {FORMAT}, got {manifest.get('format')!r}; "
            "another version of ampsim wrote it, so run again"
        )
    needed = [("model", "name"), *(("cluster", key) for key in ("name", "workers", "groups"))]
    needed.append(("schedule", "name"))
    kept = [name for name in SELDOM if _at(manifest, ("files", name)) is not None]
    needed += [("files", name, key) for name in (*TABLES, *kept) for key in ("sha256", "rows")]
    for keys in needed:
        value = _at(manifest, keys)
        if value is None:
            raise FileFormatError(f"{path}: missing key {'.'.join(keys)!r}; run again")
        expected, is_right = _KINDS[keys[-1]]
        if not is_right(value):
            got = short(value)
            raise FileFormatError(
                f"{path}: {'.'.join(keys)} must be {expected}, got {got}; run again"
            )
    workers, groups = manifest["cluster"]["workers"], manifest["cluster"]["groups"]
    if sum(one["workers"] for one in groups) != workers:
        raise FileFormatError(
            f"{path}: cluster.groups must have the {workers} workers of cluster.workers; run again"
        )
    return manifest


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_groups(value: Any) -> bool:
    """Whether it is a list of devices, each with a count of workers."""
    return is_tables(value) and all(
        isinstance(one.get("device"), str)
        and _is_count(one.get("workers"))
        and all(_is_amount(one[key]) for key in UPKEEP if key in one)
        for one in value
    )


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "name": ("text", lambda value: isinstance(value, str)),
    "sha256": ("text", lambda value: isinstance(value, str)),
    "rows": ("a whole number >= 0", _is_count),
    "workers": (f"1 to {WORKERS_MAX}", lambda value: _is_count(value) and 0 < value <= WORKERS_MAX),
    "groups": ("a list of tables, each with device and workers", _are_groups),
}


def _at(table: Any, keys: Sequence[str]) -> Any:
    """The value at a place in nested tables; None where there is none."""
    for key in keys:
        if not isinstance(table, Mapping):
            return None
        table = mapping(table).get(key)
    return table


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> FileFormatError:
    reason = os.strerror(error.errno or 0).lower()
    return FileFormatError(f"{path}: cannot be read: {reason}; run again")
