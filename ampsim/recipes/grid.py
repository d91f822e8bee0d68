"""The grid of a recipe: clusters and schedules varied together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from ampsim.errors import one_of
from ampsim.options import Count
from ampsim.recipes.entry import HARDWARE, ScheduleEntry
from ampsim.report.grid import SHOW_AXIS
from ampsim.toml_file import Record, Text

Axis: TypeAlias = Literal["cluster", "workers", "latency_s", "bandwidth_bytes_per_s", "topology"]
Several = Field(min_length=2)
ROWS_MAX: Final = 2000
"""Most rows of a report; chosen: a table that nobody reads is a slip."""


class Grid(Record):
    """Values over which the rows are multiplied.

    A row is run at each combination of them, one value of each key. A row that names one of the
    keys itself keeps its own value, and is not multiplied by that key.

    Args:
        cluster: names or paths, as `cluster` of a recipe.
        workers: how many.
        latency_s: of the links.
        bandwidth_bytes_per_s: of the links.
        topology: of the edges between workers.
    """

    cluster: Annotated[list[Text], Several] | None = None
    workers: Annotated[list[Count], Several] | None = None
    latency_s: Annotated[list[float], Several] | None = None
    bandwidth_bytes_per_s: Annotated[list[float], Several] | None = None
    topology: Annotated[list[Text], Several] | None = None

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The keys that are given, with their values."""
        named = {key: getattr(self, key) for key in HARDWARE}
        return {key: values for key, values in named.items() if values is not None}


class HeatMap(Record):
    """The map of a grid: what it shows, and of whom against whom.

    Args:
        across: key of the grid whose values are the columns.
        down: key of the grid whose values are the lines.
        panels: key of the grid that has a panel for each value; none unless given.
        ours: labels of the rows whose best is compared with the best of all others.
    """

    across: Axis
    down: Axis
    panels: Axis | None = None
    ours: Annotated[list[Text], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a row of a report stands.

    Args:
        index: of the recipe's entry that it is made of.
        label: of that entry; without a grid, of the row.
        point: values of the grid's keys there; empty without a grid.
        is_whole: whether it was multiplied by every key of the grid.
    """

    index: int
    label: str
    point: dict[str, Any]
    is_whole: bool

    @property
    def where(self) -> str:
        """What a message calls it."""
        told = f"schedules[{self.index}]"
        return f"{told} at {point_words(self.point)}" if self.point else told


def multiplied(
    entries: Sequence[ScheduleEntry], grid: Grid | None
) -> tuple[list[ScheduleEntry], tuple[Cell, ...]]:
    """The rows that entries and a grid give, and where each stands."""
    rows: list[ScheduleEntry] = []
    cells: list[Cell] = []
    axes = {} if grid is None else grid.axes
    for index, entry in enumerate(entries):
        free = {key: values for key, values in axes.items() if key not in entry.hardware}
        is_whole = bool(axes) and len(free) == len(axes)
        for values in itertools.product(*free.values()):
            point = dict(zip(free, values, strict=True))
            own = {key: entry.hardware[key] for key in axes if key in entry.hardware}
            cells.append(Cell(index, entry.title, {**point, **own} if axes else {}, is_whole))
            label = f"{entry.title}, {point_words(point)}" if point else entry.label
            rows.append(entry.model_copy(update={**point, "label": label}))
    return rows, tuple(cells)


def point_words(point: dict[str, Any]) -> str:
    """A point of a grid in words.

    >>> point_words({"workers": 4, "latency_s": 1e-6, "cluster": "./one-slow.toml"})
    '4 workers, 1.00 µs, one-slow'
    """
    return ", ".join(value_words(key, value) for key, value in point.items())


def value_words(key: str, value: Any) -> str:
    """A value of one key of a grid, in words.

    >>> value_words("bandwidth_bytes_per_s", 1e9), value_words("workers", 1)
    ('1.00 GB/s', '1 worker')
    """
    if key in SHOW_AXIS:
        return SHOW_AXIS[key](value)
    return PurePath(value).stem if str(value).endswith(".toml") else str(value)


def grid_faults(grid: Grid | None, entries: Sequence[ScheduleEntry]) -> Iterator[str]:
    """What a grid says that it must not, one sentence each."""
    if grid is None:
        return
    if not grid.axes:
        yield f"grid must have a list for one of {', '.join(HARDWARE)}; give one, or no grid"
    for key, values in grid.axes.items():
        words = [value_words(key, value) for value in values]
        for place, word in enumerate(words):
            if word in words[:place]:
                yield f"grid.{key} must differ in three digits, got {values}"
                return
    count = sum(
        math.prod(len(values) for key, values in grid.axes.items() if key not in entry.hardware)
        for entry in entries
    )
    if count > ROWS_MAX:
        yield f"grid must give at most {ROWS_MAX} rows, got {count}; give fewer values"


def map_faults(
    heat_map: HeatMap | None, grid: Grid | None, entries: Sequence[ScheduleEntry]
) -> Iterator[str]:
    """What a heat map says that does not fit the grid, one sentence each."""
    if heat_map is None:
        return
    if grid is None:
        yield "heat_map needs a grid, whose keys are its axes; add [grid]"
        return
    named = {"across": heat_map.across, "down": heat_map.down, "panels": heat_map.panels}
    used = {place: str(key) for place, key in named.items() if key is not None}
    for place, key in used.items():
        if key not in grid.axes:
            yield f"heat_map.{place}: {one_of('list of the grid', str(key), grid.axes)}"
    if len(set(used.values())) < len(used):
        keys = ", ".join(used.values())
        yield f"heat_map: across, down and panels must differ, got {keys}"
    left = [key for key in grid.axes if key not in used.values()]
    if left:
        yield f"heat_map has no place for grid.{left[0]}; make it across, down or panels"
    yield from _wrong_ours(heat_map, entries)


def _wrong_ours(heat_map: HeatMap, entries: Sequence[ScheduleEntry]) -> Iterator[str]:
    titles = [entry.title for entry in entries]
    for place, one in enumerate(heat_map.ours):
        if one not in titles:
            yield f"heat_map.ours[{place}]: {one_of('row', one, titles)}"
    if set(titles) <= set(heat_map.ours):
        yield "heat_map.ours must leave a row to compare with"
