"""Numbers of a device fitted to published throughputs, and the file that has these."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import pandas as pd
from pydantic import Field, create_model

from ampsim.calibration.least_squares import SingularFit, Solution, least_squares
from ampsim.errors import FileFormatError, one_of
from ampsim.files import expanded, sha256_of
from ampsim.hardware import Cluster, Device
from ampsim.hardware.device import NUMBERS, REMARKS, sign_of
from ampsim.hardware.record import NUMBER_MAX
from ampsim.hardware.topology import WORKERS_MAX
from ampsim.model_parallel import SCHEDULES, Placement, Schedule, placement_of
from ampsim.options import Count
from ampsim.runs.witness import leading
from ampsim.study.loading import load_model, located
from ampsim.study.model import Model
from ampsim.study.result import Result
from ampsim.study.schedule_names import option_fields, schedule_of_row
from ampsim.study.simulation import simulate
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
    """A number of the device that is fitted."""

    start: Positive  # where the search begins
    min: Positive  # the least that it may become
    max: Positive  # the most

    def at(self, logarithm: float) -> float:
        """The number of that logarithm, between the bounds to the bit; NaN stays it."""
        return min(max(math.exp(min(logarithm, EXPONENT_MAX)), self.min), self.max)


_Tuned: type[Record] = create_model("_Tuned", __base__=Record, **option_fields())


class RowEntry(_Tuned):
    """A published row: what ran, with options of its schedule as on the command line; how fast."""

    label: Text
    model: Text  # a shipped name, or the path of a .py file from the calibration file's folder
    set: dict[str, Any] = Field(default_factory=dict[str, Any])  # options of the model
    schedule: Text = "amp"
    placement: Text | None = None  # these three instead of the file's
    train_instances: Count | None = None
    valid_instances: Count | None = None
    device: dict[str, Any] = Field(default_factory=dict[str, Any])  # numbers instead of the fitted
    is_fitted: bool = False  # whether the fit sees its numbers; all others are predicted
    train_per_s: Positive | None = None  # the published throughputs
    valid_per_s: Positive | None = None
    source: Text  # where they stand


class TableFile(Record):
    """The keys of a calibration file."""

    name: Text  # of the device that is written; the file's name unless given
    description: str = ""  # of the device
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 16
    placement: Text = "paper"
    seed: Annotated[int, Field(ge=0)] = 0  # of data, placement and order
    train_instances: Count = 300  # the leading ones of a run
    valid_instances: Count = 150
    device: dict[str, Any] = Field(default_factory=dict[str, Any])  # numbers known, and not fitted
    fit: Annotated[dict[str, Parameter], Field(min_length=1)]  # by key of the device
    rows: Annotated[list[RowEntry], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Table:
    """A calibration file that was read and makes sense."""

    folder: Path  # where it lies
    label: str  # what it is called in messages
    sha256: str
    file: TableFile

    @property
    def name(self) -> str:
        """The name of the file, whatever its folder."""
        return Path(self.label).name


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
        low, high, start = parameter.min, parameter.max, parameter.start
        if not low < high:
            yield f"fit.{key}: min must be < max, got {low:g} and {high:g}; exchange them"
        if not low <= start <= high:
            yield f"fit.{key}.start must be from min to max, {low:g} to {high:g}, got {start:g}"
        if key in file.device:
            yield f"device.{key} is fitted too; leave it out here, or out of fit"
    keys = (*NUMBERS, *REMARKS.values())
    yield from (f"device: {one_of('number', k, keys)}" for k in file.device if k not in keys)
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
    yield from (f"device has no number {one!r}" for one in entry.device if one not in NUMBERS)
    for key, value in entry.set.items():
        is_plain = isinstance(value, bool | int | float | str)
        if not is_plain or (isinstance(value, float) and not math.isfinite(value)):
            yield f"set.{key} must be a number, text, true or false, got {value!r}"


NAMED: Final = 2
"""Nodes of a worker that are named, those that take the most (chosen: a line of a table)."""


def bounds_of(result: Result) -> dict[Quantity, str]:
    """For each quantity the busiest worker, its share of the time, and its costliest nodes."""
    spans, train_s = result.spans, float(result.epochs.train_s.iloc[0])
    spans = spans[spans.lane == "compute"]
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
    rest = f" and {more} more" if (more := len(nodes) - NAMED) > 0 else ""
    return f"worker {worker}, busy {by_worker.loc[worker] / seconds:.0%}: {names}{rest}"


OnRun: TypeAlias = Callable[[str], None]
"""Told the label of a row before it is run."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row that is ready to run."""

    where: str  # it stands
    entry: RowEntry
    model: Model  # with the leading instances of its data
    schedule: Schedule
    placement: Placement
    file: TableFile  # which says what all rows share

    def run(self, device: Device, on_run: OnRun | None) -> Result:
        """One epoch on as many of `device` as there are workers, with free links."""
        if on_run is not None:
            on_run(self.entry.label)
        return located(self.where, partial(self._run, device))

    def _run(self, device: Device) -> Result:
        changed = Device(name=device.name, **{**device.numbers, **self.entry.device})
        return simulate(
            self.model, Cluster(name=device.name, devices=(changed,) * self.file.workers),
            self.schedule, mode="sleep", seed=self.file.seed, placement=self.placement,
        )  # fmt: skip


