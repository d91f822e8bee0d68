"""Bars of each row, worker and node: throughput, bounds, memory, utilisation, staleness.

Throughput is drawn over instances in flight, too. What bounds a row are four shares: of the busiest
worker, the critical path, the busiest link and the admission limit. Memory is that of the fullest
worker, at its peak and over time, by category. Staleness is a node's updates between the forward
and the backward step of a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from ampsim.report.frames import (
    DataFrame,
    Floats,
    Row,
    floats,
    integers,
    number,
    row_labels,
    rows,
    text,
)
from ampsim.report.style import (
    DIRECTIONS,
    FAINT_INK,
    IDLE,
    INK,
    LINES,
    Axes,
    Scale,
    beside_bar,
    hatched,
    legend_on_top,
    line_styles,
    marker_pt,
    name_rows,
    new_axes,
    new_figure,
    rate_scale,
    styled,
    text_width_pt,
    tick_words,
    time_scale,
)
from ampsim.report.table import bound_name, bound_share, format_ratio, per_second, series
from ampsim.report.words import plain, told_apart
from ampsim.study.bound_words import BOUND_FROM, named
from ampsim.text import distinct
from ampsim.units import UNKNOWN, format_bytes, format_count, format_percent, format_rate

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
    figure, axes = new_axes(_WIDTH_IN, 1.15 + 0.62 * max(1, len(names)))
    row: Floats = np.arange(len(names), dtype=np.float64)
    validates = not bool(np.isnan(valid).all())
    shift = np.float64(_BAR / 2 if validates else 0.0)
    first = float(train[0]) if len(names) else math.nan
    _draw_rates(axes, row - shift, train, [hatched(one, "") for one in colours], (scale, first))
    if validates:
        looks = [hatched(one, "////") for one in colours]
        _draw_rates(axes, row + shift, valid, looks, (scale, math.nan))
        handles = [
            Patch(facecolor=FAINT_INK, edgecolor=FAINT_INK, label="training"),
            Patch(facecolor="white", edgecolor=FAINT_INK, hatch="////", label="validation"),
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=2)
    name_rows(axes, names, ends=0.6)
    axes.set_xlim(0.0, highest * scale.factor * _ROOM if highest > 0 else 1.0)
    what = "" if validates else "training "
    axes.set_xlabel(f"{what}{scale.label(per_second(rows(table)))}")
    axes.grid(visible=True, axis="x")
    return figure


def _draw_rates(
    axes: Axes, places: Floats, rates: Floats, looks: list[Any], of: tuple[Scale, float]
) -> None:
    """A bar for each rate with its value, and behind the first also its ratio to that one."""
    scale, first = of
    for y, rate, look in zip(places.tolist(), rates.tolist(), looks, strict=True):
        length = 0.0 if math.isnan(rate) else rate * scale.factor
        axes.barh(y, length, height=_BAR, **look)
        ratio = f"  ({format_ratio(rate / first)})" if first > 0 and y != places[0] else ""
        text = UNKNOWN if math.isnan(rate) else f"{format_rate(rate)}{ratio}"
        beside_bar(axes, text, length, y, fontsize=8)


_LINES_WIDTH_IN = 7.0
_TICKS = 12  # chosen: more numbers beside each other cannot be read


def has_lines(table: DataFrame, names: Sequence[str] | None = None) -> bool:
    """Tell whether some schedule has rows with different numbers of instances in flight."""
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
    figure, axes = new_axes(_LINES_WIDTH_IN, 3.9 + 0.2 * (len(lines) // 2))
    for index, (name, style) in enumerate(line_styles(lines).items()):
        axes.plot(
            [mak for mak, _rate in lines[name]],
            [rate * scale.factor for _mak, rate in lines[name]],
            **style.drawn, markersize=marker_pt(index), linewidth=1.8,
            label=told_apart(lines, 40)[name],
        )  # fmt: skip
    _limit(axes, [mak for own in lines.values() for mak, _rate in own])
    axes.set_ylim(0.0, 1.08 * highest * scale.factor or 1.0)
    axes.set_xlabel("instances in flight, at most (max_active_keys)")
    axes.set_ylabel(scale.label(f"training {per_second(rows(table))}"))
    axes.grid(visible=True)
    first = float(rates[0]) * scale.factor if len(rates) else 0.0
    if first > 0:
        _speed_up(axes, first)
    figure.legend(loc="outside upper left", ncols=2)
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
    tick_words(axes.xaxis, format_count)


def _speed_up(axes: Axes, first: float) -> None:
    """A second axis on the right: the same rates as multiples of the first row's."""
    ways: list[Callable[[Any], Any]] = [lambda rate: rate / first, lambda ratio: ratio * first]
    right = axes.secondary_yaxis("right", functions=tuple(ways))
    right.spines["right"].set_visible(True)
    right.set_ylabel("times the first row")
    right.yaxis.set_major_formatter("{x:.3g}×")


