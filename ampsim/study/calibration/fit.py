"""A device fitted to published throughputs, and what it predicts of rows that it did not see."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ampsim.errors import FileFormatError
from ampsim.hardware import Device
from ampsim.study.calibration.bounds import bounds_of
from ampsim.study.calibration.least_squares import (
    SingularFit,
    Solution,
    least_squares,
    student_quantile,
)
from ampsim.study.calibration.table_file import SIGNS, Quantity, Table, published
from ampsim.study.calibration.throughputs import (
    Measured,
    OnRun,
    TableRow,
    make_device,
    make_rows,
)

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
    both = [_ranks([getattr(one, key) for one in points]) for key in ("published", "simulated")]
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
            simulated = float(getattr(result, quantity))
            points.append(
                Point(
                    row.entry.label,
                    quantity,
                    told,
                    simulated,
                    row.entry.is_fitted,
                    bound[quantity],
                    bool(row.entry.device),
                    row.entry.source,
                )
            )
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


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1, the mean rank for equal values."""
    ordered = np.array(values, float)
    below = (ordered[None, :] < ordered[:, None]).sum(axis=1)
    equal = (ordered[None, :] == ordered[:, None]).sum(axis=1)
    return below + (equal + 1) / 2