_OVERRULED: Final = ("train_instances", "valid_instances", "placement")


def make_rows(table: Table) -> list[TableRow]:
    """Load what a table names.

    Raises:
        FileFormatError: a name, option or value of it does not fit; one line says which.
        MissingDataError: a data file that a model needs is not there.
    """
    file, rows = table.file, list[TableRow]()
    first = make_device(table, {key: one.start for key, one in file.fit.items()}).numbers
    for index, entry in enumerate(file.rows):
        where = f"{table.label}: rows[{index}]"
        located(f"{where}: device", partial(Device, name=file.name, **{**first, **entry.device}))
        train, valid, placed = (getattr(entry, one) or getattr(file, one) for one in _OVERRULED)
        name, placed = _beside(table, entry.model, ".py"), _beside(table, placed, ".toml")
        model = located(f"{where}: model", partial(load_model, name, **entry.set))
        schedule = located(where, partial(schedule_of_row, entry.schedule, entry))
        placement = located(f"{where}: placement", partial(placement_of, placed))
        rows.append(TableRow(where, entry, leading(model, train, valid), schedule, placement, file))
    return rows


def make_device(table: Table, values: Mapping[str, float], what: str = "device") -> Device:
    """The device with the fitted numbers at these values; `what` it is stands in a message.

    Raises:
        FileFormatError: the file's own numbers do not fit, or those that are fitted cross.
    """
    made = partial(Device, name=table.file.name, **table.file.device, **values)
    return located(f"{table.label}: {what}", made)


@dataclass
class Measured:
    """Logarithms of simulated over published throughput, run by run; each run is remembered.

    Throughput is homogeneous where all times come from fitted numbers: a device twice as fast in
    all of them is twice as fast. Runs are then remembered by the ratios of the numbers.
    """

    table: Table
    rows: Sequence[TableRow]  # those that the fit sees
    on_run: OnRun | None = None
    runs: int = 0  # that there were
    _known: dict[tuple[float, ...], tuple[float, list[float]]] = field(
        default_factory=dict[tuple[float, ...], tuple[float, list[float]]]
    )

    @property
    def is_homogeneous(self) -> bool:
        """Whether every time of the rows is in proportion to the fitted numbers."""
        is_known = any(key not in TIMELESS for key in self.table.file.device)
        return not (is_known or any(row.schedule.order.group_wait_s for row in self.rows))

    def __call__(self, logarithms: Sequence[float]) -> list[float]:
        """Log of simulated over published, for each number of each row."""
        keys = list(bounds := self.table.file.fit)
        scale = SIGNS[keys[0]] * logarithms[0] if self.is_homogeneous else 0.0
        place = tuple(round(x - SIGNS[k] * scale, 9) for k, x in zip(keys, logarithms, strict=True))
        if place not in self._known:
            values = {k: bounds[k].at(x) for k, x in zip(keys, logarithms, strict=True)}
            device = make_device(self.table, values, "fit: two numbers cross; set bounds apart")
            self._known[place] = (scale, self._run(device))
        then, found = self._known[place]
        return [one + scale - then for one in found]

    def _run(self, device: Device) -> list[float]:
        found: list[float] = []
        for row in self.rows:
            self.runs += 1
            result = row.run(device, self.on_run)
            found += [math.log(getattr(result, q) / n) for q, n in published(row.entry).items()]
        return found


def _beside(table: Table, name_or_path: str, suffix: str) -> str:
    """A name as it is; a path from where the table lies."""
    is_path = name_or_path.endswith(suffix)
    return str(table.folder / expanded(name_or_path)) if is_path else name_or_path


EXPONENT_MAX: Final = 700.0
"""Of an end of an interval; the exponential of one more does not fit into a float."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number that was fitted."""

    key: str  # of the device
    value: float  # in the unit of the key
    low: float  # lower end of the 95 % interval; NaN where no point is left over
    high: float
    is_at_bound: bool  # whether a bound of the file holds it

    @property
    def interval(self) -> str:
        """The interval in words; empty where there is none."""
        is_known = not math.isnan(self.low)
        return f"95 % interval {self.low:.3g} to {self.high:.3g}" if is_known else ""


