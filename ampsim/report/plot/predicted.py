"""Predicted over published throughput, both on logarithmic axes, with the band of ten per cent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ampsim.report.style import FAINT_INK, IDLE, INK, LINES, new_figure, styled
from ampsim.report.words import plain
from ampsim.units import format_rate

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
    figure = new_figure(_WIDTH_IN, _HEIGHT_IN)
    axes = figure.add_subplot(1, 1, 1)
    axes.fill_between(
        ends, ends * (1 - BAND), ends * (1 + BAND), color=IDLE, label=f"within {BAND:.0%}"
    )
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
        axis.set_major_formatter(FuncFormatter(_tick))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.legend(loc="upper left", fontsize=8)
    return figure


def _tick(value: float, _place: int | None) -> str:
    return format_rate(value)
