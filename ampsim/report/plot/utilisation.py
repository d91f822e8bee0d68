"""Utilisation: the shares of a run that each worker spends on steps of each direction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ampsim.report.frames import DataFrame, Floats, floats, integers
from ampsim.report.style import (
    DIRECTIONS,
    FAINT_INK,
    IDLE,
    INK,
    Axes,
    beside,
    new_figure,
    styled,
    text_width_pt,
)
from ampsim.report.words import plain
from ampsim.units import format_percent

_COLUMNS = 3  # chosen: panels beside each other before a new line of them begins
_ROW_IN = 0.2
_ROWS_IN_MAX = 5.5  # chosen: more workers than fit into this height become lower
_TICKS = 32  # chosen: more names above each other cannot be read
_TITLE_PT = 126.0  # a panel's width less the mean, and bold letters are a tenth wider
_BAR = 0.78  # chosen: of a row; all of it where there are many


@styled
def utilisation(
    shares_by_schedule: Mapping[str, DataFrame], busy: Mapping[str, float] | None = None
) -> Figure:
    """A panel a schedule, in it a bar a worker: shares of the makespan, worker 0 on top.

    Args:
        shares_by_schedule: for each schedule a frame with columns worker, update, backward,
            forward; the last three are fractions whose sum is at most 1.
        busy: share of all workers' time, by schedule, to be marked; the mean of these bars unless
            given.
    """
    workers = max((len(frame) for frame in shares_by_schedule.values()), default=0)
    across = max(1, min(beside(_COLUMNS), len(shares_by_schedule)))
    down = max(1, -(-len(shares_by_schedule) // across))
    rows_in = min(_ROW_IN * max(4, workers), _ROWS_IN_MAX)
    figure = new_figure(1.2 + 2.9 * across, 0.7 + down * (rows_in + 0.65))
    for index, (name, frame) in enumerate(shares_by_schedule.items()):
        axes = figure.add_subplot(down, across, index + 1)
        axes.set_title(_fitting(name))
        _draw(axes, frame, (busy or {}).get(name))
        _set_up(axes, workers)
        axes.tick_params(labelleft=index % across == 0)
        if index % across == 0:
            axes.set_ylabel("worker")
        if index + across >= len(shares_by_schedule):
            axes.set_xlabel("share of the run (%)")
    figure.legend(handles=_legend_handles(), loc="outside upper right", ncols=beside(4))
    return figure


def _fitting(name: str) -> str:
    """As much of a name as has room beside the mean."""
    longest = next(n for n in range(30, 0, -1) if text_width_pt(plain(name, n), 10.0) <= _TITLE_PT)
    return plain(name, longest)


def _draw(axes: Axes, frame: DataFrame, busy: float | None) -> None:
    worker = integers(frame, "worker").astype(np.float64)
    height = _BAR if len(worker) <= _TICKS else 1.0
    begin: Floats = np.zeros(len(worker))
    axes.barh(worker, np.full(len(worker), 100.0), height=height, color=IDLE)
    for direction, look in DIRECTIONS.items():
        share = np.nan_to_num(floats(frame, direction)) * 100.0
        axes.barh(
            worker, share, left=begin, height=height, color=look.fill, edgecolor=look.hatch_ink,
            hatch=look.hatch, linewidth=0.0, label=direction,
        )  # fmt: skip
        begin = begin + share
    if len(begin):
        mean = float(np.mean(begin)) if busy is None else 100 * busy
        axes.axvline(mean, color=INK, linestyle=(0, (4, 3)), linewidth=1.0)
        axes.set_title(
            f"all: {format_percent(mean / 100)}", loc="right", fontsize=8, color=FAINT_INK,
            fontweight="normal",
        )  # fmt: skip


def _set_up(axes: Axes, workers: int) -> None:
    axes.set_xlim(0.0, 100.0)
    axes.set_ylim(max(workers, 1) - 0.4, -0.6)
    if workers <= _TICKS:
        axes.set_yticks(range(workers))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
    axes.tick_params(axis="y", length=0, labelsize=7.5)


def _legend_handles() -> list[Patch]:
    looks = [
        Patch(facecolor=one.fill, edgecolor=one.hatch_ink, hatch=one.hatch, linewidth=0.0,
              label=one.label)
        for one in DIRECTIONS.values()
    ]  # fmt: skip
    return [*looks, Patch(facecolor=IDLE, label="idle")]