_SHARE_BAR = 0.2  # chosen: height of a bar where rows are 1 apart, four of them a row
_SHARES = {  # column, words, hatch
    "worker_share": ("busiest worker is busy", ""),
    "path_share": ("critical path", "////"),
    "link_share": ("busiest link is occupied", "...."),
    "admission_share": ("admission limit holds up", "xxxx"),
}
_COLOURS = (LINES[1].colour, LINES[2].colour, LINES[3].colour, LINES[6].colour)


def has_bounds(table: DataFrame) -> bool:
    """Tell whether the bound of some row is known."""
    return any(bound_name(row) for row in rows(table))


@styled
def bounds(table: DataFrame) -> Figure:
    """Four bars a row, shares of the time of its first run, and the name of the largest."""
    names, records = row_labels(table), rows(table)
    figure, axes = new_axes(_WIDTH_IN, 1.3 + 0.85 * max(1, len(records)))
    for place, row in enumerate(records):
        _draw_shares(axes, place, row)
    name_rows(axes, names)
    axes.set_xlim(0.0, 100.0)
    axes.set_xlabel("share of the run's virtual time (%)")
    axes.grid(visible=True, axis="x")
    if records:
        legend_on_top(figure, axes, [words for words, _hatch in _SHARES.values()], 2)
    return figure


def _draw_shares(axes: Axes, place: int, row: Row) -> None:
    largest = bound_share(row)
    for index, (column, (words, hatch)) in enumerate(_SHARES.items()):
        share = number(row, column)
        y = place + (index - 1.5) * _SHARE_BAR
        is_largest = share == largest
        is_bound = is_largest and share >= BOUND_FROM
        length = 0.0 if math.isnan(share) else 100.0 * share
        look = hatched(_COLOURS[index], hatch)
        axes.barh(y, length, height=_SHARE_BAR * 0.9, label=words, **look)
        said = UNKNOWN if math.isnan(share) else format_percent(share)
        is_path = column == "path_share"  # whose nodes would not fit beside a bar
        at = "" if is_path else plain(text(row, "bound_at"), 400)
        part = named(plain(bound_name(row), 32), at)
        said += f"  {part}" if is_largest else ""
        ink = {"fontweight": "bold" if is_bound else "normal", "annotation_clip": False}
        ink["color"] = "#000000" if is_bound else FAINT_INK
        beside_bar(axes, said, length, y, fontsize=7.5, **ink)


CATEGORIES: Final[Mapping[str, tuple[str, str]]] = {
    "weights": (LINES[0].colour, ""),
    "gradients": (LINES[7].colour, "////"),
    "optimizer": (LINES[8].colour, "...."),
    "stashes": (LINES[4].colour, "\\\\\\\\"),
    "activations": (LINES[1].colour, ""),
    "messages": (LINES[6].colour, "xxxx"),
}
"""Colour and hatch of each category, in the order in which they lie on each other."""

_MEMORY_IN = 7.5
_UNITS: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def has_peaks(table: DataFrame) -> bool:
    """Tell whether the peak of some row is known."""
    return any(number(row, "peak_bytes") > 0 for row in rows(table))


