"""Throughputs of the rows of a table on a device, by running the simulator in mode `sleep`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ampsim.data import MissingDataError
from ampsim.errors import AmpsimError, FileFormatError, OptionError
from ampsim.hardware import Cluster, Device
from ampsim.hardware.device import NUMBERS
from ampsim.model_parallel import Placement, Schedule, placement_of
from ampsim.paths import expanded
from ampsim.study.calibration.table_file import (
    SIGNS,
    TIMELESS,
    Quantity,
    RowEntry,
    Table,
    published,
)
from ampsim.study.leading import leading
from ampsim.study.loading import load_model
from ampsim.study.model import Model
from ampsim.study.result import Result
from ampsim.study.schedule_names import option_names, schedules_of, without_effect
from ampsim.study.simulation import simulate

T = TypeVar("T")
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
            self.model,
            cluster,
            self.schedule,
            mode="sleep",
            seed=self.seed,
            placement=self.placement,
            counts_memory=False,
        )

    def rates(self, device: Device) -> dict[Quantity, float]:
        """Throughput of each quantity that was published, in items per second."""
        result = self.run(device)
        return {quantity: float(getattr(result, quantity)) for quantity in published(self.entry)}


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
    return _told(
        table, "device", lambda: Device(name=table.file.name, **table.file.device, **values)
    )


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
            rates = row.rates(device)
            found += [math.log(rates[q] / told) for q, told in published(row.entry).items()]
        return found


def _row(table: Table, index: int) -> TableRow:
    file, entry = table.file, table.file.rows[index]
    where = f"rows[{index}]"
    name = entry.model
    if name.endswith(".py"):
        name = str(table.folder / expanded(name))
    model = _told(table, f"{where}: model", lambda: load_model(name, **entry.set))
    for key in entry.device:
        if key not in NUMBERS:
            raise FileFormatError(f"{table.label}: {where}: device has no number {key!r}")
    placed = entry.placement or file.placement
    if placed.endswith(".toml"):
        placed = str(table.folder / expanded(placed))
    return TableRow(
        entry,
        leading(
            model,
            entry.train_instances or file.train_instances,
            entry.valid_instances or file.valid_instances,
        ),
        _told(table, where, lambda: _schedule(entry)),
        _told(table, f"{where}: placement", lambda: placement_of(placed)),
        file.workers,
        file.seed,
    )


def _schedule(entry: RowEntry) -> Schedule:
    given: dict[str, Any] = {name: getattr(entry, name) for name in option_names()}
    schedules = schedules_of(entry.schedule, **given)
    for option in without_effect(schedules, [key for key, one in given.items() if one is not None]):
        raise OptionError(f"{option} has no effect on {entry.schedule}; leave it out")
    return schedules[0]


def _told(table: Table, where: str, make: Callable[[], T]) -> T:
    """What `make` gives; a mistake in it names the file and the place."""
    try:
        return make()
    except MissingDataError:
        raise
    except AmpsimError as error:
        raise FileFormatError(f"{table.label}: {where}: {error}") from error
