"""Curves of a table: one for each value of a column, in the look of all figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.ticker import EngFormatter, NullFormatter

from ampsim.report.style import LINES, marker_pt, new_figure, styled
from ampsim.report.words import plain

_LARGE: Final = 1e5
"""From here on ticks have a prefix, such as 200M (chosen)."""


@styled
def curves(table: Any, drawn: Any) -> Any:
    """The figure of the columns that `drawn` names, as `ampsim.recipes.programs.Curves`."""
    (x, y, by), (title, x_label, y_label) = drawn.columns, drawn.words
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
    for letter, column, is_logarithmic in zip("xy", (x, y), drawn.are_logarithmic, strict=True):
        axis: Any = getattr(axes, f"{letter}axis")
        if is_logarithmic:
            getattr(axes, f"set_{letter}scale")("log")
            axis.set_minor_formatter(NullFormatter())
        if is_logarithmic or float(max(table[column])) >= _LARGE:
            axis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(plain(title, 90))
    axes.grid(visible=True)
    figure.legend(loc="outside right upper")
    return figure
