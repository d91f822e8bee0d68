"""Numbers of a device fitted to published throughputs, and the file that has these."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import pandas as pd
from pydantic import Field, create_model

from ampsim.calibration.least_squares import SingularFit, Solution, least_squares, student_quantile
from ampsim.errors import FileFormatError, one_of
from ampsim.files import expanded, sha256_of
from ampsim.hardware import Cluster, Device
from ampsim.hardware.device import NUMBERS, sign_of
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


OnRun: TypeAlias = Callable[[str], None]
"""Told the label of a row before it is run."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row that is ready to run.

    Args:
        entry: what the file says of it.
        model: with the leading instances of its data.
        schedule: what runs.
        placement: which worker hosts which node.
        workers: how many there are.
        seed: of the run.
    """

    entry: RowEntry
    model: Model
    schedule: Schedule
    placement: Placement
    workers: int
    seed: int

    def run(self, device: Device) -> Result:
        """One epoch on that many of `device`, with free links."""
        own = {**device.numbers, **self.entry.device}
        changed = device if not self.entry.device else Device(name=device.name, **own)
        cluster = Cluster(name=device.name, devices=(changed,) * self.workers)
        return simulate(
            self.model, cluster, self.schedule, mode="sleep", seed=self.seed,
            placement=self.placement, counts_memory=False,
        )  # fmt: skip


def make_rows(table: Table) -> list[TableRow]:
    """Load what a table names.

    Raises:
        FileFormatError: a name, option or value of it does not fit; one line says which.
        MissingDataError: a data file that a model needs is not there.
    """
    return [_row(table, index) for index in range(len(table.file.rows))]


def make_device(table: Table, values: Mapping[str, float]) -> Device:
    """The device with the fitted numbers at these values.

    Raises:
        FileFormatError: the file's own numbers do not fit.
    """
    file, where = table.file, f"{table.label}: device"
    return located(where, lambda: Device(name=file.name, **file.device, **values))


@dataclass
class Measured:
    """Logarithms of simulated over published throughput, run by run; each run is remembered.

    Throughput is homogeneous where all times come from fitted numbers: a device twice as fast in
    all of them is twice as fast. Runs are then remembered by the ratios of the numbers.

    Args:
        table: what is fitted.
        rows: those that the fit sees.
        on_run: told of each run.

    Attributes:
        is_homogeneous: whether the law holds.
        runs: how many there were.
    """

    table: Table
    rows: Sequence[TableRow]
    on_run: OnRun | None = None
    runs: int = 0
    _known: dict[tuple[float, ...], tuple[float, list[float]]] = field(
        default_factory=dict[tuple[float, ...], tuple[float, list[float]]]
    )

    @property
    def is_homogeneous(self) -> bool:
        """Whether every time of the rows is in proportion to the fitted numbers."""
        is_known = any(key not in TIMELESS for key in self.table.file.device)
        waits = any(getattr(row.schedule, "group_wait_s", 0) for row in self.rows)
        return not is_known and not waits

    def __call__(self, logarithms: Sequence[float]) -> list[float]:
        """Log of simulated over published, for each number of each row."""
        keys = list(self.table.file.fit)
        scale = SIGNS[keys[0]] * logarithms[0] if self.is_homogeneous else 0.0
        shape = [x - SIGNS[k] * scale for k, x in zip(keys, logarithms, strict=True)]
        place = tuple(round(x, 9) for x in shape)
        if place not in self._known:
            values = {k: math.exp(x) for k, x in zip(keys, logarithms, strict=True)}
            self._known[place] = (scale, self._run(make_device(self.table, values)))
        then, found = self._known[place]
        return [one + scale - then for one in found]

    def _run(self, device: Device) -> list[float]:
        found: list[float] = []
        for row in self.rows:
            if self.on_run is not None:
                self.on_run(row.entry.label)
            self.runs += 1
            result = row.run(device)
            found += [math.log(getattr(result, q) / n) for q, n in published(row.entry).items()]
        return found


def _row(table: Table, index: int) -> TableRow:
    file, entry = table.file, table.file.rows[index]
    where = f"{table.label}: rows[{index}]"
    name = _beside(table, entry.model, ".py")
    model = located(f"{where}: model", lambda: load_model(name, **entry.set))
    for key in entry.device:
        if key not in NUMBERS:
            raise FileFormatError(f"{where}: device has no number {key!r}")
    placed = _beside(table, entry.placement or file.placement, ".toml")
    return TableRow(
        entry,
        leading(
            model,
            entry.train_instances or file.train_instances,
            entry.valid_instances or file.valid_instances,
        ),
        located(where, lambda: schedule_of_row(entry.schedule, entry)),
        located(f"{where}: placement", lambda: placement_of(placed)),
        file.workers,
        file.seed,
    )


def _beside(table: Table, name_or_path: str, suffix: str) -> str:
    """A name as it is; a path from where the table lies."""
    is_path = name_or_path.endswith(suffix)
    return str(table.folder / expanded(name_or_path)) if is_path else name_or_path


COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Fitted:
    """A number that was fitted.

    Args:
        key: of the device.
        value: in the unit of the key.
        low: lower end of the 95 % interval; NaN where no point is left over.
        high: its upper end.
        is_at_bound: whether a bound of the file holds it.
    """

    key: str
    value: float
    low: float
    high: float
    is_at_bound: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A published number beside the simulated one.

    Args:
        label: of the row.
        quantity: what it is.
        published: items per second.
        simulated: the same, with the fitted device.
        is_fitted: whether the fit saw it.
        bound: the node, or nodes, of the busiest worker, and the share of the run it was busy.
        has_own_device: whether the row replaces numbers of the device.
        source: where the published one stands.
    """

    label: str
    quantity: Quantity
    published: float
    simulated: float
    is_fitted: bool
    bound: str
    has_own_device: bool
    source: str

    @property
    def error(self) -> float:
        """Simulated over published, less 1."""
        return self.simulated / self.published - 1.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a fit found.

    Args:
        table: what was fitted.
        device: with the fitted numbers.
        fitted: these, with their intervals.
        points: every published number, in the order of the file.
        runs: how many runs the fit took.
    """

    table: Table
    device: Device
    fitted: tuple[Fitted, ...]
    points: tuple[Point, ...]
    runs: int

    @property
    def seen(self) -> list[Point]:
        """The points of the fit."""
        return [point for point in self.points if point.is_fitted]

    @property
    def unseen(self) -> list[Point]:
        """All others on the fitted device."""
        return [one for one in self.points if not one.is_fitted and not one.has_own_device]


def median_error(points: Sequence[Point]) -> float:
    """Median of the errors' absolute values; NaN of no points."""
    return statistics.median(abs(one.error) for one in points) if points else math.nan


