"""A run in a folder: manifest and tables, written, and read with every value checked.

The manifest is written last and names the hash of every table, so that a folder is either a whole
run or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # has none
from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.errors import Failure, FileFormatError, SimulationError
from ampsim.files import (
    expanded,
    output_error,
    prepare_folder,
    read_regular,
    replacing,
    sha256_of,
    write_text,
)
from ampsim.hardware import HOST, Cluster
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.options import require_count
from ampsim.output_folder import MANIFEST, read_table
from ampsim.study.model import Model
from ampsim.study.outages import LOSS_SCHEMA, OUTAGE_SCHEMA, no_outages
from ampsim.study.placement_advice import warn
from ampsim.study.progress import OnProgress, Tracker
from ampsim.study.provenance import data_files, source_digest
from ampsim.study.read_off import TIMELINE_SCHEMA, UPKEEP
from ampsim.study.result import Result
from ampsim.study.simulation import RunOptions, Simulation, run_epochs
from ampsim.text import is_tables, mapping, short, to_toml
from ampsim.trace.recorder import (
    ADMISSION_SCHEMA,
    COLLECTIVE_SCHEMA,
    EPOCH_SCHEMA,
    EXCHANGE_SCHEMA,
    NODE_COLUMNS,
    SPAN_SCHEMA,
    STASH_SCHEMA,
    TRANSFER_SCHEMA,
    UPDATE_SCHEMA,
)
from ampsim.trace.records import LANE

ROWS_KEPT: Final = 20_000
"""Rows of each table that a page shows (chosen: as a forecast keeps; a page stays small)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Args:
        result: what has happened until then, an unfinished epoch's spans included.
        epochs: how many epochs were asked for.
        failure: why the run could not go on; None where it could.
        is_interrupted: whether Ctrl-C ended it.
    """

    result: Result
    epochs: int
    failure: str | None = None
    is_interrupted: bool = False

    @property
    def ended(self) -> str:
        """How the run ended, in a few words."""
        finished = f"after {len(self.result.epochs)} of {self.epochs} epochs"
        if self.is_interrupted:
            return f"interrupted {finished}"
        return f"failed {finished}: {self.failure}" if self.failure else "finished"


def run_to_keep(
    model: Model,
    cluster: Cluster,
    schedule: Schedule,
    options: RunOptions,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Train `model` on `cluster` under `schedule`, and return what happened however it ended.

    Where `options` name who takes the rows as they come, such as a `TraceWriter`, the result has
    the first `ROWS_KEPT` of each table only.

    Raises:
        OptionError: an option has a value that it cannot have.
    """
    epochs = require_count("epochs", options.epochs)
    goal = Goal(model.measure, model.measure.require_target(options.target))
    tracker = Tracker(on_progress, schedule.name, metric=model.measure)
    kept = None if options.on_rows is None else ROWS_KEPT
    watched = replace(options, on_items=tracker.on_items, counts_memory=True, spans_kept=kept)
    simulation = Simulation(model, cluster, schedule, watched)
    if options.placement is None:
        warn(simulation.advise(epochs))
    if options.on_start is not None:
        options.on_start(simulation)
    try:
        run_epochs(simulation, epochs, goal, tracker)
    except SimulationError as error:
        return Outcome(simulation.result(), epochs, failure=Failure.of(error))
    except KeyboardInterrupt:
        return Outcome(simulation.result(), epochs, is_interrupted=True)
    return Outcome(simulation.result(), epochs)


_ALWAYS: Final[Mapping[str, dict[str, Any]]] = {
    "spans": {**SPAN_SCHEMA, **LANE},
    "transfers": TRANSFER_SCHEMA,
    "admissions": ADMISSION_SCHEMA,
    "updates": UPDATE_SCHEMA,
    "stashes": STASH_SCHEMA,
    "epochs": EPOCH_SCHEMA,
}
_WITH_ROWS: Final[Mapping[str, dict[str, Any]]] = {
    "outages": OUTAGE_SCHEMA | LOSS_SCHEMA,
    "memory": TIMELINE_SCHEMA,
    "exchanges": EXCHANGE_SCHEMA,
    "collectives": COLLECTIVE_SCHEMA,
}
SCHEMAS: Final = {**_ALWAYS, **_WITH_ROWS}
"""Columns of every table that a folder may hold, with their types, in the order of the manifest."""

