"""Tables of rows: the columns that are shown, on a terminal, as Markdown and as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pandas import Series
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ampsim.errors import UnknownNameError, one_of
from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.report import words as markdown
from ampsim.report.columns import COLUMNS
from ampsim.report.frames import DataFrame, Row, labelled_rows, marked_by, number, rows, text
from ampsim.report.words import listed, plain, told_apart
from ampsim.runs.rows import TEXTS
from ampsim.study.bound_words import bound_words
from ampsim.text import parts_of_note, to_cell
from ampsim.units import (
    SECONDS,
    UNKNOWN,
    format_bytes,
    format_count,
    format_percent,
    format_rate,
    format_seconds,
)  # fmt: skip

ANSWER_WIDTH: Final = 80
"""Characters that the answer fits in (chosen: what every terminal has)."""

_NAME_WIDTH = 24  # chosen: what is seldom more in a name is wrapped, or shortened in the middle
_NAME_WIDTH_MIN = 8
_MEASURE_WIDTH = 10_000

Records: TypeAlias = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the answer; a terminal below 80 characters lacks those of high `rank`.

    Attributes:
        name: of the column of the table that it shows.
        heading: words over the column, in lines; "{items}" stands for what throughput is of,
            "{coverage}" for that of the interval, in lines that are left out where it is unknown.
        show: text of a cell, from its row and from the first row of the table.
        rank: 0 is always shown.
        is_wanted: whether these rows need the column.
    """

    name: str
    heading: str
    show: Callable[[Row, Row], str]
    rank: int
    is_wanted: Callable[[Records], bool] = lambda rows: True

    def headed(self, records: Records) -> str:
        """The heading over these rows, in lines."""
        known = {"items": plain(items_of(records), 11), "coverage": _coverage(records)}
        lines = [
            line
            for line in self.heading.split("\n")
            if all(known[name] for name in known if f"{{{name}}}" in line)
        ]
        return "\n".join(lines).format(**known)


def format_ratio(ratio: float) -> str:
    """A ratio with two digits, or as many as stand before the point.

    >>> format_ratio(4.094), format_ratio(0.8), format_ratio(23.6), format_ratio(0.00123)
    ('4.1×', '0.80×', '24×', '0.0012×')
    >>> format_ratio(float("nan")) == UNKNOWN
    True
    """
    if not math.isfinite(ratio):
        return UNKNOWN
    if 0.0 < ratio < 0.0995:
        return f"{ratio:#.2g}×"
    decimals = 0 if ratio >= 9.95 else 1 if ratio >= 0.995 else 2
    return f"{ratio:.{decimals}f}×"


def speed_ratio(row: Row, first: Row) -> float:
    """Training throughput over that of `first`, NaN where one is unknown or zero."""
    base = number(first, "train_per_s")
    return number(row, "train_per_s") / base if base > 0 else math.nan


def _rate(row: Row, first: Row) -> str:
    """Training throughput; the heading has its unit where the row names its items."""
    said = format_rate(number(row, "train_per_s"))
    return said.removesuffix("/s").rstrip() if text(row, "items") else said


def time_cell(row: Row) -> str:
    """Time to the target with its interval in one unit; if missed, who arrived, or the best.

    >>> time_cell({"time_to_target_s": 0.41, "time_to_target_low_s": 0.4}), time_cell({})
    ('410 ms [400, –]', '–')
    >>> [*map(time_cell, ({"repeats_reached": 5, "repeats": 16}, {"best_error": 4.7, "target": 4}))]
    ['in 5 of 16 runs', 'best 4.7']
    """
    time_s = number(row, "time_to_target_s")
    if math.isnan(time_s):
        if (reached := number(row, "repeats_reached")) > 0:
            return f"in {reached:.0f} of {number(row, 'repeats'):.0f} runs"
        goals = [Goal(one, number(row, "target")) for one in (ACCURACY, Metric("error"))]  # no unit
        best = (one.score_text(number(row, one.metric.best_column)) for one in goals)
        return next((f"best {one}" for one in best if one != UNKNOWN), UNKNOWN)
    ends = [number(row, f"time_to_target_{end}_s") for end in ("low", "high")]
    said = format_seconds(time_s)
    low, high = (_in_unit(end, said.rpartition(" ")[2]) for end in ends)
    return said if all(map(math.isnan, ends)) else f"{said} [{low}, {high}]"


