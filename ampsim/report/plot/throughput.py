"""Throughput of each row, in bars and over instances in flight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ampsim.report.frames import DataFrame, Floats, Row, floats, number, row_labels, rows
from ampsim.report.style import (
    FAINT_INK,
    Axes,
    beside,
    line_styles,
    marker_pt,
    name_rows,
    new_figure,
    rate_scale,
    styled,
)
from ampsim.report.table import format_count, format_ratio, per_second, series
from ampsim.report.words import plain
from ampsim.units import UNKNOWN, format_rate

_WIDTH_IN = 8.0
_BAR = 0.38  # chosen: height of a bar where rows are 1 apart
_ROOM = 1.22  # chosen: the axis ends this far beyond the longest bar, for the value beside it


@styled
def throughput(table: DataFrame) -> Figure:
    """Bars of `train_per_s` (full) and `valid_per_s` (hatched) per row, with their values.

    Beside each training bar stands its ratio to the first row's. An unknown rate is a dash and has
    no bar. Where no row has a validation throughput, there is one bar for each row.
    """
    names = row_labels(table)
    train, valid = floats(table, "train_per_s"), floats(table, "valid_per_s")
    highest = float(np.nanmax(np.concatenate([train, valid, [0.0]])))
    scale = rate_scale(highest)
    styles = line_styles(names)
    colours = [styles[name].colour for name in names]
    figure = new_figure(_WIDTH_IN, 1.15 + 0.62 * max(1, len(names)))
    axes = figure.add_subplot(1, 1, 1)
    row: Floats = np.arange(len(names), dtype=np.float64)
    validates = not bool(np.isnan(valid).all())
    shift = np.float64(_BAR / 2 if validates else 0.0)
    _bars(axes, row - shift, train * scale.factor, colours, hatch="")
    _values(axes, row - shift, train, scale.factor, with_ratio=True)
    if validates:
        _bars(axes, row + shift, valid * scale.factor, colours, hatch="////")
        _values(axes, row + shift, valid, scale.factor, with_ratio=False)
        handles = [
            Patch(facecolor=FAINT_INK, edgecolor=FAINT_INK, label="training"),
            Patch(facecolor="white", edgecolor=FAINT_INK, hatch="////", label="validation"),
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=beside(2))
    name_rows(axes, names, ends=0.6)
    axes.set_xlim(0.0, highest * scale.factor * _ROOM if highest > 0 else 1.0)
    what = "" if validates else "training "
    axes.set_xlabel(f"{what}{scale.label(per_second(rows(table)))}")
    axes.grid(visible=True, axis="x")
    return figure


def _bars(axes: Axes, place: Floats, length: Floats, colours: list[str], *, hatch: str) -> None:
    known = np.nan_to_num(length)
    fills = ["white"] * len(colours) if hatch else colours
    axes.barh(place, known, height=_BAR, color=fills, edgecolor=colours, hatch=hatch, linewidth=0.8)


def _values(axes: Axes, place: Floats, rate: Floats, factor: float, *, with_ratio: bool) -> None:
    first = float(rate[0]) if len(rate) else math.nan
    for y, value in zip(place.tolist(), rate.tolist(), strict=True):
        known = not math.isnan(value)
        text = format_rate(value) if known else UNKNOWN
        if with_ratio and known and first > 0 and y != place[0]:
            text += f"  ({format_ratio(value / first)})"
        axes.annotate(
            text, (value * factor if known else 0.0, y), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip


_LINES_WIDTH_IN = 7.0
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
    figure = new_figure(_LINES_WIDTH_IN, 3.9 + 0.2 * (len(lines) // 2))
    axes = figure.add_subplot(1, 1, 1)
    for index, (name, style) in enumerate(line_styles(lines).items()):
        axes.plot(
            [mak for mak, _rate in lines[name]],
            [rate * scale.factor for _mak, rate in lines[name]],
            **style.drawn, markersize=marker_pt(index), linewidth=1.8, label=plain(name, 40),
        )  # fmt: skip
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
    right.yaxis.set_major_formatter("{x:.3g}×")
