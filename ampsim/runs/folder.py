"""A run in a folder: made, and written as a manifest and tables.

The manifest is written last and names the hash of every table, so that a folder is either a whole
run or none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # has none
from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]  # has none

from ampsim.errors import Failure, SimulationError
from ampsim.files import output_error, prepare_folder, replacing, sha256_of, write_text
from ampsim.hardware import Cluster
from ampsim.metric import Goal
from ampsim.model_parallel import Schedule
from ampsim.output_folder import MANIFEST
from ampsim.study.model import Model
from ampsim.study.outages import LOSS_SCHEMA, OUTAGE_SCHEMA
from ampsim.study.placement_advice import warn
from ampsim.study.progress import OnProgress, Tracker
from ampsim.study.provenance import data_files, source_digest
from ampsim.study.read_off import TIMELINE_SCHEMA
from ampsim.study.result import Result
from ampsim.study.simulation import RunOptions, Simulation, run_epochs
from ampsim.text import to_toml
from ampsim.trace.recorder import TABLE_SCHEMAS

ROWS_KEPT: Final = 20_000
"""Rows of each table that a page shows (chosen: as a forecast keeps; a page stays small)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run."""

    result: Result  # what has happened until then, an unfinished epoch's spans included
    epochs: int  # how many epochs were asked for
    failure: str | None = None  # why the run could not go on; None where it could
    is_interrupted: bool = False  # whether Ctrl-C ended it

    @property
    def ended(self) -> str:
        """Tell in a few words how the run ended."""
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
    epochs = options.epochs
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


TABLES: Final = ("spans", "transfers", "admissions", "updates", "stashes", "epochs")
"""Tables of every run, in the order of the manifest."""

SELDOM: Final = ("outages", "memory", "exchanges", "collectives")
"""Tables that are kept only where they have rows, and stand behind those."""

SCHEMAS: Final[Mapping[str, dict[str, Any]]] = {
    **TABLE_SCHEMAS,
    "outages": OUTAGE_SCHEMA | LOSS_SCHEMA,
    "memory": TIMELINE_SCHEMA,
}
"""Columns of every table that a folder may hold, with their types."""

KIND: Final = "run"
FORMAT: Final = 2
_CHUNK_ROWS: Final = 1 << 17  # chosen: rows that `chunks` gives at once; fewer cost space on disk


class TraceWriter(contextlib.ExitStack):
    """Writes the tables of a run as their rows come, so that they are never whole in memory.

    Each file appears in `folder` when the block ends without an error.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.rows: dict[str, int] = {}  # how many of each table have come
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
    """Make a table of Arrow, whose type does not depend on how many names there are."""
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
    What has taken the run's rows as they came is `trace`; without it they are in the result.

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
