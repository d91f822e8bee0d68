"""Published rows of throughput, read from a file, and what bounds each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import pandas as pd
from pydantic import Field, create_model

from ampsim.errors import FileFormatError, one_of
from ampsim.files import expanded, sha256_of
from ampsim.hardware.device import NUMBERS, sign_of
from ampsim.hardware.record import NUMBER_MAX
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.model_parallel import SCHEDULES
from ampsim.options import Count
from ampsim.study.result import Result
from ampsim.study.schedule_names import option_fields
from ampsim.toml_file import FileKind, Record, Text, read_table, validate

KIND: Final = FileKind(
    "calibration", "a calibration file has at least one [fit.PARAMETER] and [[rows]]"
)

SIGNS: Final = {key: sign for key in NUMBERS if (sign := sign_of(key))}
"""What can be fitted: the keys of a device that are rates, 1, or durations, -1."""

TIMELESS: Final = frozenset(NUMBERS) - SIGNS.keys()
"""All other numbers of a device: they scale no time."""

Quantity: TypeAlias = Literal["train_per_s", "valid_per_s"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("train_per_s", "valid_per_s")

Positive = Annotated[float, Field(gt=0, le=NUMBER_MAX)]


class Parameter(Record):
    """A number of the device that is fitted.

    Args:
        start: where the search begins.
        min: the least that it may become.
        max: the most.
    """

    start: Positive
    min: Positive
    max: Positive


class _Plain(Record):
    label: Text
    model: Text
    set: dict[str, Any] = Field(default_factory=dict[str, Any])
    schedule: Text = "amp"
    placement: Text | None = None
    train_instances: Count | None = None
    valid_instances: Count | None = None
    device: dict[str, Any] = Field(default_factory=dict[str, Any])
    is_fitted: bool = False
    train_per_s: Positive | None = None
    valid_per_s: Positive | None = None
    source: Text


_Tuned: type[_Plain] = create_model("_Tuned", __base__=_Plain, **option_fields())


class RowEntry(_Tuned):
    """A published row: what ran, and how fast.

    Beside these it takes every option of a schedule, as on the command line.

    Args:
        label: what it is called.
        model: a shipped name, or the path of a .py file from the calibration file's folder.
        set: options of the model.
        schedule: its name.
        placement: instead of the file's.
        train_instances: instead of the file's.
        valid_instances: instead of the file's.
        device: numbers of the device that the row has instead of the fitted ones.
        is_fitted: whether the fit sees its numbers; all others are predicted.
        train_per_s: published training throughput.
        valid_per_s: published validation throughput.
        source: where they stand.
    """


class TableFile(Record):
    """The keys of a calibration file.

    Args:
        name: of the device that is written; the file's name unless given.
        description: of the device.
        workers: how many of it there are.
        placement: which worker hosts which node.
        seed: of data, placement and order.
        train_instances: leading training instances of a run.
        valid_instances: leading validation instances.
        device: numbers of the device that are known, and not fitted.
        fit: the parameters, by key of the device.
        rows: what was published.
    """

    name: Text
    description: str = ""
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 16
    placement: Text = "paper"
    seed: Annotated[int, Field(ge=0)] = 0
    train_instances: Count = 300
    valid_instances: Count = 150
    device: dict[str, Any] = Field(default_factory=dict[str, Any])
    fit: Annotated[dict[str, Parameter], Field(min_length=1)]
    rows: Annotated[list[RowEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Table:
    """A calibration file that was read and makes sense.

    Args:
        folder: where it lies.
        label: what it is called in messages.
        sha256: of the file.
        file: what it says.
    """

    folder: Path
    label: str
    sha256: str
    file: TableFile


def read_table_file(path: str | os.PathLike[str]) -> Table:
    """Read a calibration file.

    Raises:
        FileFormatError: a key or value of it is wrong; one line says which.
    """
    place, label = expanded(path), os.fspath(path)
    content = read_table(place, label, KIND)
    file = validate(TableFile, {"name": place.stem, **content}, label)
    for fault in _faults(file):
        raise FileFormatError(f"{label}: {fault}")
    return Table(place.parent, label, sha256_of(place), file)


def published(entry: RowEntry) -> dict[Quantity, float]:
    """The numbers of a row, by what they are."""
    return {one: value for one in QUANTITIES if (value := getattr(entry, one)) is not None}


def _faults(file: TableFile) -> Iterator[str]:
    yield from _faults_of_fit(file)
    labels = [entry.label for entry in file.rows]
    for index, entry in enumerate(file.rows):
        for fault in _faults_of_row(entry, labels[:index]):
            yield f"rows[{index}]: {fault}"
    points = sum(len(published(entry)) for entry in file.rows if entry.is_fitted)
    if points < len(file.fit):
        yield (
            f"{len(file.fit)} parameters need at least as many fitted numbers, got {points}; give "
            "more rows is_fitted = true, or fit fewer parameters"
        )


def _faults_of_fit(file: TableFile) -> Iterator[str]:
    for key, parameter in file.fit.items():
        if key not in SIGNS:
            yield f"fit: {one_of('parameter', key, SIGNS)}"
        low, high = parameter.min, parameter.max
        if not low < high:
            yield f"fit.{key}: min must be < max, got {low:g} and {high:g}; exchange them"
        if not low <= parameter.start <= high:
            yield (
                f"fit.{key}.start must be from min to max, {low:g} to {high:g}, got "
                f"{parameter.start:g}"
            )
        if key in file.device:
            yield f"device.{key} is fitted too; leave it out here, or out of fit"
    if "flop_per_s" not in file.fit and "flop_per_s" not in file.device:
        yield "flop_per_s is neither fitted nor known; add [fit.flop_per_s] or device.flop_per_s"


def _faults_of_row(entry: RowEntry, earlier: list[str]) -> Iterator[str]:
    if entry.label in earlier:
        yield f"label {entry.label!r} comes twice; give each row a label of its own"
    if entry.schedule not in SCHEDULES:
        yield one_of("schedule", entry.schedule, SCHEDULES)
    if not published(entry):
        yield f"must have one of the keys {', '.join(QUANTITIES)}; give what was published"
    if entry.is_fitted and entry.device:
        yield "has a device of its own, and cannot be fitted; leave device or is_fitted out"
    for key, value in entry.set.items():
        is_plain = isinstance(value, bool | int | float | str)
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
            yield f"set.{key} must be a number, text, true or false, got {value!r}"


NAMED: Final = 2
"""Nodes of a worker that are named, those that take the most (chosen: a line of a table)."""


def bounds_of(result: Result) -> dict[Quantity, str]:
    """For each quantity the busiest worker, its share of the time, and its costliest nodes."""
    spans, train_s = result.spans, float(result.epochs.train_s.iloc[0])
    is_training = spans.start_s < train_s
    return {
        "train_per_s": bound(spans[is_training], train_s),
        "valid_per_s": bound(spans[~is_training], float(result.epochs.valid_s.iloc[0])),
    }


def bound(spans: pd.DataFrame, seconds: float) -> str:
    """The busiest worker of spans of a pass of so many seconds, its share, and its nodes."""
    lengths: Any = spans.end_s - spans.start_s
    busy: Any = lengths.groupby([spans.worker, spans.node], observed=True).sum()
    by_worker: Any = busy.groupby(level="worker").sum()
    if not len(by_worker) or seconds <= 0:
        return "nothing"
    worker = by_worker.idxmax()
    nodes = busy.loc[worker].sort_values(ascending=False)
    names = ", ".join(str(name) for name in nodes.index[:NAMED])
    more = len(nodes) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"worker {worker}, busy {by_worker.loc[worker] / seconds:.0%}: {names}{rest}"