def rank_correlation(points: Sequence[Point]) -> float:
    """Spearman's rank correlation of published and simulated; NaN of fewer than two points."""
    if len(points) < 2:
        return math.nan
    both = [
        pd.Series([getattr(one, key) for one in points]).rank().to_numpy()
        for key in ("published", "simulated")
    ]
    first, second = (ranks - ranks.mean() for ranks in both)
    size = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / size if size else math.nan


def calibrate(table: Table, on_run: OnRun | None = None) -> Calibration:
    """Fit the named parameters to the fitted rows, and predict every row.

    The error is the sum of squares of the logarithm of simulated over published throughput.

    Raises:
        FileFormatError: a row names no model, or the rows do not decide the parameters.
        MissingDataError: a data file that a model needs is not there.
    """
    rows = make_rows(table)
    make_device(table, {key: one.start for key, one in table.file.fit.items()})
    seen = [row for row in rows if row.entry.is_fitted]
    measured = Measured(table, seen, on_run)
    solution = _solve(table, measured)
    fitted = tuple(_fitted(table, solution, place) for place in range(len(table.file.fit)))
    device = make_device(table, {one.key: one.value for one in fitted})
    points = predict(rows, device, on_run)
    return Calibration(table, device, fitted, tuple(points), measured.runs)


def predict(rows: Sequence[TableRow], device: Device, on_run: OnRun | None = None) -> list[Point]:
    """Run every row on the device, and put what it gives beside what was published."""
    points: list[Point] = []
    for row in rows:
        if on_run is not None:
            on_run(row.entry.label)
        result = row.run(device)
        bound = bounds_of(result)
        for quantity, told in published(row.entry).items():
            points.append(
                Point(
                    row.entry.label, quantity, told, float(getattr(result, quantity)),
                    row.entry.is_fitted, bound[quantity], bool(row.entry.device), row.entry.source,
                )
            )  # fmt: skip
    return points


def _solve(table: Table, measured: Measured) -> Solution:
    keys = list(table.file.fit)
    parameters = [table.file.fit[key] for key in keys]
    try:
        return least_squares(
            measured,
            [math.log(one.start) for one in parameters],
            [(math.log(one.min), math.log(one.max)) for one in parameters],
            law=[SIGNS[key] for key in keys] if measured.is_homogeneous else None,
        )
    except SingularFit as error:
        remedy = "fit rows that differ more, or leave a parameter out"
        if error.place is not None:
            raise FileFormatError(
                f"{table.label}: fit.{keys[error.place]}: no fitted row depends on it; {remedy}"
            ) from None
        raise FileFormatError(
            f"{table.label}: fit: the fitted rows do not tell {' and '.join(keys)} apart; {remedy}"
        ) from None


def _fitted(table: Table, solution: Solution, place: int) -> Fitted:
    key = list(table.file.fit)[place]
    bounds, at = table.file.fit[key], solution.at[place]
    margin = math.nan
    if solution.freedom > 0:
        margin = student_quantile((1 + COVERAGE) / 2, solution.freedom) * solution.error[place]
    value = min(max(math.exp(at), bounds.min), bounds.max)
    held = any(abs(at - math.log(end)) < 1e-9 for end in (bounds.min, bounds.max))
    if math.isnan(margin):
        return Fitted(key, value, math.nan, math.nan, held)
    low, high = max(_exp(at - margin), bounds.min), min(_exp(at + margin), bounds.max)
    return Fitted(key, value, low, high, held)


def _exp(logarithm: float) -> float:
    """The exponential; infinite where it does not fit into a float."""
    return math.inf if logarithm > 700 else math.exp(logarithm)
