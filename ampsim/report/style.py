"""The look of figures: colours, fonts, sizes, and axes of time.

The first eight colours are Okabe and Ito's ("Color Universal Design", 2008), which stay apart under
the common kinds of colour blindness; the rest are of Tol's palettes ("Colour Schemes", 2021). No
meaning hangs on colour alone: directions also differ in lightness and hatch, schedules also in
marker and dash.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.textpath import TextToPath
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ampsim.model_parallel import SCHEDULES
from ampsim.report.words import told_apart

P = ParamSpec("P")
R = TypeVar("R")
Axes: TypeAlias = Any
"""matplotlib.axes.Axes; Any, as its keyword arguments have no types."""

INK = "#222222"
FAINT_INK = "#70757a"
IDLE = "#e9ecef"
UNUSED = "#f6f7f8"
GAP_INK = "#b4bac0"  # of the hatch over what was not kept
TRANSFER = "#6b2fa0"  # apart from the colours of steps, dark enough on idle grey
FONT = "DejaVu Sans"  # ships with matplotlib, so a picture looks the same on every machine

RC: dict[str, Any] = {
    "font.family": [FONT], "font.size": 9.0, "text.color": INK,
    "text.parse_math": False,  # a "$" in a user's name is a dollar sign
    "axes.edgecolor": FAINT_INK, "axes.labelcolor": INK, "axes.linewidth": 0.7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.titlesize": 10.0, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.formatter.use_mathtext": False,
    "xtick.color": FAINT_INK, "ytick.color": FAINT_INK,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "grid.color": "#dfe3e6", "grid.linewidth": 0.6,
    "legend.frameon": False, "legend.handlelength": 2.4, "hatch.linewidth": 0.6,
    "figure.titlesize": 11.0, "figure.titleweight": "bold",
    "figure.dpi": 100.0, "savefig.dpi": 150.0,
    "svg.hashsalt": "ampsim",  # same input, same bytes
    "svg.fonttype": "path", "pdf.fonttype": 42,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoxStyle:
    """Label, colours and hatch of the steps of one direction."""

    label: str
    fill: str
    ink: str
    hatch: str
    hatch_ink: str

    def entry(self, **look: Any) -> Patch:
        """The handle that a legend shows of it."""
        drawn = {"facecolor": self.fill, "edgecolor": self.hatch_ink, "hatch": self.hatch}
        return Patch(**drawn, label=self.label, **look)


DIRECTIONS: dict[str, BoxStyle] = {  # colours of the paper's Figure 1; greys 162, 87, 213 of 255
    "forward": BoxStyle("forward", "#E69F00", "#000000", "", "#8A5F00"),
    "backward": BoxStyle("backward", "#0072B2", "#FFFFFF", "////", "#3F9BD0"),
    "update": BoxStyle("update", "#F0E442", "#000000", "....", "#A89C00"),
}

OPERATIONS: dict[str, BoxStyle] = {
    "compute": BoxStyle("compute", "#E69F00", "#000000", "", "#8A5F00"),
    "copy-out": BoxStyle("copy-out", "#0072B2", "#FFFFFF", "////", "#3F9BD0"),
    "copy-in": BoxStyle("copy-in", "#56B4E9", "#000000", "....", "#FFFFFF"),
    "dispatch": BoxStyle("dispatch", "#C9A6D4", "#000000", "", "#8E6BA0"),
    "push": BoxStyle("push", "#8C8C8C", "#FFFFFF", "", "#8C8C8C"),
}
"""The same of a dependency engine's operations, by their kinds."""

BOXES: dict[str, BoxStyle] = {**DIRECTIONS, **OPERATIONS}


