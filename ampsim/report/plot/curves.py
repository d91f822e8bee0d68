"""Curves of a table: one for each value of a column, in the look of all figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from matplotlib.ticker import NullFormatter

from ampsim.report.style import LINES, marker_pt, new_figure, number_ticks, styled
from ampsim.report.words import plain

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
    figure = new_figure(7.2, 4.0)
    axes: Any = figure.add_subplot()
    values: Sequence[Any] = list(dict.fromkeys(table[by]))
    for index, value in enumerate(values):
        rows: Any = table.loc[table[by] == value]
        line = LINES[index % len(LINES)]
        label = plain(value if isinstance(value, str) else f"{by.replace('_', ' ')} {value:g}", 40)
        axes.plot(
            rows[x], rows[y], label=label, linewidth=1.4, markersize=marker_pt(index) * 0.7,
            **line.drawn,
        )  # fmt: skip
    sides = (("x", x, drawn.is_log_x, drawn.x_label), ("y", y, drawn.is_log_y, drawn.y_label))
    for letter, column, is_logarithmic, named in sides:
        axis: Any = getattr(axes, f"{letter}axis")
        if is_logarithmic:
            getattr(axes, f"set_{letter}scale")("log")
            axis.set_minor_formatter(NullFormatter())
        if is_logarithmic or float(max(table[column])) >= _LARGE:
            axis.set_major_formatter(number_ticks(of_seconds="(s)" in named))
    axes.set_xlabel(drawn.x_label)
    axes.set_ylabel(drawn.y_label)
    axes.set_title(plain(drawn.title, 90))
    axes.grid(visible=True)
    figure.legend(loc="outside right upper")
    return figure
