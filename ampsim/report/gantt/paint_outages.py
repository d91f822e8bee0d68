"""Painting when a device is slow or down, or waits for others, behind the boxes of its row."""

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
    for look in chart.outages.looks:
        own = np.array([one[:3] for one in rows if one[3] == look]).reshape(-1, 3)
        left, right = (chart.x(own[:, place]) for place in (1, 2))
        top, bottom = own[:, 0] - 0.5, own[:, 0] + 0.5
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        boxes: Any = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
        axes.add_collection(
            PolyCollection(
                boxes, facecolors=UNUSED, edgecolors=FAINT_INK, hatch=HATCHES[look],
                linewidths=0.0, label=LABELS[look],
            ),
            autolim=False,
        )  # fmt: skip


def legend_outages(looks: set[str]) -> list[Patch]:
    """The legend's entries for the looks that there are."""
    return [
        Patch(facecolor=UNUSED, edgecolor=FAINT_INK, hatch=HATCHES[one], label=label)
        for one, label in LABELS.items()
        if one in looks
    ]