def _in_unit(time_s: float, unit: str) -> str:
    """Three digits in that unit, or the time in another where they would not do."""
    value = time_s / SECONDS[unit]
    if math.isnan(value) or not 0.01 <= value < 10_000:
        return format_seconds(time_s)
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def _coverage(records: Sequence[Row]) -> str:
    every = (number(row, "time_to_target_coverage") for row in records)
    said = [f"{100 * one:.0f}" for one in sorted(one for one in every if not math.isnan(one))]
    return " to ".join(dict.fromkeys((said[0], said[-1]))) if said else ""


def _are_timed(records: Records) -> bool:
    """Tell whether some row's validation was measured against a target."""
    names = ("best_accuracy", "best_error", "time_to_target_s")
    return any(not math.isnan(number(row, name)) for row in records for name in names)


def _have_speed_up(records: Records) -> bool:
    return len(records) > 1 and any(not math.isnan(number(row, "speed_up")) for row in records)


def bound_name(row: Row) -> str:
    """Name what has the largest of the shares; empty where it is unknown."""
    return text(row, "bound_largest") or text(row, "bound_by")


def bound_share(row: Row) -> float:
    """The largest of the shares, which is that of `bound_name`; NaN if all are unknown."""
    shares = (number(row, f"{name}_share") for name in ("worker", "path", "link", "admission"))
    return max((share for share in shares if not math.isnan(share)), default=math.nan)


def bound_line(row: Row, longest: int = ANSWER_WIDTH) -> str:
    """Tell in a line what bounds the row, with as many nodes as fit; empty if unknown."""
    name, at, share = plain(bound_name(row)), plain(text(row, "bound_at"), 400), bound_share(row)
    lines = [f"bound by {bound_words(name, at, share, room)}" for room in (40, 28, 16)]
    return next((one for one in lines if len(one) <= longest), lines[-1]) if name else ""


def idle_line(row: Row) -> str:
    """Tell how many devices never work; empty where all do, or it is unknown.

    >>> idle_line({"workers_idle": 12, "workers": 16})
    '12 of 16 devices do nothing that takes time'
    """
    idle, workers = number(row, "workers_idle"), number(row, "workers")
    if not idle > 0:
        return ""
    some = "device does" if workers == 1 else "devices do"
    return f"{idle:.0f} of {workers:.0f} {some} nothing that takes time"


def rate_line(row: Row) -> str:
    """Why the row has no rate that it might have had; empty where nothing went wrong.

    >>> rate_line({"learning_rate": 0.1, "learning_rate_rule": "as given; it diverged at 0.8"})
    'learning rate 0.1 (as given; it diverged at 0.8)'
    """
    rule = text(row, "learning_rate_rule")
    if "diverged" not in rule and not rule.startswith("not tuned"):
        return ""
    return f"learning rate {number(row, 'learning_rate'):.3g} ({plain(rule, 120)})"


def items_of(records: Sequence[Row]) -> str:
    """Name of the items in these rows' throughput, such as "images"; empty where it is unknown."""
    found = {text(row, "items") for row in records} - {""}
    return plain(found.pop(), 24) if len(found) == 1 else ""


def per_second(records: Sequence[Row]) -> str:
    """Words for an axis of these rows' throughput.

    >>> per_second([{"items": "images"}]), per_second([{}])
    ('images per second of virtual time', 'items per second of virtual time')
    """
    return f"{items_of(records) or 'items'} per second of virtual time"


_STANDINGS = {"too few seeds": "open", "not reached": "missed", "not compared": "unranked"}


def _shown(name: str, show: Callable[[float], str]) -> Callable[[Row, Row], str]:
    """A column's value in words, whatever the first row is."""
    return lambda row, first: show(number(row, name))


_mak, _epochs = (_shown(name, format_count) for name in ("max_active_keys", "epochs_to_target"))
ANSWER: Final[tuple[Column, ...]] = (
    Column("schedule", "schedule", lambda row, first: text(row, "schedule"), 0),
    Column("max_active_keys", "in\nflight", _mak, 3),
    Column("train_per_s", "training\n{items}/s", _rate, 0),
    Column("epochs_to_target", "epochs", _epochs, 4, _are_timed),
    Column(
        "time_to_target_s", "time to target\n[{coverage} % CI]", lambda row, first: time_cell(row),
        0, _are_timed,
    ),
    Column("speed_up", "speed-\nup", _shown("speed_up", format_ratio), 2, _have_speed_up),
    Column(
        "train_per_s", "ratio", lambda row, first: format_ratio(speed_ratio(row, first)), 2,
        lambda rows: len(rows) > 1 and not _have_speed_up(rows),
    ),
    Column(
        "standing", "first\nor tie",
        lambda row, first: _STANDINGS.get(text(row, "standing"), text(row, "standing")) or UNKNOWN,
        1, lambda rows: len(rows) > 1 and any(text(row, "standing") for row in rows),
    ),
)  # fmt: skip
"""The columns of the answer, of which a table shows at most seven: there is one ratio."""


