"""Whose best is first at each point of a grid of hardware: some rows of a report, or all others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.words import plain
from ampsim.units import format_bytes, format_flop, format_rate, format_seconds

SAME = 0.05  # chosen: throughputs that differ by less are a tie
FLOP_RATE = "flop_per_s"


class Cell(Protocol):
    """Where a row stands: label of the entry that it is made of, and values of the grid's keys."""

    @property
    def label(self) -> str:
        """Of the entry."""
        ...

    @property
    def point(self) -> dict[str, Any]:
        """Value of each key of the grid."""
        ...


class HeatMap(Protocol):
    """Keys of columns, lines and panels, and who is compared with all others."""

    @property
    def across(self) -> Any:
        """Key whose values are the columns."""
        ...

    @property
    def down(self) -> Any:
        """Key whose values are the lines."""
        ...

    @property
    def panels(self) -> Any:
        """Key that has a panel for each value; None for one panel."""
        ...

    @property
    def ours(self) -> Any:
        """Labels of those whose best is compared with the best of all others."""
        ...

    @property
    def flop_per_s(self) -> Any:
        """FLOP rates of the lines, where these are no key of the grid."""
        ...


@dataclass(frozen=True, slots=True)
class Best:
    """The best of some rows at one point.

    Attributes:
        label: of the row's entry.
        value: seconds to the target, or items per second.
        low: lower end of its interval; the value itself where it has none.
        high: upper end, likewise; infinite where that is a run that did not reach the target.
        epochs: to the target; NaN where nothing was learned.
        is_single: whether it is a time of a single run, which has no interval.
    """

    label: str
    value: float
    low: float
    high: float
    epochs: float
    is_single: bool = False


@dataclass(frozen=True, slots=True)
class Bout:
    """What happens at one point.

    Attributes:
        ours: the best of ours; None where none reached the target.
        others: the best of the others, likewise.
        is_time: whether values are seconds, of which fewer are better.
    """

    ours: Best | None
    others: Best | None
    is_time: bool

    @property
    def ratio(self) -> float:
        """How many times as good ours is; infinite or 0 where one reached nothing, NaN if both."""
        if self.ours is None or self.others is None:
            return 0.0 if self.others else math.inf if self.ours else math.nan
        ratio = self.others.value / self.ours.value
        return ratio if self.is_time else 1.0 / ratio

    @property
    def is_tie(self) -> bool:
        """Whether the seeds leave open who is better: their intervals meet, or are not known."""
        if self.ours is None or self.others is None:
            return False
        if self.is_single:
            return True
        if not self.is_time:
            return abs(math.log(self.ratio)) < math.log1p(SAME)
        return self.ours.low <= self.others.high and self.others.low <= self.ours.high

    @property
    def is_single(self) -> bool:
        """Whether either side is a single run, which calls nothing."""
        return any(one is not None and one.is_single for one in (self.ours, self.others))

    @property
    def winner(self) -> Best | None:
        """Who is better in the median; None where nobody reached the target."""
        return self.ours if self.ratio >= 1.0 else self.others


@dataclass(frozen=True, slots=True)
class Contest:
    """All points of a map.

    Attributes:
        across: key of the columns, and their values.
        down: key of the lines, and their values.
        panels: key of the panels, and their values; one None where there is one panel.
        bouts: by panel, line and column; None where nothing was run.
        is_time: whether values are seconds to the target.
    """

    across: tuple[str, list[Any]]
    down: tuple[str, list[Any]]
    panels: tuple[str, list[Any]]
    bouts: list[list[list[Bout | None]]]
    is_time: bool

    @property
    def played(self) -> list[tuple[str, Bout]]:
        """Each point in words, with what happens there."""
        (right, columns), (down, lines), (over, panels) = self.across, self.down, self.panels
        return [
            (words({over: panel, down: line, right: column}), bout)
            for panel, of_panel in zip(panels, self.bouts, strict=True)
            for line, of_line in zip(lines, of_panel, strict=True)
            for column, bout in zip(columns, of_line, strict=True)
            if bout is not None
        ]


