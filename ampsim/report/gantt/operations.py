"""A Gantt chart of a dependency engine's run: a row for each thread, arrows for dependencies.

An arrow leads from the end of the operation whose end made another one ready to that one's start.
Of arrows within one row none is drawn: what follows there needs none to be seen.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from matplotlib.collections import PatchCollection
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from ampsim.dependency import EngineResult
from ampsim.dependency.result import row_name
from ampsim.report.axis import Scale, time_scale
from ampsim.report.gantt.boxes import Window, check_window
from ampsim.report.style import TRANSFER, UNUSED, new_figure, styled, text_width_pt
from ampsim.report.words import plain

ARROWS_MAX: Final = 120  # chosen: more hide what they join
_WIDTH_IN: Final = 10.0
_ROW_IN: Final = 0.36
_SIZE_PT: Final = 7.0
_LOOKS: Final = {
    "compute": ("#E69F00", "#000000", ""),
    "copy-out": ("#0072B2", "#FFFFFF", "////"),
    "copy-in": ("#56B4E9", "#000000", "...."),
    "dispatch": ("#C9A6D4", "#000000", ""),
    "push": ("#8C8C8C", "#FFFFFF", ""),
}
"""Fill, ink and hatch of each kind of thread: apart in lightness, too."""


@styled
def operations_gantt(result: EngineResult, window_s: Window | None = None, title: str = "") -> Any:
    """The chart.

    Args:
        result: what ran.
        window_s: start and end of the time shown; all of it unless given.
        title: heading; the policy's name unless given.

    Raises:
        OptionError: the window is empty or reversed.
    """
    window = check_window(window_s) if window_s else (0.0, result.makespan_s or 1.0)
    boxes = _boxes(result, window)
    rows: list[int] = sorted({int(box[0]) for box in boxes}) or [0]
    place = {row: index for index, row in enumerate(rows)}
    figure: Any = new_figure(_WIDTH_IN, 1.1 + _ROW_IN * len(rows))
    axes: Any = figure.add_subplot()
    scale = time_scale(*window)
    axes.set_xlim(_x(scale, window[0]), _x(scale, window[1]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row_name(result.rows[row]) for row in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(scale.label("virtual time"))
    axes.set_title(plain(title or result.policy.name))
    for index in range(len(rows)):
        axes.axhspan(index - 0.44, index + 0.44, color=UNUSED, zorder=0)
    kinds = _paint(axes, boxes, place, scale)
    shown = _arrows(axes, result, place, (window, scale))
    handles = [Patch(facecolor=_LOOKS[kind][0], label=kind.replace("-", " ")) for kind in kinds]
    if shown:
        handles.append(Patch(facecolor=TRANSFER, label="made ready by"))
    figure.legend(handles=handles, loc="outside upper right", ncols=6)
    _name(figure, axes, boxes, place, scale)
    return figure


def _boxes(result: EngineResult, window: Window) -> list[Any]:
    """(row, start, end, kind, name) of all that takes time in the window."""
    table, found = result.operations, list[Any]()
    columns = ("thread", "start_s", "end_s", "kind", "name")
    for row, start_s, end_s, kind, name in zip(*(table[one] for one in columns), strict=True):
        if end_s > start_s and end_s > window[0] and start_s < window[1]:
            found.append((int(row), max(start_s, window[0]), min(end_s, window[1]), kind, name))
    issued = result.dispatches
    pushed = zip(itertools.repeat(0), result.pushes["start_s"], result.pushes["end_s"])
    others = {"push": pushed, "dispatch": zip(*(issued[one] for one in columns[:3]), strict=True)}
    for kind, spans in others.items():
        for row, start_s, end_s in spans:
            if end_s > start_s and end_s > window[0] and start_s < window[1]:
                found.append((row, max(start_s, window[0]), min(end_s, window[1]), kind, ""))
    return found


def _paint(axes: Any, boxes: list[Any], place: dict[int, int], scale: Any) -> list[str]:
    """Draw the boxes; return the kinds that there are."""
    kinds = [kind for kind in _LOOKS if any(box[3] == kind for box in boxes)]
    for kind in kinds:
        fill, _ink, hatch = _LOOKS[kind]
        patches = [
            Rectangle(
                (_x(scale, start_s), place[row] - 0.36), _x(scale, end_s) - _x(scale, start_s), 0.72
            )
            for row, start_s, end_s, one, _name in boxes
            if one == kind
        ]
        axes.add_collection(
            PatchCollection(
                patches, facecolor=fill, edgecolor="none" if kind == "push" else "white",
                linewidth=0.0 if kind == "push" else 0.5, hatch=hatch or None,
                zorder=2,
            )
        )  # fmt: skip
    return kinds


def _arrows(axes: Any, result: EngineResult, place: dict[int, int], shown: Any) -> int:
    """Draw what made operations of other rows ready; return how many arrows there are."""
    (start, end), scale = shown
    table = result.operations
    thread, start_s, end_s = (table[one].to_numpy() for one in ("thread", "start_s", "end_s"))
    chosen = [
        one
        for one in result.dependencies
        if thread[one.source] != thread[one.target]
        and thread[one.source] in place
        and thread[one.target] in place
        and start <= end_s[one.source]
        and start_s[one.target] <= end
    ]
    step = max(1, -(-len(chosen) // ARROWS_MAX))
    for one in chosen[::step]:
        tail = (_x(scale, end_s[one.source]), place[int(thread[one.source])])
        head = (_x(scale, start_s[one.target]), place[int(thread[one.target])])
        axes.add_patch(
            FancyArrowPatch(
                tail, head, arrowstyle="-|>", mutation_scale=6, linewidth=0.6, color=TRANSFER,
                alpha=0.75, shrinkA=0, shrinkB=0, zorder=3,
            )
        )  # fmt: skip
    return len(chosen)


def _name(figure: Any, axes: Any, boxes: list[Any], place: dict[int, int], scale: Any) -> None:
    """Write names into the boxes that have room for them."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    width = axes.get_position().width * figure.get_figwidth() * 72.0
    left, right = axes.get_xlim()
    for row, start_s, end_s, kind, name in boxes:
        room_pt = (_x(scale, end_s) - _x(scale, start_s)) / (right - left) * width - 3.0
        text = plain(name, 40)
        if text and text_width_pt(text, _SIZE_PT) <= room_pt:
            middle = (_x(scale, start_s) + _x(scale, end_s)) / 2
            axes.text(
                middle, place[row], text, fontsize=_SIZE_PT, color=_LOOKS[kind][1], zorder=4,
                ha="center", va="center",
                bbox={"facecolor": _LOOKS[kind][0], "edgecolor": "none", "pad": 0.6}
                if _LOOKS[kind][2] else None,
            )  # fmt: skip


def _x(scale: Scale, time_s: float) -> float:
    """Where a time is drawn."""
    return (time_s - scale.origin) * scale.factor
