"""Which row is first at each point of a grid, and what that says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.words import plain
from ampsim.runs.ranking import SAME, Answer, Ranking, Times, rank
from ampsim.units import format_bytes, format_flop, format_rate, format_seconds

FLOP_RATE = "flop_per_s"


class RowPoint(Protocol):
    """Where a row stands: label of the entry that it is made of, and values of the grid's keys."""

    @property
    def label(self) -> str:
        """Of the entry."""
        ...

    @property
    def point(self) -> dict[str, Any]:
        """Value of each key of the grid."""
        ...


class MapKeys(Protocol):
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
class BestRow:
    """The best of some rows at one point.

    Attributes:
        label: of the row's entry.
        value: seconds to the target, or items per second.
        low: lower end of its interval; the value itself where it has none.
        high: upper end, likewise; infinite where that is a run that did not reach the target.
        epochs: to the target; NaN where nothing was learned.
    """

    label: str
    value: float
    low: float
    high: float
    epochs: float


@dataclass(frozen=True, slots=True)
class GridPoint:
    """The best of a group of rows and the best of all others, at one point of a grid.

    Attributes:
        group: the best of the group; None where none reached the target.
        others: the best of the others, likewise.
        is_time: whether values are seconds, of which fewer are better.
        ranking: of the two by their seeds; None of throughputs, or where nobody reached the target.
    """

    group: BestRow | None
    others: BestRow | None
    is_time: bool
    ranking: Ranking | None = None

    @property
    def ratio(self) -> float:
        """How many times as good the group is; infinite or 0 where one side missed, NaN if both."""
        if self.group is None or self.others is None:
            return 0.0 if self.others else math.inf if self.group else math.nan
        ratio = self.others.value / self.group.value
        return ratio if self.is_time else 1.0 / ratio

    @property
    def answer(self) -> Answer | None:
        """What may be said of the two; None where nobody reached the target."""
        if self.winner is None:
            return None
        if not self.is_time:  # throughputs do not hang on seeds
            return "tie" if abs(math.log(self.ratio)) < math.log1p(SAME) else "first"
        return "too few seeds" if self.ranking is None else self.ranking.answer

    @property
    def winner(self) -> BestRow | None:
        """Who is better in the median; None where nobody reached the target."""
        return self.group if self.ratio >= 1.0 else self.others


@dataclass(frozen=True, slots=True)
class Contest:
    """All points of a map.

    Attributes:
        across: key of the columns, and their values.
        down: key of the lines, and their values.
        panels: key of the panels, and their values; one None where there is one panel.
        points: by panel, line and column; None where nothing was run.
        is_time: whether values are seconds to the target.
    """

    across: tuple[str, list[Any]]
    down: tuple[str, list[Any]]
    panels: tuple[str, list[Any]]
    points: list[list[list[GridPoint | None]]]
    is_time: bool

    @property
    def compared(self) -> list[tuple[str, GridPoint]]:
        """Each point that was run: where it is, in words, and who is better there."""
        (right, columns), (down, lines), (over, panels) = self.across, self.down, self.panels
        return [
            (words({over: panel, down: line, right: column}), point)
            for panel, of_panel in zip(panels, self.points, strict=True)
            for line, of_line in zip(lines, of_panel, strict=True)
            for column, point in zip(columns, of_line, strict=True)
            if point is not None
        ]


def contest(
    table: DataFrame,
    cells: Sequence[RowPoint],
    heat_map: MapKeys,
    flop_per_s: float | None,
    times: Sequence[Times],
) -> Contest:
    """Find the best of a group and of the others at each point.

    Args:
        table: one row a schedule and point.
        cells: where each row stands.
        heat_map: what the map shows.
        flop_per_s: FLOP rate of all devices that were run, where the map's lines are FLOP rates.
        times: to the target, of each row by seed.
    """
    records = rows(table)
    is_time = any(not math.isnan(number(row, "time_to_target_s")) for row in records)
    across, down = _axes(cells, heat_map, flop_per_s)
    over = str(heat_map.panels or "")
    panels: list[Any] = _values(cells, over) if over else [None]
    at = [*zip(cells, records, times, strict=True)]

    def at_point(panel: Any, line: Any, column: Any) -> GridPoint | None:
        wanted, factor = {heat_map.across: column, heat_map.down: line}, 1.0
        if flop_per_s is not None:
            factor = flop_per_s / wanted.pop(FLOP_RATE)
            wanted[heat_map.across] = column / factor
        if over:
            wanted[over] = panel
        there = [(cell.label, row, one) for cell, row, one in at if _is_at(cell, wanted)]
        sides = [
            [one for one in there if (one[0] in heat_map.ours) == is_in_group]
            for is_in_group in (True, False)
        ]
        if not all(sides):
            return None
        group, others = (_best(side, factor, is_time=is_time) for side in sides)
        fastest = [min((one[2] for one in side), key=_middle) for side in sides]
        return GridPoint(group, others, is_time, rank(fastest) if is_time else None)

    points = [[[at_point(panel, line, x) for x in across] for line in down] for panel in panels]
    axes = (heat_map.across, across), (heat_map.down, down), (over, panels)
    return Contest(*axes, points, is_time)


