"""A run read back from its folder: tables, the numbers that are read off them, and the manifest.

Every value is checked, for files may have been changed on their way.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # has none
from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.arguments import checked
from ampsim.data_parallel.setting import CENTRE
from ampsim.errors import FileFormatError
from ampsim.files import expanded, sha256_of
from ampsim.hardware import HOST
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.output_folder import MANIFEST, read_table
from ampsim.runs.folder import FORMAT, KIND, SCHEMAS, SELDOM, TABLES
from ampsim.study.outages import LOSS_SCHEMA, no_outages, waits_of
from ampsim.study.provenance import devices_of
from ampsim.study.read_off import UPKEEP, Occupation, ReadOff, numbered, path_of_tables, path_parts
from ampsim.text import is_tables, mapping, short
from ampsim.trace import COMPUTE_LANE, DIRECTIONS, LANES, own_frame, read_only
from ampsim.trace.recorder import NODE_COLUMNS
from ampsim.trace.summary import Summary


def _kept(name: str) -> own_frame:
    """A table of the folder, as `Result` has it by the same name; read when first asked for."""

    def read(run: LoadedRun) -> pd.DataFrame:
        table = run.table(name)
        return read_only({str(key): _array(table[key]) for key in table})

    return own_frame(read)


def _array(column: pd.Series[Any]) -> Any:
    own: Any = column.array.copy()
    return own if own.dtype == "category" else np.array(own)


@dataclass(frozen=True, eq=False)
class LoadedRun(ReadOff):
    """The result of `load_run`: what is kept of a `Result`; model and schedule are names.

    The tables are read-only, and read when they are first asked for.
    """

    folder: Path  # where it lies
    manifest: dict[str, Any] = field(repr=False)  # see `ampsim.runs.folder.write_run`

    @property
    def origin(self) -> dict[str, Any]:
        """Command, seed, versions, hashes and what the costs rest on: the manifest."""
        return self.manifest

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
        """Count the workers."""
        return int(self.manifest["cluster"]["workers"])

    @property
    def devices(self) -> list[str]:
        """The name of each worker's device."""
        return devices_of(self.manifest)

    @property
    def schedule(self) -> str:
        """The schedule's name."""
        return str(self.manifest["schedule"]["name"])

    @property
    def max_active_keys(self) -> int | None:
        """Instances in flight at most, in all ranks; None where there are as many as stages."""
        schedule, ranks = self.manifest["schedule"], 1
        while {"inner", "ranks"} <= schedule.keys():
            schedule, ranks = schedule["inner"], ranks * schedule["ranks"]
        limit = schedule.get("max_active_keys", 1)
        return ranks * limit if isinstance(limit, int) else None

    spans = _kept("spans")
    transfers = _kept("transfers")
    admissions = _kept("admissions")
    updates = _kept("updates")
    stashes = _kept("stashes")
    epochs = _kept("epochs")
    memory = _kept("memory")  # pyright: ignore[reportIncompatibleMethodOverride]  # is read alike
    outages = _kept("outages")
    exchanges = _kept("exchanges")
    collectives = _kept("collectives")

    @property
    def waits(self) -> pd.DataFrame:
        """See `Result.waits`."""
        return waits_of(self.exchanges, self.manifest["schedule"], self.manifest["seed"])

    @own_frame
    def critical_path(self) -> pd.DataFrame:
        """See `Result.critical_path`.

        Raises:
            FileFormatError: causes are not those of a run.
        """
        try:
            return path_of_tables(self.spans, self.transfers, self.admissions)
        except (AssertionError, IndexError) as error:
            what = "expected rows in the order of the run, each with its cause before it"
            raise refused(self.folder / "spans.parquet", what) from error

    @property
    def critical_path_parts(self) -> pd.DataFrame:
        """See `Result.critical_path_parts`."""
        return path_parts((self.critical_path,))

    def _occupation(self) -> Occupation:
        spans, groups = self.spans, self.manifest["cluster"]["groups"]
        own = spans[spans["lane"] == LANES[COMPUTE_LANE]]
        return Occupation(groups, self.outages, lambda: (own,))

    @cached_property
    def _totals(self) -> Summary:  # pyright: ignore[reportIncompatibleMethodOverride]  # is read alike
        sums, spans, nodes = Summary(len(self._nodes), self.workers), self.spans, self._nodes
        if len(spans):
            columns = {str(name): spans[name].to_numpy() for name in spans}
            columns["node"] = numbered(spans["node"], nodes)
            columns["direction"] = numbered(spans["direction"], DIRECTIONS)
            columns["lane"] = numbered(spans["lane"], LANES)
            updates = {"node": numbered(self.updates["node"], nodes)}
            updates["staleness"] = self.updates["staleness"].to_numpy()
            sums.take_whole(columns, updates, nodes.index(CENTRE) if CENTRE in nodes else None)
        return sums

    @property
    def _nodes(self) -> Sequence[str]:
        """Names of nodes in the spans' table, in its order."""
        return [str(one) for one in self.spans["node"].astype("category").cat.categories]

    def table(self, name: str) -> pd.DataFrame:
        """Read one table of the trace, with the columns and types that `Result` gives.

        Raises:
            FileFormatError: the file is missing or not the one that was written.
        """
        if not self._has(name):
            if name == "outages":
                return no_outages()
            return pd.DataFrame({key: np.zeros(0, kind) for key, kind in SCHEMAS[name].items()})
        path, read = self.verified(name), partial(pd.read_parquet, engine="pyarrow")
        frame = decoded(lambda: read(io.BytesIO(path.read_bytes())), name, path, self.workers)
        if name == "transfers":
            frame["node"] = frame["target"]
        elif name == "spans" and "lane" not in frame:  # of an earlier version
            lane: Any = pd.Categorical([LANES[COMPUTE_LANE]] * len(frame), list(LANES))
            frame.insert(len(frame.columns) - 2, "lane", lane)
        return frame

    def chunks(self, name: str) -> Iterator[pd.DataFrame]:
        """Give the rows in order, in frames of a bounded size; the whole is never in memory.

        Raises:
            FileFormatError: the file is missing or not the one that was written.
        """
        if not self._has(name):
            return
        path = self.verified(name)
        untyped: Any = parquet
        with open(path, "rb") as content:  # the library knows no path that is not UTF-8
            try:
                file = untyped.ParquetFile(content)
            except DAMAGED as error:
                got = type(error).__name__
                raise refused(path, f"expected a Parquet file, got {got}") from error
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
        with _readable(path):
            digest = sha256_of(path)
        if digest != self.manifest["files"][name]["sha256"]:
            raise FileFormatError(
                f"{path}: is not the file that {MANIFEST} describes; run again, or copy it again"
            )
        return path

    def _has(self, name: str) -> bool:
        return name not in SELDOM or name in self.manifest["files"]


