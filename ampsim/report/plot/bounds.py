"""Bounds of each row: shares of busiest worker, critical path, busiest link and admission."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from ampsim.report.frames import DataFrame, Row, number, row_labels, rows, text
from ampsim.report.style import (
    FAINT_INK,
    LINES,
    Axes,
    beside,
    legend_on_top,
    name_rows,
    new_figure,
    styled,
)
from ampsim.report.table import bound_name, bound_share
from ampsim.report.words import plain
from ampsim.study.bound_words import BOUND_FROM, named
from ampsim.units import UNKNOWN, format_percent

_WIDTH_IN = 8.0
_BAR = 0.2  # chosen: height of a bar where rows are 1 apart, four of them a row
_SHARES = {  # column, words, hatch
    "worker_share": ("busiest worker is busy", ""),
    "path_share": ("critical path", "////"),
    "link_share": ("busiest link is occupied", "...."),
    "admission_share": ("admission limit holds up", "xxxx"),
}
_COLOURS = (LINES[1].colour, LINES[2].colour, LINES[3].colour, LINES[6].colour)


def has_bounds(table: DataFrame) -> bool:
    """Whether the bound of some row is known."""
    return any(bound_name(row) for row in rows(table))


@styled
def bounds(table: DataFrame) -> Figure:
    """Four bars a row, shares of the time of its first run, and the name of the largest."""
    names, records = row_labels(table), rows(table)
    figure = new_figure(_WIDTH_IN, 1.3 + 0.85 * max(1, len(records)))
    axes = figure.add_subplot(1, 1, 1)
    for place, row in enumerate(records):
        _draw(axes, place, row)
    name_rows(axes, names)
    axes.set_xlim(0.0, 100.0)
    axes.set_xlabel("share of the run's virtual time (%)")
    axes.grid(visible=True, axis="x")
    if records:
        legend_on_top(figure, axes, [words for words, _hatch in _SHARES.values()], beside(2))
    return figure


def _draw(axes: Axes, place: int, row: Row) -> None:
    largest = bound_share(row)
    for index, (column, (words, hatch)) in enumerate(_SHARES.items()):
        share = number(row, column)
        y = place + (index - 1.5) * _BAR
        is_largest = share == largest
        is_bound = is_largest and share >= BOUND_FROM
        length = 0.0 if math.isnan(share) else 100.0 * share
        axes.barh(
            y, length, height=_BAR * 0.9, facecolor=_COLOURS[index] if not hatch else "white",
            edgecolor=_COLOURS[index], hatch=hatch, linewidth=0.8, label=words,
        )  # fmt: skip
        said = UNKNOWN if math.isnan(share) else format_percent(share)
        is_path = column == "path_share"  # whose nodes would not fit beside a bar
        at = "" if is_path else plain(text(row, "bound_at"), 400)
        part = named(plain(bound_name(row), 32), at)
        said += f"  {part}" if is_largest else ""
        axes.annotate(
            said, (length, y), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=7.5, fontweight="bold" if is_bound else "normal",
            color="#000000" if is_bound else FAINT_INK, annotation_clip=False,
        )  # fmt: skip
