"""A forecast's table for a page (Markdown), for a program (CSV) and for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pandas import Series
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ampsim.csv_text import to_cell
from ampsim.files import write_text
from ampsim.report import markdown
from ampsim.report.columns import (
    COLUMNS,
    Column,
    bound_cell,
    bound_line,
    idle_line,
    rate_line,
)
from ampsim.report.frames import DataFrame, Row, labelled_rows, rows, text
from ampsim.report.words import plain

_MEASURE_WIDTH = 10_000
_WORDS = ("schedule", "learning rate", "bound by", "note")


def to_markdown(table: DataFrame, *, has_target: bool = True, bold: Collection[int] = ()) -> str:
    """A pipe table of all columns that these rows need.

    Learning rates that are not as given, what bounds a row, and notes come last. The names of the
    rows whose places are in `bold` are bold.
    """
    records = rows(table)
    headings, *cells = to_cells(table, has_target=has_target)
    for heading, words in (
        ("learning rate", rate_line),
        ("bound by", bound_cell),
        ("note", _note),
    ):
        if any(map(words, records)):
            headings.append(heading)
            cells = [[*line, words(row)] for line, row in zip(cells, records, strict=True)]
    return markdown.table(headings, cells, left=_WORDS, bold=bold)


def to_cells(table: DataFrame, *, has_target: bool = True) -> list[list[str]]:
    """Headings, then a line of texts for each row, of all columns that these rows need."""
    records = rows(table)
    columns = _wanted(records, has_target)
    headings = [column.headed(records).replace("\n", " ") for column in columns]
    return [headings, *_cells(columns, records)]


def notes(table: DataFrame) -> list[str]:
    """Lines below the table: learning rates, what bounds each row, idle devices, and notes."""
    return [
        f"{plain(text(row, 'schedule'), 32)}: {plain(words(row), 400)}"
        for words in (rate_line, bound_line, idle_line, _note)
        for row in labelled_rows(table)
        if words(row)
    ]


def to_csv(table: DataFrame) -> str:
    """Every column and digit, SI units as in the column names, unknown as an empty field.

    A text that a spreadsheet would take for a formula has an apostrophe before it; see
    `ampsim.csv_text`.
    """
    untyped: Any = table.copy()
    for name in table.columns:
        cells = [to_cell(cell) if isinstance(cell, str) else cell for cell in untyped[name]]
        if any(isinstance(cell, str) for cell in cells):
            untyped[name] = Series(cells, index=table.index, dtype=object)
    return str(untyped.to_csv(index=False, lineterminator="\n"))


def write_csv(table: DataFrame | None, place: Path) -> list[Path]:
    """Write a table as `to_csv` gives it; give its place in a list, which is empty without one.

    Raises:
        OutputError: it cannot be written.
    """
    if table is None:
        return []
    write_text(place, to_csv(table))
    return [place]


def to_rich(table: DataFrame, *, width: int = 80, has_target: bool = True) -> Table:
    """A table for a terminal of `width` characters; where it is wider, columns are left out.

    Columns of the highest rank are left out first. Names are put in as text and never read as
    rich's markup. Below stand what bounds a row, notes, and the names of columns left out.
    """
    records = rows(table)
    columns = wanted = _wanted(records, has_target)
    drawn = _draw(columns, records)
    while _width(drawn) > width and any(column.rank for column in columns):
        least = max(columns, key=lambda column: column.rank)
        columns = [column for column in columns if column is not least]
        drawn = _draw(columns, records)
    said = notes(table)
    if left_out := [column.name for column in wanted if column not in columns]:
        said.append(f"no room for: {', '.join(left_out)}")
    drawn.caption = Text("\n".join(said)) if said else None
    return drawn


def _wanted(records: Sequence[Row], has_target: bool) -> list[Column]:
    columns = [column for column in COLUMNS if has_target or not column.of_target]
    return [column for column in columns if column.is_wanted(records)]


def _cells(columns: Sequence[Column], records: Sequence[Row]) -> list[list[str]]:
    return [[column.show(row, records[0]) for column in columns] for row in records]


def _draw(columns: Sequence[Column], records: Sequence[Row]) -> Table:
    """The table with these columns."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    drawn.caption_justify = "left"
    for index, column in enumerate(columns):
        justify = "right" if index else "left"
        drawn.add_column(
            Text(column.headed(records)),
            justify=justify,
            no_wrap=True,
            overflow="fold",
            vertical="bottom",
        )
    for line in _cells(columns, records):
        drawn.add_row(*(Text(cell) for cell in line))
    return drawn


def _note(row: Row) -> str:
    return text(row, "note")


def _width(drawn: Table) -> int:
    """Characters that the widest line of the table's body takes."""
    console = Console(width=_MEASURE_WIDTH)
    return console.measure(drawn).maximum
