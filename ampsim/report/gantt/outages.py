"""Times in which a device is slow or down, or waits for others, as Gantt charts show them.

They are hatched behind the boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ampsim.report.frames import (
    AnyRun,
    DataFrame,
    Floats,
    Integers,
    floats,
    integers,
    joined,
    texts,
)
from ampsim.report.gantt.boxes import INSTANCES, Window

DOWN: Final = "down"
LOST: Final = "lost"
CHECKPOINT: Final = "checkpoint"
SLOW: Final = "slow"
WAITS: Final = "waits"
LABELS: Final = {
    DOWN: "device down",
    LOST: "device down, updates lost",
    CHECKPOINT: "checkpoint",
    SLOW: "device slow",
    WAITS: "waits for others",
}
"""What the legend says of each look, in its order."""

HATCHES: Final = {
    DOWN: "\\\\\\\\",
    LOST: "xxxx",
    CHECKPOINT: "----",
    SLOW: "...",
    WAITS: "||||",
}
"""The same, as matplotlib hatches them; apart from the hatches of steps."""


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages and waits that overlap a window, in the order of the record.

    Attributes:
        worker: whose device.
        start_s: when each begins.
        end_s: when it is over.
        look: how it is drawn, one of `LABELS`: the device does nothing meanwhile, comes back
            without some updates, takes a checkpoint, is slow, or waits for other ranks or a server.
    """

    worker: Integers
    start_s: Floats
    end_s: Floats
    look: NDArray[np.str_]

    @property
    def looks(self) -> list[str]:
        """Which there are, in the order of `LABELS`."""
        return [one for one in LABELS if one in self.look]


def outages_in(outages: DataFrame | None, window_s: Window) -> Outages:
    """Outages that overlap a window, cut to it."""
    if outages is None or not len(outages):
        empty = np.empty(0)
        return Outages(np.empty(0, np.int64), empty, empty, np.empty(0, np.str_))
    start_s, end_s = floats(outages, "start_s"), floats(outages, "end_s")
    chosen = (end_s > window_s[0]) & (start_s < window_s[1])
    look = np.array([_look_of(kind) for kind in texts(outages, "kind")])
    look = np.where(floats(outages, "updates_lost") > 0, LOST, look)
    return Outages(
        integers(outages, "worker")[chosen],
        np.maximum(start_s[chosen], window_s[0]),
        np.minimum(end_s[chosen], window_s[1]),
        look[chosen],
    )


def _look_of(kind: str) -> str:
    if kind.startswith(WAITS):
        return WAITS
    return kind if kind in (SLOW, CHECKPOINT) else DOWN


def outages_of(run: AnyRun) -> DataFrame:
    """The outages of a run and the waits of its ranks."""
    outages, waits = run.outages, run.waits
    if not len(waits):
        return outages
    return joined([outages, waits]) if len(outages) else waits


def instances_of(every: Iterable[DataFrame | None]) -> int:
    """Instances that a chart shows unless told: of ranks that wait, an exchange of each."""
    waiting = 0
    for one in every:
        if one is not None and len(one):
            waits = [kind.startswith(WAITS) for kind in texts(one, "kind")]
            waiting = max(waiting, len(np.unique(integers(one, "worker")[waits])))
    return max(INSTANCES, 2 * waiting)


def outage_rows(outages: Outages, workers: Sequence[int]) -> list[list[Any]]:
    """Row, start, end and look, for each outage of a worker that has a row."""
    place = {worker: row for row, worker in enumerate(workers)}
    columns = (one.tolist() for one in (outages.start_s, outages.end_s, outages.look))
    return [
        [place[worker], *rest]
        for worker, *rest in zip(outages.worker.tolist(), *columns, strict=True)
        if worker in place
    ]


def outage_legend(outages: Iterable[Outages]) -> dict[str, str]:
    """What a page's legend says of each look that there is."""
    looks = {look for one in outages for look in one.looks}
    return {one: label for one, label in LABELS.items() if one in looks}
