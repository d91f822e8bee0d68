"""Times in which a device is slow or down, as Gantt charts show them: hatched behind the boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ampsim.report.frames import DataFrame, Floats, Integers, floats, integers, texts
from ampsim.report.gantt.boxes import Window

SLOW: Final = "slow"
LABELS: Final = {True: "device down", False: "device slow"}
"""What the legend says of times in which a device is down, and of others."""

HATCHES: Final = {True: "\\\\\\\\", False: "..."}
"""The same, as matplotlib hatches them; apart from the hatches of steps."""


@dataclass(frozen=True, slots=True)
class Outages:
    """Outages that overlap a window, in the order of the record.

    Attributes:
        worker: whose device.
        start_s: when each begins.
        end_s: when it is over.
        is_down: whether the device does nothing meanwhile; otherwise it is slow.
    """

    worker: Integers
    start_s: Floats
    end_s: Floats
    is_down: NDArray[np.bool_]

    @property
    def kinds(self) -> list[bool]:
        """Which of the two there are, down before slow."""
        return sorted({bool(one) for one in self.is_down}, reverse=True)


def outages_in(outages: DataFrame | None, window_s: Window) -> Outages:
    """Outages that overlap a window, cut to it."""
    if outages is None or not len(outages):
        empty = np.empty(0)
        return Outages(np.empty(0, np.int64), empty, empty, np.empty(0, np.bool_))
    start_s, end_s = floats(outages, "start_s"), floats(outages, "end_s")
    chosen = (end_s > window_s[0]) & (start_s < window_s[1])
    is_down = np.array([kind != SLOW for kind in texts(outages, "kind")])
    return Outages(
        integers(outages, "worker")[chosen],
        np.maximum(start_s[chosen], window_s[0]),
        np.minimum(end_s[chosen], window_s[1]),
        is_down[chosen],
    )


def outages_of(run: Any) -> DataFrame | None:
    """The outages of a run, or of its `outline`; None where nobody says."""
    for one in (run, getattr(run, "outline", None)):
        if (found := getattr(one, "outages", None)) is not None:
            return found
    return None


def outage_rows(outages: Outages, workers: Sequence[int]) -> list[list[Any]]:
    """Row, start, end and whether it is down, for each outage of a worker that has a row."""
    place = {worker: row for row, worker in enumerate(workers)}
    columns = (one.tolist() for one in (outages.start_s, outages.end_s, outages.is_down))
    return [
        [place[worker], *rest]
        for worker, *rest in zip(outages.worker.tolist(), *columns, strict=True)
        if worker in place
    ]


def outage_legend(outages: Iterable[Outages]) -> dict[str, str]:
    """What a page's legend says of "down" and "slow" devices, of those that there are."""
    kinds = {kind for one in outages for kind in one.kinds}
    return {("down" if one else "slow"): LABELS[one] for one in sorted(kinds, reverse=True)}
