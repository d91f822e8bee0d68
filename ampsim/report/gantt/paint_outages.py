"""Painting the times in which a device is slow or down, behind the boxes of its row."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from ampsim.report.gantt.outages import HATCHES, LABELS, outage_rows
from ampsim.report.gantt.paint import Chart
from ampsim.report.style import FAINT_INK, UNUSED, Axes


def paint_outages(axes: Axes, chart: Chart) -> None:
    """Hatch each outage over the whole height of its row, so that a box leaves its edges."""
    rows = outage_rows(chart.outages, chart.lanes.workers)
    for is_down in chart.outages.kinds:
        own = np.array([one[:3] for one in rows if one[3] == is_down]).reshape(-1, 3)
        left, right = (chart.x(own[:, place]) for place in (1, 2))
        top, bottom = own[:, 0] - 0.5, own[:, 0] + 0.5
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        boxes: Any = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        axes.add_collection(
            PolyCollection(
                boxes, facecolors=UNUSED, edgecolors=FAINT_INK, hatch=HATCHES[is_down],
                linewidths=0.0, label=LABELS[is_down],
            ),
            autolim=False,
        )  # fmt: skip


def legend_outages(kinds: set[bool]) -> list[Patch]:
    """The legend's entries for the kinds that there are."""
    return [
        Patch(facecolor=UNUSED, edgecolor=FAINT_INK, hatch=HATCHES[one], label=LABELS[one])
        for one in sorted(kinds, reverse=True)
    ]