@dataclass(frozen=True, slots=True)
class Point:
    """A published number beside the simulated one."""

    label: str  # of the row
    quantity: Quantity
    published: float  # items per second
    simulated: float  # the same, with the fitted device
    is_fitted: bool  # whether the fit saw it
    bound: str  # the busiest worker, its share of the run, and its nodes
    has_own_device: bool  # whether the row replaces numbers of the device
    source: str  # where the published one stands

    @property
    def error(self) -> float:
        """Simulated over published, less 1."""
        return self.simulated / self.published - 1.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a fit."""

    table: Table
    device: Device  # with the fitted numbers
    fitted: tuple[Fitted, ...]  # these, with their intervals
    points: tuple[Point, ...]  # every published number, in the order of the file
    runs: int  # that the fit took
    is_least: bool = True  # whether no number moved any more; else steps ran out

    @property
    def seen(self) -> list[Point]:
        """The points of the fit."""
        return [point for point in self.points if point.is_fitted]

    @property
    def unseen(self) -> list[Point]:
        """The points on the fitted device that were not fitted."""
        return [one for one in self.points if not one.is_fitted and not one.has_own_device]

    @property
    def others(self) -> list[Point]:
        """Points on devices with numbers of their own."""
        return [one for one in self.points if one.has_own_device]


def median_error(points: Sequence[Point]) -> float:
    """Median of the errors' absolute values; NaN of no points."""
    return statistics.median(abs(one.error) for one in points) if points else math.nan


def rank_correlation(points: Sequence[Point]) -> float:
    """Spearman's rank correlation of published and simulated; NaN of fewer than two points."""
    pairs = [(one.published, one.simulated) for one in points]
    columns = pd.DataFrame(pairs, columns=["published", "simulated"], dtype=float)
    return float(columns.corr("spearman").to_numpy()[0, 1])


def calibrate(table: Table, on_run: OnRun | None = None) -> Calibration:
    """Fit the named parameters to the fitted rows, and predict every row.

    The error is the sum of squares of the logarithm of simulated over published throughput.

    Raises:
        FileFormatError: a row cannot run, or the rows do not decide the parameters.
        MissingDataError: a data file that a model needs is not there.
    """
    rows = make_rows(table)
    first = make_device(table, {key: one.start for key, one in table.file.fit.items()})
    predict([row for row in rows if not row.entry.is_fitted], first, on_run)  # or none is fitted
    measured = Measured(table, [row for row in rows if row.entry.is_fitted], on_run)
    solution = _solve(table, measured)
    fitted = tuple(_fitted(table, solution, place) for place in range(len(table.file.fit)))
    device = make_device(table, {one.key: one.value for one in fitted})
    points = predict(rows, device, on_run)
    return Calibration(table, device, fitted, tuple(points), measured.runs, solution.is_least)


def predict(rows: Sequence[TableRow], device: Device, on_run: OnRun | None = None) -> list[Point]:
    """Run every row on the device, and put what it gives beside what was published."""
    points: list[Point] = []
    for row in rows:
        entry, result = row.entry, row.run(device, on_run)
        bound = bounds_of(result)
        points += [
            Point(
                entry.label, quantity, told, float(getattr(result, quantity)), entry.is_fitted,
                bound[quantity], bool(entry.device), entry.source,
            )
            for quantity, told in published(entry).items()
        ]  # fmt: skip
    return points


def _solve(table: Table, measured: Measured) -> Solution:
    keys, parameters = [*table.file.fit], [*table.file.fit.values()]
    try:
        return least_squares(
            measured,
            [math.log(one.start) for one in parameters],
            [(math.log(one.min), math.log(one.max)) for one in parameters],
            law=[SIGNS[key] for key in keys] if measured.is_homogeneous else None,
        )
    except SingularFit as error:
        fault = f"fit: the fitted rows do not tell {' and '.join(keys)} apart"
        if error.place is not None:
            fault = f"fit.{keys[error.place]}: no fitted row depends on it"
        remedy = "fit rows that differ more, start elsewhere, or leave a parameter out"
        raise FileFormatError(f"{table.label}: {fault}; {remedy}") from None


def _fitted(table: Table, solution: Solution, place: int) -> Fitted:
    key, bounds = [*table.file.fit.items()][place]
    at, margin = solution.at[place], solution.margins[place]
    value, low, high = map(bounds.at, (at, at - margin, at + margin))
    held = [one for one in (bounds.min, bounds.max) if abs(at - math.log(one)) < 1e-9]
    return Fitted(key, held[0] if held else value, low, high, bool(held))