@styled
def peak_memory(table: DataFrame) -> Figure:
    """A bar a row: what lay in the fullest worker's memory at its peak, by category."""
    names, records = row_labels(table), rows(table)
    figure, axes = new_axes(_MEMORY_IN, 1.2 + 0.36 * max(1, len(records)))
    divisor, unit = _unit(max(np.nan_to_num(number(row, "peak_bytes")) for row in records))
    for place, row in enumerate(records):
        _draw_row(axes, place, row, divisor)
    name_rows(axes, names)
    axes.margins(x=0.14)
    axes.set_xlim(left=0.0)
    axes.set_xlabel(f"memory of the fullest worker at its peak ({unit})")
    axes.grid(visible=True, axis="x")
    legend_on_top(figure, axes, CATEGORIES, len(CATEGORIES))
    return figure


def _draw_row(axes: Axes, place: int, row: Row, divisor: float) -> None:
    """The bar of one row, and its length in words."""
    begin = 0.0
    for category, (colour, hatch) in CATEGORIES.items():
        length = np.nan_to_num(number(row, f"peak_{category}_bytes")) / divisor
        axes.barh(
            place, length, left=begin, height=0.62, linewidth=0.0, label=category,
            facecolor=colour, edgecolor="white", hatch=hatch,
        )  # fmt: skip
        begin += length
    said = format_bytes(number(row, "peak_bytes"))
    beside_bar(axes, said, begin, place, fontsize=7.5, color=FAINT_INK)


@styled
def memory_over_time(memory_by_schedule: Mapping[str, DataFrame]) -> Figure:
    """A panel a schedule: what lies in the fullest worker's memory over virtual time.

    Each step of a line is the fullest moment of a stretch of time.

    Args:
        memory_by_schedule: for each schedule the rows of `Result.memory`.
    """
    count = max(1, len(memory_by_schedule))
    figure = new_figure(_MEMORY_IN, 0.8 + 1.9 * count)
    fullest = {name: _of_fullest(memory) for name, memory in memory_by_schedule.items()}
    highest = max((float(floats(one, "bytes").max()) for _, one in fullest.values()), default=1.0)
    end_s = max((float(floats(one, "time_s").max()) for _, one in fullest.values()), default=0.0)
    (divisor, unit), scale = _unit(highest), time_scale(0.0, end_s)
    for index, (name, (worker, memory)) in enumerate(fullest.items()):
        axes = figure.add_subplot(count, 1, index + 1)
        axes.set_title(f"{told_apart(fullest, 32)[name]}, worker {worker}")
        _draw_timeline(axes, memory, divisor, scale.factor)
        axes.set_xlim(0.0, end_s * scale.factor or 1.0)
        axes.set_ylim(0.0, 1.08 * highest / divisor or 1.0)
        axes.set_ylabel(f"memory ({unit})")
        if index + 1 == count:
            axes.set_xlabel(scale.label("virtual time"))
            legend_on_top(figure, axes, CATEGORIES, len(CATEGORIES))
    return figure


def _of_fullest(memory: DataFrame) -> tuple[int, DataFrame]:
    worker = int(integers(memory, "worker")[int(np.argmax(floats(memory, "bytes")))])
    return worker, memory[memory["worker"] == worker]


def _draw_timeline(axes: Axes, memory: DataFrame, divisor: float, factor: float) -> None:
    """Areas on each other; each moment stands for the time since the one before it."""
    times = np.append(0.0, floats(memory, "time_s") * factor)
    layers = [floats(memory, category) / divisor for category in CATEGORIES]
    layers = [np.append(layer[:1], layer) for layer in layers]
    areas = axes.stackplot(
        times, *layers, labels=list(CATEGORIES), step="pre",
        colors=[colour for colour, _hatch in CATEGORIES.values()], linewidth=0.0,
    )  # fmt: skip
    for area, (_colour, hatch) in zip(areas, CATEGORIES.values(), strict=True):
        area.set(hatch=hatch, edgecolor="white")


def _unit(highest: float) -> tuple[float, str]:
    return next((pair for pair in _UNITS if highest >= pair[0]), _UNITS[-1])