@checked
def load_run(folder: str | os.PathLike[str]) -> LoadedRun:
    """Read a run that `ampsim run` kept.

    Args:
        folder: what `--out` named.

    Returns:
        Those tables and numbers of a `Result` that are kept; `ampsim.figures` draws it.

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
    return LoadedRun(place, _checked(_parse(path), path))


def _parse(path: Path) -> dict[str, Any]:
    try:
        with _readable(path):
            return read_table(path)
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
    needed += [("schedule", "name"), ("seed",)]
    kept = [name for name in SELDOM if _at(manifest, ("files", name)) is not None]
    needed += [("schedule", "ranks")] * ("exchanges" in kept) + [("schedule",)]
    needed += [("files", name, key) for name in (*TABLES, *kept) for key in ("sha256", "rows")]
    for keys in needed:
        value = _at(manifest, keys)
        if value is None:
            raise FileFormatError(f"{path}: missing key {'.'.join(keys)!r}; run again")
        expected, is_right = _KINDS[keys[-1]]
        if not is_right(value):
            raise FileFormatError(
                f"{path}: {'.'.join(keys)} must be {expected}, got {short(value)}; run again"
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
    """Tell whether it is a list of devices, each with a count of workers."""
    return is_tables(value) and all(
        isinstance(one.get("device"), str)
        and _is_count(one.get("workers"))
        and all(type(one.get(key, 0)) in (int, float) for key in UPKEEP)
        and all(0 <= one.get(key, 0) < math.inf for key in UPKEEP)
        for one in value
    )


def _is_schedule(value: Any) -> bool:
    """Tell whether it is a schedule, and, of one around others, whether it counts its ranks."""
    if not isinstance(value, Mapping) or "inner" not in value:
        return isinstance(value, Mapping)
    counts: list[Any] = [mapping(value).get(key, 1) for key in ("ranks", "workers_per_rank")]
    are_counts = all(_is_count(one) and one <= WORKERS_MAX for one in counts)
    return are_counts and _is_schedule(mapping(value)["inner"])


_KINDS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    **dict.fromkeys(("name", "sha256"), ("text", lambda value: isinstance(value, str))),
    **dict.fromkeys(("rows", "seed", "ranks"), ("a whole number >= 0", _is_count)),
    "workers": (f"1 to {WORKERS_MAX}", lambda value: _is_count(value) and 0 < value <= WORKERS_MAX),
    "schedule": ("a schedule, with counts of ranks", _is_schedule),
    "groups": ("a list of tables, each with device and workers", _are_groups),
}


def _at(table: Any, keys: Sequence[str]) -> Any:
    """The value at a place in nested tables; None where there is none."""
    for key in keys:
        table = mapping(table).get(key) if isinstance(table, Mapping) else None
    return table


@contextlib.contextmanager
def _readable(path: Path) -> Generator[None]:
    """Name the file that the system does not let be read."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise FileFormatError(f"{path}: cannot be read: {reason}; run again") from error


_TEXTS: Final = (*NODE_COLUMNS, "direction", "state", "kind", "lane", "sends", "waits_for")
_LATER: Final = ("operations", "lane", *LOSS_SCHEMA)
"""Columns that folders of earlier versions, or runs without checkpoints, do not have."""

_INSTANCE_MAX: Final = 2**31 - 1
"""More than any run comes to; pages hold instances in 32 bits."""

_ARROW: Any = pyarrow
DAMAGED: Final[tuple[type[Exception], ...]] = (
    _ARROW.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError,
)  # fmt: skip
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


def _require_kind(column: pd.Series[Any], kind: Any, path: Path) -> None:
    """Names are texts, numbers of the type in which they were recorded."""
    if column.name in _TEXTS:
        given: Any = column
        is_coded = isinstance(column.dtype, pd.CategoricalDtype)
        texts = given.cat.categories if is_coded else column
        if not all(isinstance(one, str) for one in texts) or bool(column.isna().any()):
            raise refused(path, f"{column.name} must hold texts")
    elif column.dtype != np.dtype(kind):
        raise refused(path, f"{column.name} must be of type {np.dtype(kind)}, got {column.dtype}")


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
