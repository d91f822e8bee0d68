"""Curves of a table: one for each value of a column, in the look of all figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ampsim.report.frames import DataFrame
from ampsim.report.style import LINES, marker_pt, new_figure, styled
from ampsim.report.words import plain


class Curves(Protocol):
    """Which columns a figure shows, and how."""

    @property
    def columns(self) -> tuple[str, str, str]:
        """Those of x and y, and the one that tells curves apart."""
        ...

    @property
    def words(self) -> tuple[str, str, str]:
        """Title, and labels of x and y."""
        ...

    @property
    def are_logarithmic(self) -> tuple[bool, bool]:
        """Whether x is, and y."""
        ...


@styled
def curves(table: DataFrame, drawn: Curves) -> Any:
    """The figure."""
    (x, y, by), (title, x_label, y_label) = drawn.columns, drawn.words
    figure = new_figure(7.2, 4.0)
    axes: Any = figure.add_subplot()
    values: Sequence[Any] = list(dict.fromkeys(table[by]))
    for index, value in enumerate(values):
        rows = table[table[by] == value]
        line = LINES[index % len(LINES)]
        label = plain(value if isinstance(value, str) else f"{by.replace('_', ' ')} {value:g}", 40)
        axes.plot(
            rows[x], rows[y], label=label, linewidth=1.4, markersize=marker_pt(index) * 0.7,
            **line.drawn,
        )  # fmt: skip
    if drawn.are_logarithmic[0]:
        axes.set_xscale("log")
    if drawn.are_logarithmic[1]:
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(plain(title, 90))
    axes.grid(visible=True)
    figure.legend(loc="outside right upper")
    return figure
