"""Throughput over the instances in flight, a line for each schedule (paper, Table 2, Figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ampsim.report.axis import Scale, rate_scale
from ampsim.report.columns import format_count, per_second
from ampsim.report.frames import DataFrame, Row, floats, number, rows
from ampsim.report.plot.series import series
from ampsim.report.style import Axes, LineStyle, beside, line_styles, marker_pt, new_figure, styled
from ampsim.report.words import plain

_WIDTH_IN = 7.0
_TICKS = 12  # chosen: more numbers beside each other cannot be read


def has_lines(table: DataFrame, names: Sequence[str] | None = None) -> bool:
    """Whether some schedule has rows with different numbers of instances in flight."""
    return any(len(_points(own)) > 1 for own in series(table, names).values())


@styled
def throughput_over_mak(table: DataFrame, names: Sequence[str] | None = None) -> Figure:
    """`train_per_s` over `max_active_keys`; on the right, how many times the first row's it is.

    Args:
        table: one row a schedule; unknown throughputs are left out.
        names: the schedule of each row; the column `schedule` unless given.
    """
    rates = floats(table, "train_per_s")
    highest = float(np.nanmax(np.append(rates, 0.0)))
    scale = rate_scale(highest)
    lines = {name: _points(own) for name, own in series(table, names).items()}
    figure = new_figure(_WIDTH_IN, 3.9 + 0.2 * (len(lines) // 2))
    axes = figure.add_subplot(1, 1, 1)
    for index, (name, style) in enumerate(line_styles(lines).items()):
        _draw(axes, plain(name, 40), lines[name], (style, scale, marker_pt(index)))
    _limit(axes, [mak for own in lines.values() for mak, _rate in own])
    axes.set_ylim(0.0, 1.08 * highest * scale.factor or 1.0)
    axes.set_xlabel("instances in flight, at most (max_active_keys)")
    axes.set_ylabel(scale.label(f"training {per_second(rows(table))}"))
    axes.grid(visible=True)
    first = float(rates[0]) * scale.factor if len(rates) else 0.0
    if first > 0:
        _speed_up(axes, first)
    figure.legend(loc="outside upper left", ncols=beside(2))
    return figure


def _points(own: Sequence[Row]) -> list[tuple[float, float]]:
    """Instances in flight and rate of each row whose rate is known."""
    found = [(number(row, "max_active_keys"), number(row, "train_per_s")) for row in own]
    return [point for point in found if np.isfinite(point).all()]


def _draw(
    axes: Axes, name: str, points: list[tuple[float, float]], look: tuple[LineStyle, Scale, float]
) -> None:
    style, scale, size_pt = look
    axes.plot(
        [mak for mak, _rate in points], [rate * scale.factor for _mak, rate in points],
        **style.drawn, markersize=size_pt, linewidth=1.8, label=name,
    )  # fmt: skip


def _limit(axes: Axes, maks: list[float]) -> None:
    """Powers of two at equal distances, a tick where there is a point."""
    axes.set_xscale("log", base=2)
    ticks = sorted(set(maks))
    ticks = ticks[:: -(-len(ticks) // _TICKS)] if ticks else [1.0]
    axes.set_xlim(min(maks, default=1.0) / 1.25, max(maks, default=2.0) * 1.25)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_whole))


def _whole(value: float, _place: Any) -> str:
    return format_count(value)


def _speed_up(axes: Axes, first: float) -> None:
    """A second axis on the right: the same rates as multiples of the first row's."""

    def ratio(rate: Any) -> Any:
        return rate / first

    def rate(ratio: Any) -> Any:
        return ratio * first

    right = axes.secondary_yaxis("right", functions=(ratio, rate))
    right.spines["right"].set_visible(True)
    right.set_ylabel("times the first row")
    right.yaxis.set_major_formatter(FuncFormatter(_times))


def _times(ratio: float, _place: Any) -> str:
    return f"{ratio:.3g}×"
