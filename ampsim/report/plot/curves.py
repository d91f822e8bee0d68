"""Curves of a table: one for each value of a column, in the look of all figures.

And predicted over published throughput, both on logarithmic axes, with the band of ten per cent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from ampsim.report.style import (
    FAINT_INK,
    IDLE,
    INK,
    LINES,
    log_axis,
    marker_pt,
    new_axes,
    number_ticks,
    styled,
    tick_words,
)
from ampsim.report.words import plain, told_apart
from ampsim.units import format_rate

_LARGE: Final = 1e5
"""From here on ticks have a prefix, such as 200M (chosen)."""


@dataclass(frozen=True, slots=True)
class Curves:
    """A figure of a table: one curve for each value of a column.

    Args:
        name: of the figure's file, without its suffix.
        title: its heading.
        table: name of the table.
        x, y, by: columns of it; `by` tells the curves apart.
        x_label, y_label: of the axes.
        is_log_x, is_log_y: whether an axis is logarithmic.
    """

    name: str
    title: str
    table: str
    x: str
    y: str
    by: str
    x_label: str
    y_label: str
    is_log_x: bool = False
    is_log_y: bool = False


@styled
def draw_curves(table: Any, drawn: Curves) -> Any:
    """The figure of the columns that `drawn` names."""
    x, y, by = drawn.x, drawn.y, drawn.by
    figure, axes = new_axes(7.2, 4.0)
    values: Sequence[Any] = list(dict.fromkeys(table[by]))
    said = [value if isinstance(value, str) else _entry(by, value) for value in values]
    for index, (value, name) in enumerate(zip(values, said, strict=True)):
        rows: Any = table.loc[table[by] == value]
        line = LINES[index % len(LINES)]
        axes.plot(
            rows[x], rows[y], label=told_apart(said, 40)[name], linewidth=1.4,
            markersize=marker_pt(index) * 0.7, **line.drawn,
        )  # fmt: skip
    sides = (("x", x, drawn.is_log_x, drawn.x_label), ("y", y, drawn.is_log_y, drawn.y_label))
    for letter, column, is_logarithmic, named in sides:
        of_seconds = "(s)" in named
        if is_logarithmic:
            log_axis(axes, letter, of_seconds=of_seconds)
        elif float(max(table[column])) >= _LARGE:
            getattr(axes, f"{letter}axis").set_major_formatter(number_ticks(of_seconds=of_seconds))
        elif (table[column] % 1 == 0).all():
            getattr(axes, f"{letter}axis").set_major_locator(MaxNLocator(integer=True))
        axes.set(**{f"{letter}label": named.removesuffix(" (s)") if is_logarithmic else named})
    axes.set_title(plain(drawn.title, 90))
    axes.grid(visible=True)
    figure.legend(loc="outside right upper")
    return figure


def _entry(column: str, value: float) -> str:
    """A number of a column in words: `threads` as 2 threads, `dispatch_us` as dispatch 5.7 µs."""
    name, _, unit = column.rpartition("_")
    if unit in ("us", "ms", "s"):
        return f"{name} {value:g} {unit.replace('u', 'µ')}"
    return f"{value:g} {column.replace('_', ' ')}"


BAND: Final = 0.1
_WIDTH_IN, _HEIGHT_IN = 7.0, 5.6


@dataclass(frozen=True, slots=True)
class Series:
    """Points that are drawn alike: items per second as published and as simulated."""

    label: str
    published: Sequence[float]
    predicted: Sequence[float]
    is_filled: bool


@styled
def predicted(series: Sequence[Series]) -> Figure:
    """A point for each number; on the diagonal it is met, within the band to ten per cent."""
    values = [value for one in series for value in (*one.published, *one.predicted)]
    ends = np.array([min(values) / 1.5, max(values) * 1.5])
    figure, axes = new_axes(_WIDTH_IN, _HEIGHT_IN)
    label = f"within {BAND:.0%}"
    axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=IDLE, label=label)
    axes.plot(ends, ends, color=FAINT_INK, linewidth=0.8)
    for index, one in enumerate(series):
        style = LINES[index % len(LINES)]
        axes.plot(
            one.published, one.predicted, linestyle="none", marker=style.marker, markersize=6,
            markeredgecolor=style.colour, label=plain(one.label, 48),
            markerfacecolor=style.colour if one.is_filled else "white",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=tuple(ends))
    axes.set_xlabel("published (items/s)", color=INK)
    axes.set_ylabel("simulated (items/s)", color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        tick_words(axis, format_rate)
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.legend(loc="upper left", fontsize=8)
    return figure
