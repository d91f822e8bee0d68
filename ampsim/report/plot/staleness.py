"""Staleness: a node's updates between the forward and the backward step of a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ampsim.report.frames import DataFrame, Floats, floats, integers, texts
from ampsim.report.style import FAINT_INK, Axes, beside, line_styles, name_rows, new_figure, styled
from ampsim.report.words import plain
from ampsim.units import format_percent

_ROW_IN = 0.42
_COLUMNS = 3  # chosen: panels beside each other before a new line of them begins
_FULL = 0.82  # chosen: height of a node's tallest bar; rows are 1 apart


@dataclass(frozen=True, slots=True)
class Histogram:
    """Gradients of one node by staleness; `count[i]` gradients had staleness `value[i]`."""

    value: Floats
    count: Floats

    @property
    def mean(self) -> float:
        """Mean staleness, NaN without gradients."""
        total = float(self.count.sum())
        return float((self.value * self.count).sum()) / total if total else float("nan")

    @property
    def highest(self) -> int:
        """Largest staleness that occurred, 0 without gradients."""
        return int(np.max(self.value[self.count > 0], initial=0.0))


@styled
def staleness_histogram(counts_by_schedule: Mapping[str, DataFrame]) -> Figure:
    """A panel per schedule, in it a histogram per node, all over the same range of staleness.

    Each histogram is as high as its row; beside it stand mean, maximum, and the share of the node's
    gradients that is in its tallest bar.

    Args:
        counts_by_schedule: for each schedule a frame with columns node, staleness, count; rows of
            one node and staleness are added up, so frames of several repeats may be joined.
    """
    panels = {name: _histograms(frame) for name, frame in counts_by_schedule.items()}
    nodes = list(dict.fromkeys(node for group in panels.values() for node in group))
    across = max(1, min(beside(_COLUMNS), len(panels)))
    down = max(1, -(-len(panels) // across))
    figure = new_figure(1.6 + 2.9 * across, 0.5 + down * (0.75 + _ROW_IN * max(1, len(nodes))))
    styles = line_styles(panels)
    highest = max((h.highest for group in panels.values() for h in group.values()), default=0)
    for index, (name, histograms) in enumerate(panels.items()):
        axes = figure.add_subplot(down, across, index + 1)
        axes.set_title(plain(name, 32))
        _draw(axes, histograms, nodes, styles[name].colour)
        axes.set_xlim(-0.7, (highest + 0.7) * 1.55)
        axes.tick_params(labelleft=index % across == 0)
        if index + across >= len(panels):
            axes.set_xlabel("staleness (updates)")
    words = "share of a node's gradients\n(peak: the tallest bar)"
    figure.supylabel(words, fontsize=8, color=FAINT_INK)
    return figure


def _histograms(frame: DataFrame) -> dict[str, Histogram]:
    nodes = np.asarray(texts(frame, "node"), dtype=object)
    value, count = integers(frame, "staleness"), floats(frame, "count")
    found: dict[str, Histogram] = {}
    for node in dict.fromkeys(nodes.tolist()):
        here = nodes == node
        total = np.bincount(value[here], weights=count[here]).astype(np.float64)
        found[str(node)] = Histogram(np.arange(len(total), dtype=np.float64), total)
    return found


def _draw(axes: Axes, histograms: dict[str, Histogram], nodes: list[str], colour: str) -> None:
    """The nodes' histograms above each other, first node on top, with the numbers beside them."""
    for row, node in enumerate(nodes):
        base = row + _FULL / 2
        histogram = histograms.get(node)
        axes.axhline(base, color="#dfe3e6", linewidth=0.6, zorder=0.5)
        if histogram is None or not histogram.count.sum():
            axes.text(0.0, base, " no gradients", fontsize=7.5, color=FAINT_INK, va="bottom")
            continue
        height = histogram.count / histogram.count.max() * _FULL
        axes.bar(histogram.value, -height, bottom=base, color=colour, width=0.8, label=node)
        peak = histogram.count.max() / histogram.count.sum()
        axes.annotate(
            f"mean {histogram.mean:.3g}\nmax {histogram.highest}\npeak {format_percent(peak)}",
            (1.0, base - _FULL / 2), xycoords=("axes fraction", "data"), fontsize=6.5,
            ha="right", va="center",
        )  # fmt: skip
    name_rows(axes, nodes, 24)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
