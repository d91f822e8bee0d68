"""Charts of `whatif`: bars of what is half and twice as fast, and curves over the factor.

Source of the first: Howard, "Decision analysis: practice and promise", 1988, the tornado diagram:
bars from low to high, the longest on top. Of the second: Curtsinger and Berger, "Coz", 2015.
"""

from __future__ import annotations

import math
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ampsim.report.frames import DataFrame
from ampsim.report.style import (
    FAINT_INK,
    INK,
    LINES,
    Axes,
    hatched,
    legend_on_top,
    log_axis,
    marker_pt,
    name_rows,
    new_figure,
    styled,
)
from ampsim.report.words import plain, told_apart

_WIDTH_IN: Final = 7.5
_BAR: Final = 0.62
_BARS: Final = {  # words, colour, hatch
    0.5: ("half as fast", "#D55E00", ""),
    2.0: ("twice as fast", "#0072B2", "////"),
}
_LEFT_OUT: Final = ("now", "everything")
ROWS_MAX: Final = 16
"""Bars of a panel at most (chosen: more cannot be read); those left out are the shortest."""


def _panels(table: DataFrame, each_in: float) -> tuple[Any, list[tuple[Axes, str, Any]]]:
    """A figure with a panel for each schedule of a table, its name, and its rows."""
    groups = list(table.groupby("schedule", sort=False))
    figure = new_figure(_WIDTH_IN, 0.9 + each_in * max(1, len(groups)))
    found: list[tuple[Axes, str, Any]] = []
    for place, (name, own) in enumerate(groups):
        axes = figure.add_subplot(len(groups), 1, place + 1)
        axes.set_title(told_apart(table["schedule"], 60)[str(name)])
        axes.grid(visible=True)
        found.append((axes, str(name), own))
    return figure, found


@styled
def tornado(table: DataFrame) -> Figure:
    """For each schedule a panel: how much longer the run is, in percent, with each thing changed.

    Bars are those of half and of twice the speed; a mark is where the thing takes no time at all.

    Args:
        table: that of `ampsim.whatif`.
    """
    longest = max(len(_bars_of(own)) for _name, own in table.groupby("schedule", sort=False))
    figure, panels = _panels(table, 0.6 + 0.27 * longest)
    for axes, _name, own in panels:
        _draw(axes, _bars_of(own))
    is_timed = table["time_to_target_s"].isna().all()
    what = "of an epoch" if is_timed else "to the target"
    panels[-1][0].set_xlabel(f"change of the time {what} (%)")
    handles: list[Any] = [
        Patch(facecolor="white" if hatch else colour, edgecolor=colour, hatch=hatch, label=words)
        for words, colour, hatch in _BARS.values()
    ]
    handles += panels[0][0].plot([], [], "|", color=INK, markersize=9, label="no time")
    figure.legend(handles=handles, loc="outside upper left", ncols=3)
    return figure


def _bars_of(own: Any) -> list[tuple[str, dict[float, float]]]:
    """Things and their changes by factor, the largest first."""
    found: dict[str, dict[float, float]] = {}
    for record in own.to_dict("records"):
        if record["what"] not in _LEFT_OUT and not math.isnan(record["change"]):
            found.setdefault(str(record["what"]), {})[record["factor"]] = record["change"]
    order = sorted(found.items(), key=lambda one: -_extent(one[1]))
    return order[:ROWS_MAX]


def _extent(changes: dict[float, float]) -> float:
    known = [min(abs(changes[factor]), 10.0) for factor in _BARS if factor in changes]
    return max(known, default=0.0)


def _draw(axes: Axes, bars: list[tuple[str, dict[float, float]]]) -> None:
    for place, (_what, changes) in enumerate(bars):
        for factor, (_words, colour, hatch) in _BARS.items():
            if factor in changes:
                axes.barh(place, 100 * changes[factor], height=_BAR, **hatched(colour, hatch))
        if math.inf in changes:
            length, look = 100 * changes[math.inf], {"markersize": 13, "markeredgewidth": 1.6}
            axes.plot([length], [place], "|", color=INK, **look)
    name_rows(axes, [what for what, _changes in bars])
    axes.axvline(0.0, color=FAINT_INK, linewidth=0.8)
    axes.set_xlim(right=min(axes.get_xlim()[1], 1050.0))  # longer bars run beyond the edge
    axes.grid(visible=False, axis="y")


@styled
def speed_up_curves(curves: DataFrame) -> Figure:
    """For each schedule a panel: the change of an epoch's time over the factor of what is faster.

    The last point, at the right edge, is where the thing takes no time at all.

    Args:
        curves: those of `ampsim.whatif`.
    """
    figure, panels = _panels(curves, 2.6)
    factors = sorted({float(one) for one in curves["factor"]})
    places = {factor: place for place, factor in enumerate(factors)}
    for axes, _name, own in panels:
        for line, (what, points) in enumerate(own.groupby("what", sort=False)):
            axes.plot(
                [places[float(one)] for one in points["factor"]], 100 * points["change"],
                **LINES[line + 1].drawn, markersize=marker_pt(line) * 0.7, linewidth=1.4,
                label=told_apart(own["what"], 32)[str(what)],
            )  # fmt: skip
        axes.set_xticks(
            range(len(factors)),
            ["no time" if math.isinf(one) else f"{one:g}×" for one in factors],
        )
        axes.set_ylabel("change of an epoch (%)")
        axes.legend(loc="upper right")
    panels[-1][0].set_xlabel("speed of the thing")
    return figure


@styled
def both_sides(curve: DataFrame, key: str, until: str, *, is_log: bool) -> Figure:
    """For each schedule of a condition a panel: its two sides over what varies, a point a run.

    Args:
        curve: that of `ampsim.solve`.
        key: what varies.
        until: the condition.
        is_log: whether it varies in the logarithm.
    """
    figure, panels = _panels(curve, 2.8)
    for axes, name, own in panels:
        axes.set_title(plain(f"{name}: {until}", 90))
        for line, side in enumerate(("left", "right")):
            known = own[own[side] < math.inf]
            points = known.groupby("value")[side].median()
            drawn = LINES[line + 1]
            axes.plot(
                points.index, points, color=drawn.colour, linestyle=drawn.dash, linewidth=1.4,
                label=f"{side} side, median",
            )  # fmt: skip
            axes.plot(
                known["value"], known[side], linestyle="", marker=drawn.marker, markersize=3.5,
                color=drawn.colour, alpha=0.6,
            )  # fmt: skip
        sides = own[["left", "right"]]
        if not (sides < math.inf).any(axis=None):  # no number, for which a logarithm asks
            axes.set(xticks=(), yticks=())
            said = "no run reaches the target at any of these values"
            axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center")
            continue
        if is_log:
            log_axis(axes, "x", of_seconds=key.endswith("_s") and not key.endswith("per_s"))
        if (sides > 0).all(axis=None):
            log_axis(axes, "y")
        axes.set_ylabel("value of a side")
    panels[-1][0].set_xlabel(plain(key, 60))
    legend_on_top(figure, figure.axes[0], ["left side, median", "right side, median"], 2)
    return figure
