"""Convergence: validation accuracy, or error, over virtual time and epochs (paper, Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from ampsim.metric import ACCURACY, Goal, Metric
from ampsim.report.frames import DataFrame, Floats, floats
from ampsim.report.style import (
    FAINT_INK,
    INK,
    Axes,
    LineStyle,
    Scale,
    epoch_ticks,
    line_styles,
    new_figure,
    styled,
    tick_words,
    time_scale,
)
from ampsim.report.words import plain, told_apart
from ampsim.runs.rows import median_interval
from ampsim.units import format_count, format_seconds

_WIDTH_IN = 10.0
_BANDS_MAX = 6  # chosen: of more schedules, bands and thin lines hide one another
_LIFT = 0.02  # chosen: room above and below the curves, as a share of their range


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: its epochs' numbers, ends in virtual time and what validation measured."""

    epoch: Floats
    time_s: Floats
    score: Floats


def has_scores(
    epochs_by_schedule: Mapping[str, Sequence[DataFrame]], metric: Metric = ACCURACY
) -> bool:
    """Tell whether validation measured anything in any run; in mode sleep it does not."""
    runs = [epochs for repeats in epochs_by_schedule.values() for epochs in repeats]
    return any(bool(np.isfinite(floats(epochs, metric.kind)).any()) for epochs in runs)


def is_blind(epochs: Sequence[DataFrame], metric: Metric) -> bool:
    """Tell whether runs went through epochs and measured nothing, as those in mode sleep do."""
    return any(len(run) for run in epochs) and not has_scores({"": epochs}, metric)


@styled
def convergence(
    epochs_by_schedule: Mapping[str, Sequence[DataFrame]],
    *,
    target: float | None = None,
    metric: Metric = ACCURACY,
) -> Figure:
    """Draw validation over virtual time (left) and epochs (right), a colour per schedule.

    Of several repeats the line is a run that was really made: the one whose time to the target
    is the lower median, runs that never reached it counting last. A band reaches from the lowest
    to the highest of all repeats, at each moment of those that are still running; thin lines are
    the others. Of more than six schedules only the lines are drawn.

    Args:
        epochs_by_schedule: for each schedule the epochs of its repeats.
        target: value of the metric at which training was to end, or None.
        metric: what was measured.
    """
    goal = Goal(metric, target)
    columns = ("epoch", "time_s", metric.kind)
    curves = {
        name: [Curve(*(floats(run, column) for column in columns)) for run in runs]
        for name, runs in epochs_by_schedule.items()
    }
    everything = [curve for runs in curves.values() for curve in runs]
    last_s = max((float(np.max(curve.time_s, initial=0.0)) for curve in everything), default=0.0)
    scale = time_scale(0.0, last_s)
    figure = new_figure(_WIDTH_IN, 4.1 + 0.2 * len(curves))
    panels = by_time, by_epoch = figure.subplots(1, 2, sharey=True)
    is_banded = len(curves) <= _BANDS_MAX
    shown = told_apart(curves)
    handles = [
        _draw_schedule(panels, shown[name], curves[name], (style, scale, goal, is_banded))
        for name, style in line_styles(curves).items()
    ]
    by_time.set_xlabel(scale.label("virtual time"))
    unit = "%" if metric.is_rising else plain(metric.unit, 40)
    by_time.set_ylabel(f"validation {metric.kind}{unit and f' ({unit})'}")
    by_epoch.set_xlabel("epoch")
    are_whole = all(not (curve.epoch % 1).any() for curve in everything)
    by_epoch.xaxis.set_major_locator(epoch_ticks(by_epoch.dataLim.x1, are_whole=are_whole))
    limits = _range([line.get_ydata() for line in by_time.get_lines()], goal)
    for axes in (by_time, by_epoch):
        _set_up(axes, limits, goal)
    figure.legend(handles=handles, loc="outside lower left")
    return figure


def _draw_schedule(
    panels: tuple[Axes, Axes],
    name: str,
    runs: list[Curve],
    look: tuple[LineStyle, Scale, Goal, bool],
) -> Line2D:
    """Draws a schedule's repeats, or one of them, into both panels; gives the legend's entry."""
    style, scale, goal, is_banded = look
    every, median = runs, _median_run(runs, goal)
    if not is_banded:
        runs, median = [every[median]], 0
    across = [run.time_s * scale.factor for run in runs], [run.epoch for run in runs]
    for axes, xs in zip(panels, across, strict=True):
        _draw_band(axes, xs, runs, style)
        for index, (x, run) in enumerate(zip(xs, runs, strict=True)):
            is_main = index == median
            axes.plot(
                x, run.score, **(style.drawn if is_main else {**style.drawn, "marker": None}),
                linewidth=2.0 if is_main else 0.5, alpha=1.0 if is_main else 0.45,
                markersize=4.0, zorder=3 if is_main else 2, label=name,
            )  # fmt: skip
            if is_main:
                _mark_reaching(axes, x, run, style, goal)
    return Line2D(
        [], [], **style.drawn, markersize=4.0, linewidth=2.0,
        label=_entry(name, every, goal, is_banded),
    )  # fmt: skip