def answer_columns(records: Records, target: float | None) -> list[Column]:
    """Choose the columns that these rows need."""
    of_target = ("epochs_to_target", "time_to_target_s", "speed_up", "standing")
    ranked = [one for one in ANSWER if target is not None or one.name not in of_target]
    return [one for one in ranked if one.is_wanted(records)]


def answer_cells(table: DataFrame, target: float | None) -> list[list[str]]:
    """Headings in one line each, then a line of texts for each row."""
    records = _named(rows(table), target)
    columns = answer_columns(records, target)
    headings = [one.headed(records).replace("-\n", "-").replace("\n", " ") for one in columns]
    return [headings, *_cells(columns, records)]


def answer_titles(table: DataFrame, target: float | None) -> list[str]:
    """Return what each of these columns is, for those who point at its heading."""
    columns = answer_columns(rows(table), target)
    ratio = {"ratio": "training throughput over that of the first row"}
    return [ratio.get(one.heading, COLUMNS[one.name]) for one in columns]


def to_markdown(table: DataFrame, target: float | None, *, bold: Collection[int] = ()) -> str:
    """The answer as a pipe table; names of the rows whose places are in `bold` are bold."""
    headings, *cells = answer_cells(table, target)
    return markdown.table(headings, cells, left=("schedule",), bold=bold)


def to_rich(table: DataFrame, target: float | None, *, width: int = ANSWER_WIDTH) -> Table:
    """The answer for a terminal of `width` characters.

    Long names are wrapped; below 80 characters, columns of the highest rank are left out. Names
    are put in as text and never read as rich's markup.
    """
    records = _named(rows(table), target)
    columns = answer_columns(records, target)
    while True:
        headings, lines = [one.headed(records) for one in columns], _cells(columns, records)
        longest = max(len(line[0]) for line in [headings, *lines])
        name_width = min(longest, _NAME_WIDTH)
        excess = max(_width(_draw(headings, lines, name_width)) - width, 0)
        drawn = _draw(headings, lines, max(name_width - excess, _NAME_WIDTH_MIN))
        if _width(drawn) <= width or not any(column.rank for column in columns):
            return drawn
        least = max(columns, key=lambda column: column.rank)
        columns = [column for column in columns if column is not least]


def require_columns(names: str | None) -> list[str] | None:
    """The columns that `--columns` names; None where it was not given.

    Raises:
        UnknownNameError: there is no such column.
    """
    if names is None:
        return None
    chosen = [name.strip() for name in names.split(",")]
    chosen = list(COLUMNS) if "all" in chosen else chosen
    for name in chosen:
        if name not in COLUMNS:
            raise UnknownNameError(one_of("column", name, ["all", *COLUMNS]))
    return chosen


def column_cells(table: DataFrame, names: Sequence[str]) -> list[list[str]]:
    """Columns by their names: the rows' labels, then a line for each column."""
    records, others = labelled_rows(table, 32), [name for name in names if name != "schedule"]
    lines = [[name, *(cell_text(name, row) for row in records)] for name in others]
    return [["column", *(text(row, "schedule") for row in records)], *lines]


def columns_folded(table: DataFrame) -> list[list[str]]:
    """Tabulate all columns of which something is known, a line each, and what they are."""
    headings, *lines = column_cells(table, list(table.columns))
    known = [line for line in lines if any(cell not in ("", UNKNOWN) for cell in line[1:])]
    return [[*headings, "what it is"], *([*line, COLUMNS.get(line[0], "")] for line in known)]


def columns_to_rich(table: DataFrame, names: Sequence[str], *, width: int) -> list[Table]:
    """These columns, a row each; where they do not fit, a line each, and so many rows as fit."""
    cells = column_cells(table, names)
    headings, *lines = (list(line) for line in zip(*cells, strict=True))
    upright = _draw(["schedule", *headings[1:]], lines, _NAME_WIDTH)
    if _width(upright) <= width:
        return [upright]
    name_width = max(map(len, headings))
    parts, room = list[list[list[str]]](), 0
    for line in lines:
        needed = 2 + min(max(map(len, line)), _NAME_WIDTH)
        room -= needed
        if room < 0:
            parts.append([])
            room = width - name_width - needed
        parts[-1].append(line)
    turned = [list(zip(headings, *part, strict=True)) for part in parts]
    return [_draw(first, others, name_width, _NAME_WIDTH) for first, *others in turned]


