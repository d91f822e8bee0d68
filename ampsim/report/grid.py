"""What a grid of hardware says: which row is first at each point, and what each point costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, TypeAlias

from ampsim.report.frames import DataFrame, Row, number, rows
from ampsim.report.table import format_count
from ampsim.report.words import plain
from ampsim.runs.ranking import SAME, Answer, Ranking, Times, rank, seeds_needed
from ampsim.units import (
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
)

NOTHING: Final = "Nothing was run that can be compared."
Cell: TypeAlias = Any
"""Where a row stands, as `ampsim.recipes.grid.Cell`: its entry's label, and values of the keys."""


@dataclass(frozen=True, slots=True)
class BestRow:
    """The best of some rows at one point.

    Attributes:
        label: of the row's entry.
        value: seconds to the target, or items per second.
        low, high: ends of its interval; the value itself where it has none, and an infinite `high`
            where that is a run that did not reach the target.
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
        group, others: the best of either; None where none reached the target.
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
    def is_ranked(self) -> bool:
        """Whether there are as many seeds as can call an order of two."""
        seeds = math.inf if not self.is_time else 0 if self.ranking is None else self.ranking.seeds
        return seeds >= seeds_needed(2)

    @property
    def winner(self) -> BestRow | None:
        """Who is better in the median; None where nobody reached the target."""
        return self.group if self.ratio >= 1.0 else self.others


@dataclass(frozen=True, slots=True)
class Contest:
    """All points of a map.

    Attributes:
        across, down, panels: keys of columns, lines and panels, and their values; one None where
            there is one panel.
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

    @property
    def group_names(self) -> str:
        """Labels of those of the group that are best somewhere."""
        labels = (point.group.label for _place, point in self.compared if point.group is not None)
        return " or ".join(dict.fromkeys(labels))


def contest(
    table: DataFrame,
    cells: Sequence[Cell],
    heat_map: Any,
    times: Sequence[Times],
) -> Contest:
    """Find the best of a group and of the others at each point.

    Args:
        table: one row a schedule and point.
        cells: where each row stands.
        heat_map: what the map shows, as `ampsim.recipes.grid.HeatMap`.
        times: to the target, of each row by seed.
    """
    records = rows(table)
    is_time = any(not math.isnan(number(row, "time_to_target_s")) for row in records)
    across, down = _values(cells, heat_map.across), _values(cells, heat_map.down)
    over = str(heat_map.panels or "")
    panels: list[Any] = _values(cells, over) if over else [None]
    at = [*zip(cells, records, times, strict=True)]

    def at_point(panel: Any, line: Any, column: Any) -> GridPoint | None:
        wanted = {heat_map.across: column, heat_map.down: line}
        if over:
            wanted[over] = panel
        there = [(cell.label, row, one) for cell, row, one in at if _is_at(cell, wanted)]
        sides = [
            [one for one in there if (one[0] in heat_map.ours) == is_in_group]
            for is_in_group in (True, False)
        ]
        if not all(sides):
            return None
        group, others = (_best(side, is_time=is_time) for side in sides)
        fastest = [min((one[2] for one in side), key=_middle) for side in sides]
        return GridPoint(group, others, is_time, rank(fastest) if is_time else None)

    points = [[[at_point(panel, line, x) for x in across] for line in down] for panel in panels]
    axes = (heat_map.across, across), (heat_map.down, down), (over, panels)
    return Contest(*axes, points, is_time)


def _values(cells: Iterable[Cell], key: str) -> list[Any]:
    """Values of a key that the grid has, in its order; those of single rows only are left out."""
    whole = (cell for cell in cells if getattr(cell, "is_whole", True))
    return list(dict.fromkeys(cell.point[key] for cell in whole if key in cell.point))


def _is_at(cell: Cell, wanted: Mapping[str, Any]) -> bool:
    return all(key in cell.point and _same(cell.point[key], one) for key, one in wanted.items())


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9)
    return first == second


def _middle(times: Times) -> tuple[float, float]:
    """The median of a row's times, then how many of them are infinite."""
    missed = sum(map(math.isinf, times.values()))
    return (median(times.values()) if times else math.inf, missed)