TABLES: Final = tuple(_ALWAYS)
"""Tables of every run."""

SELDOM: Final = tuple(_WITH_ROWS)
"""Tables that are kept only where they have rows."""

_TEXTS: Final = (*NODE_COLUMNS, "direction", "state", "kind", "lane", "sends", "waits_for")
_LATER: Final = ("operations", "lane", *LOSS_SCHEMA)
"""Columns that folders of earlier versions, or runs without lanes or checkpoints, do not have."""

_INSTANCE_MAX: Final = 2**31 - 1
"""More than any run comes to; pages hold instances in 32 bits."""

_ARROW: Any = pyarrow
DAMAGED: Final[tuple[type[Exception], ...]] = (
    _ARROW.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
)
"""What a damaged Parquet file raises while it is read."""


def decoded(read: Callable[[], Any], name: str, path: Path, workers: int) -> pd.DataFrame:
    """The rows that `read` gives, if they are those of a table of that name.

    Raises:
        FileFormatError: they cannot be read, or a column or value is none that a run has.
    """
    try:
        frame: pd.DataFrame = read()
    except DAMAGED as error:
        raise refused(path, f"expected a Parquet file, got {type(error).__name__}") from error
    if not frame.columns.is_unique:
        raise refused(path, "expected each column once")
    for column, kind in SCHEMAS[name].items():
        if column in frame:
            _require_kind(frame[column], kind, path)
        elif column not in _LATER:
            raise refused(path, f"missing column {column!r}")
    _require_values(frame, path, workers, HOST if name == "spans" else 0)
    return frame


def without_rows(name: str) -> pd.DataFrame:
    """A table of this name that has no rows."""
    return pd.DataFrame({key: np.zeros(0, kind) for key, kind in SCHEMAS[name].items()})


def _require_kind(column: pd.Series[Any], kind: Any, path: Path) -> None:
    """Names are texts, numbers of the type in which they were recorded."""
    if column.name in _TEXTS:
        given: Any = column
        is_coded = isinstance(column.dtype, pd.CategoricalDtype)
        texts = given.cat.categories if is_coded else column
        if not all(isinstance(one, str) for one in texts) or bool(column.isna().any()):
            raise refused(path, f"{column.name} must hold texts")
    elif column.dtype != np.dtype(kind):
        expected = np.dtype(kind).name
        raise refused(path, f"{column.name} must be of type {expected}, got {column.dtype}")


def _require_values(frame: pd.DataFrame, path: Path, workers: int, first: int) -> None:
    """Workers, from `first`, are those that there are; times lie on the clock; counts count."""
    if "worker" in frame and not frame["worker"].between(first, workers - 1).all():
        raise refused(path, f"worker must be 0 to {workers - 1}")
    if "instance" in frame and not frame["instance"].between(-1, _INSTANCE_MAX).all():
        raise refused(path, f"instance must be -1 to {_INSTANCE_MAX:,}")
    for name in ("flop", "bytes", "operations", "gradient_count", "instances", "updates_lost"):
        if name in frame and not (frame[name] >= 0).all():
            raise refused(path, f"{name} must be >= 0")
    for name in ("start_s", "end_s", "time_s"):
        if name in frame and not (np.isfinite(frame[name]) & (frame[name] >= 0)).all():
            raise refused(path, f"{name} must be a finite time >= 0")
    if "end_s" in frame and not (frame["end_s"] >= frame["start_s"]).all():
        raise refused(path, "end_s must not come before start_s")