_PANELS = 3  # chosen: panels beside each other before a new line of them begins
_ROW_IN = 0.2
_ROWS_IN_MAX = 5.5  # chosen: more workers than fit into this height become lower
_WORKERS_NAMED = 32  # chosen: more names above each other cannot be read
_TITLE_PT = 126.0  # a panel's width less the mean, and bold letters are a tenth wider
_WORKER_BAR = 0.78  # chosen: of a row; all of it where there are many


@styled
def utilisation(
    shares_by_schedule: Mapping[str, DataFrame], busy: Mapping[str, float] | None = None
) -> Figure:
    """A panel a schedule, in it a bar a worker: shares of the makespan, worker 0 on top.

    Of more workers than can be named, those that idle in every panel are left out.

    Args:
        shares_by_schedule: for each schedule a frame with columns worker, update, backward,
            forward; the last three are fractions whose sum is at most 1.
        busy: share of all workers' time, by schedule, to be marked; the mean of these bars unless
            given.
    """
    known = {
        name: frame.set_index("worker")[list(DIRECTIONS)].fillna(0.0)
        for name, frame in shares_by_schedule.items()
    }
    every = sorted({worker for frame in known.values() for worker in frame.index})
    works = {worker for frame in known.values() for worker in frame.index[frame.sum(axis=1) > 0]}
    shown = every if len(every) <= _WORKERS_NAMED else [one for one in every if one in works]
    rows_in = min(_ROW_IN * max(4, len(shown)), _ROWS_IN_MAX)
    figure, panels = _panels(len(known), (1.2, 0.7, rows_in + 0.65), "share of the run (%)")
    step = -(-len(shown) // _WORKERS_NAMED) or 1
    titles = dict(zip(known, distinct(map(_fitting, known)), strict=True))
    left_out = f" ({len(every) - len(shown):,} more idle)" if len(shown) < len(every) else ""
    for axes, (name, frame) in zip(panels, known.items(), strict=True):
        axes.set_title(titles[name])
        mean = frame.sum(axis=1).mean() if busy is None or name not in busy else busy[name]
        _draw_workers(axes, frame.reindex(shown, fill_value=0.0), mean)
        axes.set_xlim(0.0, 100.0)
        axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
        axes.set_yticks(range(0, len(shown), step), [str(one) for one in shown[::step]])
        axes.tick_params(axis="y", length=0, labelsize=7.5)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(f"worker{left_out}")
    looks = [one.entry(linewidth=0.0) for one in DIRECTIONS.values()]
    looks.append(Patch(facecolor=IDLE, label="idle"))
    figure.legend(handles=looks, loc="outside upper right", ncols=4)
    return figure


def _panels(count: int, size_in: tuple[float, float, float], label: str) -> tuple[Any, list[Axes]]:
    """A figure with so many panels in lines, of which the last names the horizontal axis.

    `size_in` has the width and height beside panels, and the height of a panel, in inches.
    """
    across = max(1, min(_PANELS, count))
    down = max(1, -(-count // across))
    figure = new_figure(size_in[0] + 2.9 * across, size_in[1] + down * size_in[2])
    panels: list[Axes] = []
    for place in range(count):
        axes = figure.add_subplot(down, across, place + 1)
        axes.tick_params(labelleft=place % across == 0)
        if place + across >= count:
            axes.set_xlabel(label)
        panels.append(axes)
    return figure, panels


def _fitting(name: str) -> str:
    """Cut a name to what has room beside the mean."""
    longest = next(n for n in range(30, 0, -1) if text_width_pt(plain(name, n), 10.0) <= _TITLE_PT)
    return plain(name, longest)


def _draw_workers(axes: Axes, shares: DataFrame, mean: float) -> None:
    rows = np.arange(len(shares), dtype=np.float64)
    height = _WORKER_BAR if len(rows) <= _WORKERS_NAMED else 1.0
    begin: Floats = np.zeros(len(rows))
    axes.barh(rows, np.full(len(rows), 100.0), height=height, color=IDLE)
    for direction, look in DIRECTIONS.items():
        share = floats(shares, direction) * 100.0
        axes.barh(
            rows, share, left=begin, height=height, color=look.fill, edgecolor=look.hatch_ink,
            hatch=look.hatch, linewidth=0.0, label=direction,
        )  # fmt: skip
        begin = begin + share
    if math.isfinite(mean):
        axes.axvline(100 * mean, color=INK, linestyle=(0, (4, 3)), linewidth=1.0)
        axes.set_title(
            f"all: {format_percent(mean)}", loc="right", fontsize=8, color=FAINT_INK,
            fontweight="normal",
        )  # fmt: skip


_NODE_IN = 0.42
_FULL = 0.82  # chosen: height of a node's tallest bar; rows are 1 apart
_NODES_MAX = 32  # chosen: more are several pages


@styled
def staleness_histogram(counts_by_schedule: Mapping[str, DataFrame]) -> Figure:
    """A panel per schedule, in it a histogram per node, all over the same range of staleness.

    Each histogram is as high as its row; beside it stand mean, maximum, and the share of the node's
    gradients that is in its tallest bar. Of many nodes those are drawn whose gradients are stalest.

    Args:
        counts_by_schedule: for each schedule a frame with columns node, staleness, count; rows of
            one node and staleness are added up, so frames of several repeats may be joined.
    """
    panels = {name: _histograms(frame) for name, frame in counts_by_schedule.items()}
    stalest = dict[str, float]()
    for node, counts in (one for group in panels.values() for one in group.items()):
        stalest[node] = max(stalest.get(node, 0.0), _mean(counts))
    drawn_of = set(sorted(stalest, key=lambda node: -stalest[node])[:_NODES_MAX])
    nodes = [node for node in stalest if node in drawn_of]
    styles = line_styles(panels)
    every = [counts for group in panels.values() for counts in group.values()]
    highest = max(map(_highest, every), default=0)
    size_in = (1.6, 0.5, 0.75 + _NODE_IN * max(1, len(nodes)))
    figure, drawn = _panels(len(panels), size_in, "staleness (updates)")
    for axes, (name, histograms) in zip(drawn, panels.items(), strict=True):
        axes.set_title(told_apart(panels, 32)[name])
        for row, node in enumerate(nodes):
            counts = histograms.get(node, np.zeros(0))
            _draw_histogram(axes, counts, row + _FULL / 2, color=styles[name].colour, label=node)
        name_rows(axes, nodes, 24)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set_xlim(-0.7, (highest + 0.7) * 1.55)
    which = f" of the {len(nodes)} stalest of {len(stalest)} nodes" * (len(nodes) < len(stalest))
    words = f"share of a node's gradients{which}\n(peak: the tallest bar)"
    figure.supylabel(words, fontsize=8, color=FAINT_INK)
    return figure


def _histograms(frame: DataFrame) -> dict[str, Floats]:
    """Count for each node the gradients of staleness 0, 1, 2, ..."""
    return {
        str(node): np.bincount(integers(own, "staleness"), floats(own, "count")).astype(float)
        for node, own in frame.groupby("node", sort=False, observed=True)
    }


def _highest(counts: Floats) -> int:
    """Largest staleness that occurred, 0 without gradients."""
    return int(np.max(np.flatnonzero(counts), initial=0))


def _mean(counts: Floats) -> float:
    """Mean staleness, 0 without gradients."""
    return float((np.arange(len(counts)) * counts).sum() / max(counts.sum(), 1))


def _draw_histogram(axes: Axes, counts: Floats, base: float, **look: Any) -> None:
    """A node's histogram over that line, with the numbers beside it."""
    axes.axhline(base, color="#dfe3e6", linewidth=0.6, zorder=0.5)
    if not counts.sum():
        axes.text(0.0, base, " no gradients", fontsize=7.5, color=FAINT_INK, va="bottom")
        return
    values = np.arange(len(counts))
    axes.bar(values, -counts / counts.max() * _FULL, bottom=base, width=0.8, **look)
    peak = counts.max() / counts.sum()
    axes.annotate(
        f"mean {_mean(counts):.3g}\nmax {_highest(counts)}\npeak {format_percent(peak)}",
        (1.0, base - _FULL / 2), xycoords=("axes fraction", "data"), fontsize=6.5,
        ha="right", va="center",
    )  # fmt: skip