@dataclass(frozen=True, slots=True)
class LineStyle:
    """Colour, marker and dash of one schedule; the last two tell it apart without colour."""

    colour: str
    marker: str
    dash: Any

    @property
    def drawn(self) -> dict[str, Any]:
        """Arguments of matplotlib's lines."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker}


_SOLID: Any = "-"
LINES: tuple[LineStyle, ...] = (
    LineStyle("#000000", "s", _SOLID),
    LineStyle("#0072B2", "^", (0, (5, 1.5))),
    LineStyle("#D55E00", "o", _SOLID),
    LineStyle("#009E73", "D", (0, (3, 1, 1, 1))),
    LineStyle("#CC79A7", "v", (0, (1.5, 1))),
    LineStyle("#56B4E9", "P", (0, (6, 1, 1, 1, 1, 1))),
    LineStyle("#E69F00", "X", (0, (8, 2))),
    LineStyle("#8C8C8C", "h", (0, (2, 2))),
    LineStyle("#332288", "<", (0, (4, 1, 1, 1))),
    LineStyle("#999933", ">", (0, (3, 3))),
    LineStyle("#882255", "p", (0, (10, 1))),
    LineStyle("#117733", "d", (0, (1, 2))),
    LineStyle("#661100", "*", (0, (5, 3))),
    LineStyle("#44AA99", "H", (0, (7, 1, 2, 1))),
    LineStyle("#AA4499", "8", (0, (2, 1, 6, 1))),
    LineStyle("#6699CC", "D", (0, (9, 3))),
)
_USUAL: dict[str, int] = dict(zip(SCHEDULES, (0, 1, 3, 4, 9, 8, 5, 6, 2, 10), strict=False))
"""The line of each shipped schedule, in the order of their registry; later ones have none."""


def line_styles(names: Collection[str]) -> dict[str, LineStyle]:
    """A style per schedule: a shipped schedule has its own in every figure, others take the rest.

    >>> line_styles(["amp", "mine"])["amp"].marker
    'o'
    """
    usual = {name: LINES[_USUAL[name]] for name in names if name in _USUAL}
    spare = itertools.cycle([line for line in LINES if line not in usual.values()] or LINES)
    return {name: usual.get(name) or next(spare) for name in dict.fromkeys(names)}


def marker_pt(index: int) -> float:
    """Size of the markers of line `index`; earlier lines have larger ones, so equal points show.

    >>> marker_pt(0) > marker_pt(1)
    True
    """
    return max(5.0, 9.5 - index)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Runs `draw` under ampsim's settings whatever the user's matplotlibrc says, then restores."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.style.context(["default", RC]):
            return draw(*args, **kwargs)

    return wrapper


def name_rows(axes: Axes, names: Sequence[str], longest: int = 32, ends: float = 0.55) -> None:
    """Name the rows of a figure, which are 1 apart, the first on top."""
    axes.set_yticks(range(len(names)), [*map(told_apart(names, longest).get, names)])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 1 + ends, -ends)


def hatched(colour: str, hatch: str) -> dict[str, Any]:
    """The look of a bar that is full, or, with a hatch, white."""
    fill = "white" if hatch else colour
    return {"facecolor": fill, "edgecolor": colour, "hatch": hatch, "linewidth": 0.8}


def beside_bar(axes: Axes, text: str, length: float, row: float, **look: Any) -> None:
    """Write a text behind the end of a bar that reaches so far in that row."""
    axes.annotate(
        text, (length, row), xytext=(4, 0), textcoords="offset points", va="center", **look
    )


def legend_on_top(figure: Any, axes: Axes, names: Iterable[str], ncols: int) -> None:
    """One entry for each of these labels that is there."""
    handles, labels = axes.get_legend_handles_labels()
    first = dict(zip(reversed(labels), reversed(handles), strict=True))
    shown = {name: first[name] for name in names if name in first}
    figure.legend(shown.values(), shown.keys(), loc="outside upper left", ncols=ncols)


def tick_words(axis: Any, show: Callable[[float], str]) -> None:
    """Have the ticks of an axis written so."""

    def shown(value: float, _place: int | None) -> str:
        return show(value)

    axis.set_major_formatter(FuncFormatter(shown))


def epoch_ticks(last: float, *, are_whole: bool = False) -> MaxNLocator:
    """Place the ticks of an axis of epochs: at whole ones, unless there are few, and parts."""
    is_at_whole = are_whole or last > 3  # chosen: of fewer, parts matter
    return MaxNLocator(steps=[1, 2, 5, 10], integer=is_at_whole)


def log_axis(axes: Axes, letter: str, *, of_seconds: bool = False) -> None:
    """Make the axis of that letter, of which all is drawn, logarithmic.

    Ticks are named at powers of ten, and where these are few also at twice and five times them.
    """
    getattr(axes, f"set_{letter}scale")("log")
    axis: Any = getattr(axes, f"{letter}axis")
    low, high = getattr(axes, f"get_{letter}lim")()
    if high < 300.0 * low:  # chosen: within these powers of ten alone are two ticks or one
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(number_ticks(of_seconds=of_seconds))


def new_axes(width_in: float, height_in: float) -> tuple[Any, Axes]:
    """A figure as of `new_figure`, and its only panel."""
    figure = new_figure(width_in, height_in)
    return figure, figure.add_subplot(1, 1, 1)


def new_figure(width_in: float, height_in: float) -> Any:
    """An empty white Figure whose layout makes room for every label."""
    return Figure(figsize=(width_in, height_in), facecolor="white", layout="constrained")


class _Decimals(EngFormatter):
    """Numbers below 1 as decimals, larger ones with a prefix, as 200M."""

    def __call__(self, x: float, pos: Any = None) -> str:
        return f"{x:g}" if abs(x) < 1 else super().__call__(x, pos)


def number_ticks(*, of_seconds: bool) -> EngFormatter:
    """Return the format of an axis: seconds as 10 µs, a ratio or a count as 0.1 and 200k.

    >>> number_ticks(of_seconds=True)(0.1), number_ticks(of_seconds=False)(0.1)
    ('100 ms', '0.1')
    """
    return EngFormatter(unit="s") if of_seconds else _Decimals(sep="")


@functools.lru_cache(maxsize=4096)
def text_width_pt(text: str, size_pt: float) -> float:
    """Width in points of `text` in the figures' font, from the font's own metrics."""
    measured = TextToPath().get_text_width_height_descent(
        text, FontProperties(family=FONT, size=size_pt), False
    )
    return float(measured[0])


@dataclass(frozen=True, slots=True)
class Scale:
    """Plotted value = (value - origin) · factor, labelled with `unit`."""

    factor: float
    unit: str
    origin: float = 0.0

    def label(self, quantity: str) -> str:
        """Label of an axis: quantity, unit, and time of zero unless that is the start."""
        if self.origin == 0.0:
            return f"{quantity} ({self.unit})"
        return f"{quantity} after {self.origin:.15g} s ({self.unit})"


_TIME: tuple[tuple[float, str], ...] = (
    (1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"), (1e12, "ps"),
)  # fmt: skip
_RATE: tuple[tuple[float, str], ...] = ((1e-9, "G/s"), (1e-6, "M/s"), (1e-3, "k/s"), (1.0, "1/s"))
_FAR = 100.0  # chosen: from here on, ticks counted from time 0 would need too many digits


def time_scale(start_s: float, end_s: float) -> Scale:
    """Unit for a window of time: the largest of s, ms, … ps in which it is 1 unit or longer.

    >>> time_scale(0.0, 4.2e-6).unit, time_scale(0.0, 12.0).unit
    ('µs', 's')
    """
    length_s = end_s - start_s
    factor, unit = _first_filling(_TIME, length_s)
    is_far = start_s > _FAR * length_s > 0.0
    tens = 10.0 ** -math.ceil(math.log10(length_s)) if is_far else 1.0
    return Scale(factor, unit, math.floor(start_s * tens) / tens if is_far else 0.0)


def rate_scale(highest_per_s: float) -> Scale:
    """Unit for an axis of rates that ends near `highest_per_s`.

    >>> rate_scale(2.1e6).unit
    'M/s'
    """
    return Scale(*_first_filling(_RATE, highest_per_s))


def _first_filling(units: tuple[tuple[float, str], ...], extent: float) -> tuple[float, str]:
    if not math.isfinite(extent) or extent <= 0.0:
        return 1.0, "s" if units is _TIME else "1/s"
    return next((pair for pair in units if extent * pair[0] >= 0.9999), units[-1])