_PERCENT = ("_share", "utilisation", "_probability", "_coverage", "accuracy")


def cell_text(name: str, row: Row) -> str:
    """A value of a row in words, by the name of its column."""
    value, said = number(row, name), text(row, name)
    if name in TEXTS:
        return plain(said, 400)
    if name.startswith("is_"):
        return {"True": "yes", "False": "no"}.get(said, UNKNOWN)
    if "_per_s" in name:
        return format_rate(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_s"):
        return format_seconds(value)
    return format_percent(value) if name.endswith(_PERCENT) else format_count(value)


_MARKS = ("min_update_interval", "replicas")


def _named(records: Records, target: float | None) -> list[Row]:
    """The rows with the target, and in their names what sets each apart but for those in flight."""
    names = marked_by([text(row, "schedule") for row in records], records, (*_MARKS, "workers"))
    named, shown = zip(records, names, strict=True), told_apart(names, 40)
    return [{**row, "schedule": shown[name], "target": target} for row, name in named]


def series(table: DataFrame, names: Sequence[str] | None = None) -> dict[str, list[Row]]:
    """The rows of each line, in the order of their instances in flight.

    A line is a schedule, and, where rows of one schedule differ in it, its update interval and
    count of replicas.

    Args:
        table: one row a schedule.
        names: the schedule of each row; the column `schedule` unless given.
    """
    records = rows(table)
    names = [text(row, "schedule") for row in records] if names is None else names
    names = marked_by(names, records, _MARKS)
    lines: dict[str, list[Row]] = {name: [] for name in names}
    for name, row in zip(names, records, strict=True):
        lines[name].append(row)
    return {
        name: sorted(own, key=lambda row: number(row, "max_active_keys"))
        for name, own in lines.items()
    }


def notes(table: DataFrame) -> list[str]:
    """Lines below the table: what bounds each row, then what did not go as asked.

    Rows of which the same is to be said share a line. Their best values are left out: they stand
    in the table where there is no time.
    """
    records = labelled_rows(table, 32)
    found: dict[str, list[str]] = {}
    names = [text(row, "schedule") for row in records]
    said = [[bound_line(row, ANSWER_WIDTH - len(text(row, "schedule")) - 2)] for row in records]
    for lines in (said, map(_ills, records)):
        for name, of in zip(names, lines, strict=True):
            for one in filter(None, of):
                found.setdefault(plain(one, 400), []).append(name)
    return [f"{_who(names, len(records))}: {said}" for said, names in found.items()]


_NAMED_MAX = 2  # chosen: what fits a line beside what is said of them


def _who(names: Sequence[str], count: int) -> str:
    if len(names) == count > 1:
        return "all rows"
    return listed(names) if len(names) <= _NAMED_MAX else f"{len(names)} rows"


def _ills(row: Row) -> list[str]:
    """Idle devices, a rate that failed, and the row's note in parts; empty ones among them."""
    kept = [one for one in parts_of_note(text(row, "note")) if not one.startswith("best ")]
    return [idle_line(row), rate_line(row), *kept]


def to_csv(table: DataFrame) -> str:
    """Every column and digit, SI units as in the column names, unknown as an empty field.

    A text that a spreadsheet would take for a formula has an apostrophe before it; see
    `ampsim.text`.
    """
    written = table.copy()
    for name in table.columns:
        cells = [to_cell(cell) if isinstance(cell, str) else cell for cell in written[name]]
        if any(isinstance(cell, str) for cell in cells):
            written[name] = Series(cells, index=table.index, dtype=object)
    return str(written.to_csv(index=False, lineterminator="\n"))


def _cells(columns: Sequence[Column], records: Records) -> list[list[str]]:
    return [[column.show(row, records[0]) for column in columns] for row in records]


def _draw(
    headings: Sequence[str],
    lines: Sequence[Sequence[str]],
    first_width: int,
    width_max: int | None = None,
) -> Table:
    """The table with these cells; the first column, and all at `width_max`, are wrapped."""
    drawn = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for place, heading in enumerate(headings):
        drawn.add_column(
            Text(heading), justify="right" if place else "left", overflow="fold",
            no_wrap=bool(place) and width_max is None, vertical="bottom",
            max_width=width_max if place else first_width,
        )  # fmt: skip
    for line in lines:
        drawn.add_row(*(Text(cell) for cell in line))
    return drawn


def _width(drawn: Table) -> int:
    return Console(width=_MEASURE_WIDTH).measure(drawn).maximum