def _best(side: Sequence[tuple[str, Row, Times]], *, is_time: bool) -> BestRow | None:
    name, best = ("time_to_target_s", min) if is_time else ("train_per_s", max)
    known = [(number(row, name), label, row) for label, row, _times in side]
    known = [one for one in known if (not math.isnan(one[0]) if is_time else one[0] > 0)]
    if not known:
        return None
    value, label, row = best(known, key=lambda one: one[0])
    if not is_time:
        return BestRow(label, value, value, value, math.nan)
    low, high = (number(row, f"time_to_target_{end}_s") for end in ("low", "high"))
    if math.isnan(high):
        high = value if math.isnan(low) else math.inf
    low = value if math.isnan(low) else low
    epochs = number(row, "epochs_to_target")
    return BestRow(label, value, low, high, epochs)


def words(point: Mapping[str, Any]) -> str:
    """A point in words."""
    return ", ".join(axis_words(key, value) for key, value in point.items() if value is not None)


SHOW_AXIS: Final[Mapping[str, Callable[[Any], str]]] = {
    "latency_s": format_seconds,
    "bandwidth_bytes_per_s": lambda value: f"{format_bytes(value)}/s",
    "workers": lambda value: f"{value} worker{'s' * (value != 1)}",
}
"""How a value of each key of a grid is written that is a number."""


def axis_words(key: str, value: Any) -> str:
    """A value of one key in words.

    >>> axis_words("workers", 4), axis_words("cluster", "./a.toml")
    ('4 workers', 'a')
    """
    if key in SHOW_AXIS:
        return SHOW_AXIS[key](value)
    return plain(str(value).rpartition("/")[2].removesuffix(".toml"), 32)


def value_words(value: float, *, is_time: bool) -> str:
    """Seconds, or items per second, in words."""
    return format_seconds(value) if is_time else format_rate(value)


def contest_verdict(found: Contest) -> str:
    """Who is first at how many points, then the largest lead of each side."""
    compared = found.compared
    if not compared:
        return NOTHING
    clear = [one for one in compared if one[1].answer == "first"]
    unsure = [point for _place, point in compared if point.answer == "too few seeds"]
    group = found.group_names or "the group"
    counts = {
        f"{group} is first at": sum(point.ratio > 1.0 for _, point in clear),
        "the best of the others at": sum(point.ratio < 1.0 for _, point in clear),
        "they are less than 5 % apart at": sum(one.answer == "tie" for _, one in compared) or None,
        "nobody reached the target at": sum(one.winner is None for _, one in compared) or None,
    }
    told = [f"{what} {count}" for what, count in counts.items() if count is not None]
    if unsure:
        needs = [point.ranking.seeds_needed or 0 for point in unsure if point.ranking]
        ahead = sum(point.ratio > 1.0 for point in unsure)
        why = [f"up to {max(needs)} would do"] if needs else []
        if any(point.is_ranked for point in unsure):
            why.append(f"in the median {group} is ahead at {ahead} of these")
        else:
            why.append("fewer rank nothing")
        told.append(f"and at {len(unsure)} there are too few seeds ({'; '.join(why)})")
    is_median = found.is_time and not clear
    leads = _leads([one for one in compared if one[1].is_ranked] if is_median else clear)
    where = "In the median, at" if is_median else "At"
    largest = f" {where} most {', and '.join(leads)}." if leads else ""
    return f"Of {len(compared)} points, {', '.join(told)}.{largest}"


def _leads(compared: Sequence[tuple[str, GridPoint]]) -> list[str]:
    """The largest lead of each side that has one."""
    known = [one for one in compared if 0.0 < one[1].ratio < math.inf]
    if not known:
        return []
    ahead, behind = (best(known, key=_ratio_at) for best in (max, min))
    return [
        _lead(*one)
        for one, has_lead in ((ahead, _ratio_at(ahead) > 1.0), (behind, _ratio_at(behind) < 1.0))
        if has_lead
    ]


def _ratio_at(one: tuple[str, GridPoint]) -> float:
    return one[1].ratio


