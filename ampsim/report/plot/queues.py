"""The queues of a dependency engine's variables at instants, as the design notes draw them.

A row is a variable, its head on the left: green blocks read it, red ones mutate it, and those with
a thick frame run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib.patches import Patch, Rectangle

from ampsim.dependency import EngineResult
from ampsim.errors import OptionError
from ampsim.report.style import Axes, name_rows, new_figure, styled, text_width_pt
from ampsim.report.words import plain
from ampsim.units import format_seconds

BLOCKS_MAX: Final = 40
"""Blocks of one variable's queue that a drawing holds (chosen); a larger program is no drawing."""

_READ: Final = ("#BFE5D6", "#000000")
_MUTATION: Final = ("#D55E00", "#FFFFFF")
_SIZE_PT: Final = 8.0


@styled
def queues_drawing(result: EngineResult, times_s: Sequence[float]) -> Any:
    """The queues at each of these instants, from the left to the right.

    Raises:
        OptionError: there is no instant, or a queue is too long to be drawn.
    """
    if not times_s:
        raise OptionError("times_s must hold at least one time in seconds, got none")
    shown = [result.waiters_at(time_s) for time_s in times_s]
    longest = max((len(queue) for each in shown for queue in each.values()), default=0)
    if longest > BLOCKS_MAX:
        raise OptionError(
            f"a drawing holds queues of at most {BLOCKS_MAX} operations, got {longest}; choose a "
            "smaller program, or print result.queues_at(time_s)"
        )
    names = [plain(name, 18) for name in result.operations["name"]]
    used = {one.operation for each in shown for queue in each.values() for one in queue}
    width = max((text_width_pt(names[one], _SIZE_PT) for one in used), default=20.0) / 72 + 0.15
    panel_in = max(1.2, longest * width)
    variables = list(result.variables)
    figure = new_figure(0.9 + len(times_s) * (panel_in + 0.35), 0.9 + 0.36 * len(variables))
    panels = figure.subplots(1, len(times_s), squeeze=False)[0]
    for axes, time_s, queues in zip(panels, times_s, shown, strict=True):
        axes.set_title(f"at {format_seconds(time_s)}")
        axes.set_xlim(0, max(longest, 1))
        axes.set_xticks([])
        name_rows(axes, list(result.variables.values()), 18, ends=0.5)
        axes.spines[["left", "bottom"]].set_visible(False)
        for row, variable in enumerate(variables):
            _paint(axes, row, queues.get(variable, []), names)
    handles = [
        Patch(facecolor=_READ[0], label="reads"),
        Patch(facecolor=_MUTATION[0], label="mutates"),
        Patch(facecolor="none", edgecolor="black", linewidth=1.8, label="runs"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    return figure


def _paint(axes: Axes, row: int, queue: Sequence[Any], names: Sequence[str]) -> None:
    for place, waiter in enumerate(queue):
        fill, ink = _MUTATION if waiter.is_mutation else _READ
        axes.add_patch(
            Rectangle(
                (place + 0.04, row - 0.38), 0.92, 0.76, facecolor=fill,
                edgecolor="black" if waiter.is_running else "white",
                linewidth=1.8 if waiter.is_running else 0.5,
            )
        )  # fmt: skip
        axes.text(
            place + 0.5, row, names[waiter.operation], color=ink, fontsize=_SIZE_PT, ha="center",
            va="center",
        )  # fmt: skip