def _draw_band(axes: Axes, xs: list[Floats], runs: list[Curve], style: LineStyle) -> None:
    if len(runs) < 2:
        return
    grid = np.unique(np.concatenate(xs))
    between = [
        np.interp(grid, x, run.score, left=np.nan, right=np.nan)
        for x, run in zip(xs, runs, strict=True)
        if len(x)
    ]
    known = np.ma.masked_invalid(np.array(between))
    if known.count():
        low, high = known.min(axis=0), known.max(axis=0)
        axes.fill_between(grid, low, high, color=style.colour, alpha=0.16, linewidth=0.0, zorder=1)


def _mark_reaching(axes: Axes, x: Floats, run: Curve, style: LineStyle, goal: Goal) -> None:
    index = goal.reached_by(run.score)
    if index is None:
        return
    axes.plot(
        x[index], run.score[index], marker="o", markersize=10.0, markerfacecolor="none",
        markeredgecolor=style.colour, markeredgewidth=1.4, linestyle="none", zorder=4,
        label="target reached",
    )  # fmt: skip
    axes.vlines(x[index], 0.0, run.score[index], colors=style.colour, linestyles=":", linewidth=0.9)


def _median_run(runs: list[Curve], goal: Goal) -> int:
    """Index of the lower median by time to the target, or by the last score without one."""
    sign = -1.0 if goal.metric.is_rising else 1.0

    def rank(index: int) -> tuple[float, float, int]:
        run = runs[index]
        reached = goal.reached_by(run.score)
        time_s = float(run.time_s[reached]) if reached is not None else np.inf
        known = run.score[np.isfinite(run.score)]
        return time_s, sign * float(known[-1]) if len(known) else np.inf, index

    order = sorted(range(len(runs)), key=rank)
    return order[(len(order) - 1) // 2]


def _entry(name: str, runs: list[Curve], goal: Goal, is_banded: bool) -> str:
    """The legend's entry of a schedule: the medians that the table has, and the runs drawn."""
    several = len(runs) > 1
    reached = [(goal.reached_by(run.score), run) for run in runs]
    times_s = [math.inf if i is None else float(run.time_s[i]) for i, run in reached]
    epochs = [math.inf if i is None else float(run.epoch[i]) for i, run in reached]
    which = "median" if len(runs) % 2 else "lower median"
    did_all = not is_banded and math.isfinite(max(epochs))  # then that takes the band's place
    took = f", {min(epochs):g} to {max(epochs):g} epochs" if did_all else ""
    line = f"; line: the {which} by time{', band: all' if is_banded else took}" * several
    if goal.target is None:
        return f"{name}{f' ({len(runs)} repeats{line})' * several}"
    time_s, epoch = median_interval(times_s).middle, median_interval(epochs).middle
    of = f" (medians of {len(runs)} repeats{line})" * several
    if time_s is None or epoch is None:
        missed = sum(math.isinf(one) for one in times_s)
        in_some = f" in {missed} of {len(runs)} repeats" * several
        return f"{name}: {_words(goal)} not reached{in_some}{line and f' ({line[2:]})'}"
    counted = f"{format_count(epoch)} epoch{'' if epoch == 1 else 's'}"
    return f"{name}: {_words(goal)} after {format_seconds(time_s)}, {counted}{of}"


def _words(goal: Goal) -> str:
    return plain(goal.value_text, 60)


def _range(scores: list[Floats], goal: Goal) -> tuple[float, float]:
    """Limits of the axis, which hold every value that is drawn and the target."""
    values = np.concatenate([np.array([np.nan]), *scores])
    values = np.append(values[np.isfinite(values)], [] if goal.target is None else [goal.target])
    if not len(values):
        return 0.0, 1.0
    low, high = float(np.min(values)), float(np.max(values))
    if not goal.metric.is_rising:
        lift = _LIFT * (high - low) or 0.05 * high
        return max(0.0, low - 2 * lift), high + lift
    lift = max(_LIFT * (high - low), 0.005)
    return max(0.0, low - lift), min(1.0, high + 2 * lift) if high < 1.0 else 1.0 + lift


def _set_up(axes: Axes, limits: tuple[float, float], goal: Goal) -> None:
    """Limits, words of ticks, and a line at the target, if there is one."""
    axes.set_xlim(left=0.0)
    axes.set_ylim(*limits)
    if goal.metric.is_rising:
        tick_words(axes.yaxis, lambda share: f"{100 * share:g}")
    axes.grid(visible=True)
    if goal.target is None:
        return
    axes.axhline(goal.target, color=INK, linestyle=(0, (4, 3)), linewidth=0.9, zorder=1)
    axes.annotate(
        f"target {_words(goal)}", (0.01, goal.target), xycoords=("axes fraction", "data"),
        xytext=(0, 3), textcoords="offset points", fontsize=8, color=FAINT_INK, va="bottom",
        path_effects=[withStroke(linewidth=2.5, foreground="white")], zorder=5,
    )  # fmt: skip