def refused(path: Path, what: str) -> FileFormatError:
    """The one line about a file that was changed on its way."""
    return FileFormatError(f"{path}: {what}; run again, or copy it again")


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

    def table(self, name: str) -> pd.DataFrame:
        """Read one table of the trace, with the columns and types that `Result` gives.

        Raises:
            FileFormatError: the file is missing or not the one that was written.
        """
        if not self._has(name):
            return no_outages() if name == "outages" else without_rows(name)
        path = self.folder / f"{name}.parquet"
        content = _read(path)
        self._require(path, name, hashlib.sha256(content).hexdigest())

        def read() -> Any:
            return pd.read_parquet(io.BytesIO(content), engine="pyarrow")

        return decoded(read, name, path, self.workers)

    def chunks(self, name: str) -> Iterator[pd.DataFrame]:
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

    def verified(self, name: str) -> Path:
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

    def _has(self, name: str) -> bool:
        return name not in SELDOM or name in self.manifest["files"]

    def _require(self, path: Path, name: str, digest: str) -> None:
        if digest != self.manifest["files"][name]["sha256"]:
            raise FileFormatError(
                f"{path}: is not the file that {MANIFEST} describes; run again, or copy it again"
            )


class TraceWriter(contextlib.ExitStack):
    """Writes the tables of a run as their rows come, so that they are never whole in memory.

    Each file appears when the block ends without an error.

    Args:
        folder: where the files are to lie.

    Attributes:
        rows: how many rows of each table have come.
    """

    def __init__(self, folder: Path) -> None:
        """Start without a file."""
        super().__init__()
        self.rows: dict[str, int] = {}
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def __call__(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows to a table.

        Raises:
            OutputError: they cannot be written.
        """
        table = _arrow_of(frame)
        try:
            if name not in self._writers:
                self._writers[name] = self._opened(name, table.schema)
                self.rows[name] = 0
            self._writers[name].write_table(table, row_group_size=_CHUNK_ROWS)
        except OSError as error:
            raise output_error("write", self.path(name), error) from error
        self.rows[name] += len(frame)

    def path(self, name: str) -> Path:
        """The file of one table."""
        return self._folder / f"{name}.parquet"

    def _opened(self, name: str, schema: Any) -> Any:
        temporary = self.enter_context(replacing(self.path(name)))
        file = self.enter_context(temporary.open("wb"))
        untyped: Any = parquet
        return self.enter_context(untyped.ParquetWriter(file, schema, compression="zstd"))


def _arrow_of(frame: pd.DataFrame) -> Any:
    """The same as a table of Arrow, whose type does not depend on how many names there are."""
    untyped: Any = pyarrow
    arrays: dict[str, Any] = {}
    for name in frame:
        column: Any = frame[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes, names = column.cat.codes.to_numpy("int32"), column.cat.categories.tolist()
            made = untyped.DictionaryArray.from_arrays(codes, untyped.array(names, "string"))
        else:
            made = untyped.array(column.to_numpy())
        arrays[str(name)] = made
    return untyped.table(arrays)


def write_run(
    outcome: Outcome,
    folder: str | os.PathLike[str],
    pages: Sequence[Path] = (),
    trace: TraceWriter | None = None,
) -> list[Path]:
    """Write the run into `folder`, made if missing; return the files in the order written.

    A run that lay there is replaced. The manifest says how the run ended, and, of each table, its
    rows and hash, beside the origin of the result, and the hashes of `pages`, files beside it.

    Args:
        outcome: what happened.
        folder: where to.
        pages: files beside it.
        trace: what has taken the run's rows as they came; None where they are all in the result.

    Raises:
        OutputError: the folder or a file in it cannot be written.
    """
    place = prepare_folder(folder)
    if os.path.isfile(place / MANIFEST):  # until the new one is there, the folder holds no run
        (place / MANIFEST).unlink()
    names = tables_of(outcome.result)
    with trace or TraceWriter(place) as tables:
        for name in names:
            if name not in tables.rows:
                tables(name, getattr(outcome.result, name))
    written = [tables.path(name) for name in names]
    files = {
        name: {"rows": tables.rows[name], "sha256": sha256_of(path)}
        for name, path in zip(names, written, strict=True)
    }
    start = {"kind": KIND, "format": FORMAT, "ended": outcome.ended, "epochs": outcome.epochs}
    inputs = {"code": source_digest(), "data": data_files(outcome.result.model)}
    hashes = {"files": files, "pages": {path.name: sha256_of(path) for path in pages}}
    origin = {**start, **inputs, **outcome.result.origin, **hashes}
    write_text(place / MANIFEST, to_toml(origin))
    return [*written, place / MANIFEST]


def tables_of(result: Result) -> list[str]:
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
