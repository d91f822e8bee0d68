"""A map of a grid of hardware: whose best is first at each point, and the line between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ampsim.report.contest import Bout, Contest, axis_words, value_words
from ampsim.report.style import FAINT_INK, IDLE, INK, LINES, Axes, beside, new_figure, styled
from ampsim.report.words import plain

Edge: TypeAlias = tuple[tuple[float, float], tuple[float, float]]
"""Two ends of a line, each as column and line counted from the corner of the first cell."""

COLOURS: Final = LinearSegmentedColormap.from_list(
    "ours and others", [LINES[1].colour, "#ffffff", LINES[2].colour]
)
"""Blue where the others win, vermilion where ours do (Okabe and Ito), white where nobody does."""

_CELL_IN = (1.08, 0.66)
_SIDE_IN = 1.5
_BESIDE_MAX = 3
_HATCH_INK = "#7b8187"
_DARK = 0.45  # chosen: luminance below which letters are white
_RANGE_MIN = 1.0  # in octaves; chosen: a lead of a tenth is not drawn as loud as one of ten
_RANGE_MAX = 3.0  # chosen: beyond 8 times, colours say no more
_AXES: Final = {
    "flop_per_s": "FLOP rate of a device",
    "latency_s": "latency of a link",
    "bandwidth_bytes_per_s": "bandwidth of a link",
    "workers": "workers",
    "cluster": "cluster",
    "topology": "topology",
}


@styled
def heat_map(found: Contest) -> Figure:
    """A panel for each value of the third key, a cell for each point.

    A cell has the row that is first, how many times as good as the best of the other side, and its
    time to the target, or its throughput. It is hatched where the repeats leave open who is first.
    A thick line parts the cells where ours are first, in the median, from those where others are.
    """
    across, down = found.across[1], found.down[1]
    wide = beside(min(len(found.bouts), _BESIDE_MAX))
    tall = -(-len(found.bouts) // wide)
    size = (0.25 + len(across) * _CELL_IN[0], 1.0 + len(down) * _CELL_IN[1])
    figure = new_figure(max(5.8, _SIDE_IN + wide * size[0]), tall * size[1] + 1.1)
    scale = Normalize(*_range(found))
    for index, (panel, bouts) in enumerate(zip(found.panels[1], found.bouts, strict=True)):
        axes = figure.add_subplot(tall, wide, index + 1)
        if panel is not None:
            axes.set_title(axis_words(found.panels[0], panel))
        _draw_panel(axes, found, bouts, scale)
        if index % wide:
            axes.set_yticks([])
            axes.set_ylabel("")
    _key(figure, found, scale)
    return figure


def winner_edges(signs: Sequence[Sequence[int]]) -> list[Edge]:
    """The sides of cells between those with sign 1 and those with sign -1.

    Args:
        signs: by line and column; 0 where nobody is first.

    >>> winner_edges([[1, -1], [1, 1]])
    [((1.0, 0.0), (1.0, 1.0)), ((1.0, 1.0), (2.0, 1.0))]
    """
    found: list[Edge] = []
    for y, line in enumerate(signs):
        for x, sign in enumerate(line):
            if x + 1 < len(line) and sign * line[x + 1] < 0:
                found.append(((x + 1.0, float(y)), (x + 1.0, y + 1.0)))
            if y + 1 < len(signs) and sign * signs[y + 1][x] < 0:
                found.append(((float(x), y + 1.0), (x + 1.0, y + 1.0)))
    return found


def sign_of(bout: Bout | None) -> int:
    """1 where ours are first in the median, -1 where others are, 0 where nobody is."""
    if bout is None or math.isnan(bout.ratio) or bout.ratio == 1.0:
        return 0
    return 1 if bout.ratio > 1.0 else -1


def _range(found: Contest) -> tuple[float, float]:
    """Ends of the colours, in octaves."""
    known = [abs(math.log2(one.ratio)) for _, one in found.played if 0.0 < one.ratio < math.inf]
    end = min(_RANGE_MAX, max([_RANGE_MIN, *known]))
    return -end, end


def _draw_panel(
    axes: Axes, found: Contest, bouts: Sequence[Sequence[Bout | None]], scale: Normalize
) -> None:
    (across, columns), (down, lines) = found.across, found.down
    for y, line in enumerate(bouts):
        for x, bout in enumerate(line):
            _draw_cell(axes, (x, y), bout, scale)
    for (x0, y0), (x1, y1) in winner_edges([[sign_of(one) for one in line] for line in bouts]):
        axes.plot([x0, x1], [y0, y1], color=INK, linewidth=3.0, solid_capstyle="round", zorder=5)
    axes.set_xlim(0.0, len(columns))
    axes.set_ylim(len(lines), 0.0)
    axes.set_xticks(
        [x + 0.5 for x in range(len(columns))], [axis_words(across, c) for c in columns]
    )
    axes.set_yticks([y + 0.5 for y in range(len(lines))], [axis_words(down, one) for one in lines])
    axes.set_xlabel(_AXES[across])
    axes.set_ylabel(_AXES[down])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_cell(axes: Axes, place: tuple[int, int], bout: Bout | None, scale: Normalize) -> None:
    x, y = place
    winner = None if bout is None else bout.winner
    colour: Any = IDLE
    if bout is not None and winner is not None:
        low, high = (2.0 ** float(one or 0.0) for one in (scale.vmin, scale.vmax))
        octaves = math.log2(min(max(bout.ratio, low), high))
        colour = COLOURS(scale(octaves))
    is_tie = bout is not None and bout.is_tie
    axes.add_patch(Rectangle((x, y), 1.0, 1.0, facecolor=colour, edgecolor="white", linewidth=1.5))
    if is_tie:  # letters need a cell without a hatch behind them
        axes.add_patch(
            Rectangle(
                (x + 0.02, y + 0.03), 0.96, 0.94, facecolor=colour, edgecolor=_HATCH_INK,
                linewidth=0.0, hatch="////",
            )
        )  # fmt: skip
        axes.add_patch(
            Rectangle((x + 0.07, y + 0.15), 0.86, 0.7, facecolor=colour, linewidth=0.0, zorder=2)
        )
    axes.text(
        x + 0.5, y + 0.5, _cell_text(bout), ha="center", va="center", fontsize=7.5,
        color=_ink_on(colour), linespacing=1.25, zorder=3,
    )  # fmt: skip


def _cell_text(bout: Bout | None) -> str:
    """Who is first, by how much, and with what."""
    if bout is None:
        return "not run"
    winner = bout.winner
    if winner is None:
        return "not reached"
    factor = max(bout.ratio, 1.0 / bout.ratio) if bout.ratio > 0 else math.inf
    lead = "alone" if math.isinf(factor) else f"{factor:.2f}×"
    told = f"{lead}, one run" if bout.is_single else f"{lead}, a tie" if bout.is_tie else lead
    return f"{plain(winner.label, 20)}\n{told}\n{value_words(winner.value, is_time=bout.is_time)}"


def _ink_on(colour: Any) -> str:
    """Black letters, or white ones on a dark cell."""
    if isinstance(colour, str):
        return FAINT_INK
    red, green, blue = colour[:3]
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < _DARK else INK


def _key(figure: Any, found: Contest, scale: Normalize) -> None:
    """What colours, hatch and line mean."""
    mappable = ScalarMappable(norm=scale, cmap=COLOURS)
    bar = figure.colorbar(
        mappable, ax=figure.axes, orientation="horizontal", aspect=50, shrink=0.7, pad=0.03
    )
    last = int(scale.vmax or 0)
    marks = list(range(-last, last + 1))
    bar.set_ticks(marks, labels=[f"{2 ** abs(one)}×" for one in marks])
    ours = plain(" or ".join(dict.fromkeys(b.ours.label for _, b in found.played if b.ours)), 48)
    what = "sooner at the target" if found.is_time else "faster"
    bar.set_label(f"← best of the others is {what}          {ours} is {what} →")
    bar.outline.set_visible(False)
    handles: list[Any] = []
    if any(bout.is_tie for _, bout in found.played):
        handles.append(
            Patch(facecolor="white", edgecolor=_HATCH_INK, hatch="////", label=_tie_words(found))
        )
    if len({sign_of(bout) for _, bout in found.played} - {0}) > 1:
        handles += figure.axes[0].plot(
            [], [], color=INK, linewidth=3.0, label="where the first changes"
        )
    if not handles:
        return
    figure.legend(handles=handles, loc="outside upper left", ncols=beside(2))


def _tie_words(found: Contest) -> str:
    if found.is_time:
        return "open: intervals of the repeats meet, or one run has none"
    return "a tie: less than 5 % apart"