def _lead(place: str, point: GridPoint) -> str:
    sides = (point.group, point.others)
    first, second = sides if point.ratio >= 1.0 else sides[::-1]
    assert first is not None, "a ratio that is finite and not 0 has both sides"
    assert second is not None, "a ratio that is finite and not 0 has both sides"
    factor = max(point.ratio, 1.0 / point.ratio)
    values = [value_words(one.value, is_time=point.is_time) for one in (first, second)]
    return (
        f"{first.label} is {factor:.2g} times as {'soon' if point.is_time else 'fast'} as "
        f"{second.label} ({values[0]} against {values[1]}, at {place})"
    )


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the table whose values are compared.

    Attributes:
        column: of the table.
        heading: what it is, in words.
        show: a value in words.
        is_more_better: whether larger values are better.
    """

    column: str
    heading: str
    show: Callable[[float], str]
    is_more_better: bool


def _joules(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g} J"


MEASURES: Final = (
    Measure("train_per_s", "training throughput", format_rate, is_more_better=True),
    Measure("best_accuracy", "best accuracy", format_percent, is_more_better=True),
    Measure("epochs_to_target", "epochs to the target", format_count, is_more_better=False),
    Measure("time_to_target_s", "time to the target", format_seconds, is_more_better=False),
    Measure("energy_to_target_j", "energy to the target", _joules, is_more_better=False),
)


@dataclass(frozen=True, slots=True)
class Costs:
    """One measure of each schedule at each point.

    Attributes:
        measure: which.
        labels: of the schedules, the lines.
        points: in words, the columns.
        values: by line and column; NaN where it is unknown.
    """

    measure: Measure
    labels: list[str]
    points: list[str]
    values: list[list[float]]

    def ratio(self, line: int, column: int) -> float:
        """A value over that of the first point; NaN where one is unknown."""
        first = self.values[line][0]
        return self.values[line][column] / first if first > 0 else math.nan


def grid_costs(table: DataFrame, cells: Sequence[Cell]) -> list[Costs]:
    """Every measure that is known, of the schedules that it is known of, as `MEASURES` has them.

    Args:
        table: one row a schedule and point.
        cells: where each row stands; rows that were not multiplied over the whole grid are left
            out.
    """
    at: dict[tuple[str, str], Row] = {
        (cell.label, words(cell.point)): row
        for cell, row in zip(cells, rows(table), strict=True)
        if getattr(cell, "is_whole", False)
    }
    labels, points = (list(dict.fromkeys(key[part] for key in at)) for part in (0, 1))
    found: list[Costs] = []
    for measure in MEASURES:
        values = {
            label: [number(at.get((label, point), {}), measure.column) for point in points]
            for label in labels
        }
        known = [label for label in labels if not all(map(math.isnan, values[label]))]
        if known:
            found.append(Costs(measure, known, points, [values[label] for label in known]))
    return found


def costs_verdict(found: Sequence[Costs]) -> str:
    """Between which ratios throughput and time to the target lie, and where: a sentence each."""
    told = [one for one in found if one.measure.column in ("train_per_s", "time_to_target_s")]
    return " ".join(one for one in map(_range, told) if one) or NOTHING


def _range(costs: Costs) -> str:
    """The smallest and the largest ratio to the first point; empty where none is known."""
    known = [
        (costs.ratio(line, column), f"{label}, {point}")
        for line, label in enumerate(costs.labels)
        for column, point in enumerate(costs.points)
        if column and not math.isnan(costs.ratio(line, column))
    ]
    if not known:
        return ""
    ends = {f"{ratio:.2f} times ({place})": None for ratio, place in (min(known), max(known))}
    return f"{costs.measure.heading.capitalize()} is {' to '.join(ends)} that of {costs.points[0]}."


def costs_cells(costs: Costs) -> list[list[str]]:
    """The same as a table of texts: headings, then a line a schedule.

    A cell has a value, and how many times that of the first point it is.
    """
    lines: list[list[str]] = []
    for line, label in enumerate(costs.labels):
        shown = [costs.measure.show(value) for value in costs.values[line]]
        ratios = [costs.ratio(line, column) for column in range(1, len(shown))]
        told = ["" if math.isnan(one) else f" ({one:.2f}×)" for one in ratios]
        cells = [f"{value}{more}" for value, more in zip(shown, ["", *told], strict=True)]
        lines.append([label, *cells])
    return [["schedule", *costs.points], *lines]