def _axes(
    cells: Sequence[RowPoint], heat_map: MapKeys, flop_per_s: float | None
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


def _values(cells: Iterable[RowPoint], key: str) -> list[Any]:
    """Values of a key that the grid has, in its order; those of single rows only are left out."""
    values = [cell.point[key] for cell in cells if key in cell.point and _is_whole(cell)]
    return list(dict.fromkeys(values))


def _is_whole(cell: RowPoint) -> bool:
    return bool(getattr(cell, "is_whole", True))


def _is_at(cell: RowPoint, wanted: Mapping[str, Any]) -> bool:
    return all(key in cell.point and _same(cell.point[key], one) for key, one in wanted.items())


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9)
    return first == second


def _middle(times: Times) -> tuple[float, float]:
    """The median of a row's times, then how many of them are infinite."""
    missed = sum(map(math.isinf, times.values()))
    return (median(times.values()) if times else math.inf, missed)


def _best(
    side: Sequence[tuple[str, Row, Times]], factor: float, *, is_time: bool
) -> BestRow | None:
    """The best of some rows, with times that many times as long."""
    if not is_time:
        known = [(number(row, "train_per_s"), label) for label, row, _times in side]
        rates = [(rate / factor, label) for rate, label in known if rate > 0]
        if not rates:
            return None
        rate, label = max(rates, key=lambda one: one[0])
        return BestRow(label, rate, rate, rate, math.nan)
    reached = [(number(row, "time_to_target_s"), label, row) for label, row, _times in side]
    reached = [one for one in reached if not math.isnan(one[0])]
    if not reached:
        return None
    time_s, label, row = min(reached, key=lambda one: one[0])
    low, high = (number(row, f"time_to_target_{end}_s") for end in ("low", "high"))
    if math.isnan(high):
        high = time_s if math.isnan(low) else math.inf
    low = time_s if math.isnan(low) else low
    epochs = number(row, "epochs_to_target")
    return BestRow(label, time_s * factor, low * factor, high * factor, epochs)


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


def contest_verdict(found: Contest) -> str:
    """Who is first at how many points, then the largest lead of each side."""
    points = [point for _place, point in found.compared]
    if not points:
        return "Nothing was run that can be compared."
    clear = [(place, point) for place, point in found.compared if point.answer == "first"]
    unsure = [point for point in points if point.answer == "too few seeds"]
    group = _names(point.group for point in points)
    counts = {
        f"{group} is first at": sum(point.ratio > 1.0 for _place, point in clear),
        "the best of the others at": sum(point.ratio < 1.0 for _place, point in clear),
        "they are less than 5 % apart at": sum(point.answer == "tie" for point in points) or None,
        "nobody reached the target at": sum(point.winner is None for point in points) or None,
    }
    told = [f"{what} {count}" for what, count in counts.items() if count is not None]
    if unsure:
        needs = [point.ranking.seeds_needed or 0 for point in unsure if point.ranking]
        enough = f"up to {max(needs)} would do; " if needs else ""
        ahead = sum(point.ratio > 1.0 for point in unsure)
        told.append(
            f"and at {len(unsure)} there are too few seeds ({enough}in the median {group} is "
            f"ahead at {ahead} of these)"
        )
    is_median = found.is_time and not clear
    leads = _leads(found.compared if is_median else clear, is_time=found.is_time)
    where = "In the median, at" if is_median else "At"
    largest = f" {where} most {', and '.join(leads)}." if leads else ""
    return f"Of {len(points)} points, {', '.join(told)}.{largest}"


def _leads(compared: Sequence[tuple[str, GridPoint]], *, is_time: bool) -> list[str]:
    """The largest lead of each side that has one."""
    known = [one for one in compared if 0.0 < one[1].ratio < math.inf]
    ahead = [one for one in known if one[1].ratio > 1.0]
    behind = [one for one in known if one[1].ratio < 1.0]
    largest = [max(ahead, key=_ratio_at)] if ahead else []
    largest += [min(behind, key=_ratio_at)] if behind else []
    return [_lead(*one, is_time=is_time) for one in largest]


def _ratio_at(one: tuple[str, GridPoint]) -> float:
    return one[1].ratio


def _lead(place: str, point: GridPoint, *, is_time: bool) -> str:
    """The largest lead of one side, in words."""
    sides = (point.group, point.others)
    first, second = sides if point.ratio >= 1.0 else sides[::-1]
    assert first is not None, "a ratio that is finite and not 0 has both sides"
    assert second is not None, "a ratio that is finite and not 0 has both sides"
    factor = max(point.ratio, 1.0 / point.ratio)
    values = [value_words(one.value, is_time=is_time) for one in (first, second)]
    return (
        f"{first.label} is {factor:.2g} times as {'soon' if is_time else 'fast'} as {second.label} "
        f"({values[0]} against {values[1]}, at {place})"
    )


def _names(bests: Iterable[BestRow | None]) -> str:
    """Labels of those that are best somewhere."""
    labels = list(dict.fromkeys(one.label for one in bests if one is not None))
    return " or ".join(labels) if labels else "the group"