def contest(
    table: DataFrame, cells: Sequence[Cell], heat_map: HeatMap, flop_per_s: float | None
) -> Contest:
    """Find the best of ours and of the others at each point.

    Args:
        table: one row a schedule and point.
        cells: where each row stands.
        heat_map: what the map shows.
        flop_per_s: FLOP rate of all devices that were run, where the map's lines are FLOP rates.
    """
    records = rows(table)
    is_time = any(not math.isnan(number(row, "time_to_target_s")) for row in records)
    across, down = _axes(cells, heat_map, flop_per_s)
    over = str(heat_map.panels or "")
    panels: list[Any] = _values(cells, over) if over else [None]
    at = [(cell, row) for cell, row in zip(cells, records, strict=True)]

    def bout(panel: Any, line: Any, column: Any) -> Bout | None:
        wanted, factor = {heat_map.across: column, heat_map.down: line}, 1.0
        if flop_per_s is not None:
            factor = flop_per_s / wanted.pop(FLOP_RATE)
            wanted[heat_map.across] = column / factor
        if over:
            wanted[over] = panel
        there = [(cell.label, row) for cell, row in at if _is_at(cell, wanted)]
        sides = [
            [one for one in there if (one[0] in heat_map.ours) == is_ours]
            for is_ours in (True, False)
        ]
        if not all(sides):
            return None
        ours, others = (_best(side, factor, is_time=is_time) for side in sides)
        return Bout(ours, others, is_time)

    bouts = [[[bout(panel, line, one) for one in across] for line in down] for panel in panels]
    return Contest((heat_map.across, across), (heat_map.down, down), (over, panels), bouts, is_time)


def _axes(
    cells: Sequence[Cell], heat_map: HeatMap, flop_per_s: float | None
) -> tuple[list[Any], list[Any]]:
    """Values of columns and lines; at FLOP rates, the latencies that are known at all of them."""
    ran = _values(cells, heat_map.across)
    if flop_per_s is None:
        return ran, _values(cells, heat_map.down)
    rates = sorted(heat_map.flop_per_s, reverse=True)
    latencies = sorted({one * flop_per_s / rate for one in ran for rate in rates})
    known = [
        one for one in latencies
        if all(any(_same(one * rate / flop_per_s, had) for had in ran) for rate in rates)
    ]  # fmt: skip
    return known, rates


def _values(cells: Iterable[Cell], key: str) -> list[Any]:
    """Values of a key that the grid has, in its order; those of single rows only are left out."""
    values = [cell.point[key] for cell in cells if key in cell.point and _is_whole(cell)]
    return list(dict.fromkeys(values))


def _is_whole(cell: Cell) -> bool:
    return bool(getattr(cell, "is_whole", True))


def _is_at(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    return all(key in cell.point and _same(cell.point[key], one) for key, one in wanted.items())


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9)
    return first == second


def _best(side: Sequence[tuple[str, Row]], factor: float, *, is_time: bool) -> Best | None:
    """The best of some rows, with times that many times as long."""
    if not is_time:
        known = [(number(row, "train_per_s"), label) for label, row in side]
        rates = [(rate / factor, label) for rate, label in known if rate > 0]
        if not rates:
            return None
        rate, label = max(rates, key=lambda one: one[0])
        return Best(label, rate, rate, rate, math.nan)
    reached = [(number(row, "time_to_target_s"), label, row) for label, row in side]
    reached = [one for one in reached if not math.isnan(one[0])]
    if not reached:
        return None
    time_s, label, row = min(reached, key=lambda one: one[0])
    low, high = (number(row, f"time_to_target_{end}_s") for end in ("low", "high"))
    is_single = math.isnan(low) and math.isnan(high)
    if math.isnan(high):
        high = time_s if is_single else math.inf
    low = time_s if math.isnan(low) else low
    epochs = number(row, "epochs_to_target")
    return Best(label, time_s * factor, low * factor, high * factor, epochs, is_single)


def words(point: Mapping[str, Any]) -> str:
    """A point in words."""
    return ", ".join(axis_words(key, value) for key, value in point.items() if value is not None)


def axis_words(key: str, value: Any) -> str:
    """A value of one key in words.

    >>> axis_words("flop_per_s", 1e12), axis_words("workers", 4), axis_words("cluster", "./a.toml")
    ('1.00 TFLOP/s', '4 workers', 'a')
    """
    if key == FLOP_RATE:
        return f"{format_flop(value)}/s"
    if key == "latency_s":
        return format_seconds(value)
    if key == "bandwidth_bytes_per_s":
        return f"{format_bytes(value)}/s"
    if key == "workers":
        return f"{value} worker{'s' * (value != 1)}"
    return plain(str(value).rpartition("/")[2].removesuffix(".toml"), 32)


def value_words(value: float, *, is_time: bool) -> str:
    """Seconds, or items per second, in words."""
    return format_seconds(value) if is_time else format_rate(value)
