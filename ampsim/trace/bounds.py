"""What bounds a run: a worker, a link, the critical path, or the limit on what is in flight.

Each is a share of the time. The first three are lower bounds: under this schedule the run could not
have been shorter than the busiest worker's work, the busiest link's traffic, or the longest chain
of steps that wait for one another. The fourth is time in which the busier of that worker and that
link could have worked and had nothing to do. The largest of the four is what to change first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np

from ampsim.trace.admission import Limit, starved_s
from ampsim.trace.critical_path import critical_path_s
from ampsim.trace.links import held_s
from ampsim.trace.window import HOST, Window

_Times: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Starts and ends."""

_NEVER: Final[_Times] = (np.zeros(0), np.zeros(0))
_PartT = TypeVar("_PartT")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shares of a window of time, each in [0, 1]; NaN where no time passed.

    Args:
        bound_by: "worker 3", "critical path", "link 0 to 1", "link host to 1" or
            "admission limit"; None where no time passed.
        worker_share: time in which the busiest worker is busy.
        path_share: length of the critical path.
        link_share: time in which the busiest link is occupied.
        admission_share: time in which the busier of that worker and that link idles, and either as
            many instances are in flight as may be, or all workers idle.
        window_s: the time looked at, from the start of the run.
    """

    bound_by: str | None
    worker_share: float
    path_share: float
    link_share: float
    admission_share: float
    window_s: float


def bounds_of(window: Window, max_active_keys: Limit) -> Bounds:
    """Say what bounds the run in `window`, where at most `max_active_keys` may be in flight."""
    if not window.end_s:
        return Bounds(None, math.nan, math.nan, math.nan, math.nan, 0.0)
    of_worker, of_link = _workers(window), held_s(window)
    worker, link = _busiest(of_worker), _busiest(of_link or {(HOST, HOST): _NEVER})
    busiest = max((of_worker[worker], of_link.get(link, _NEVER)), key=_total_s)
    lasting_s = {
        f"worker {worker}": _total_s(of_worker[worker]),
        "critical path": critical_path_s(window),
        f"link {_place(link[0])} to {_place(link[1])}": _total_s(of_link.get(link, _NEVER)),
        "admission limit": starved_s(window, busiest, max_active_keys),
    }
    shares = {name: seconds / window.end_s for name, seconds in lasting_s.items()}
    bound_by = max(shares, key=shares.__getitem__)  # the first of equals
    of_each = (min(1.0, share) for share in shares.values())
    return Bounds(bound_by, *of_each, window_s=window.end_s)


def _workers(window: Window) -> dict[int, _Times]:
    """From when to when each worker was busy."""
    spans, takes_time = window.spans, window.seconds > 0
    found: dict[int, _Times] = {}
    for worker in range(window.workers):
        is_its = takes_time & (spans["worker"] == worker)
        found[worker] = (spans["start_s"][is_its], spans["end_s"][is_its])
    return found


def _total_s(times: _Times) -> float:
    return float((times[1] - times[0]).sum())


def _busiest(parts: Mapping[_PartT, _Times]) -> _PartT:
    """The part that is busy for longest, the first of equals."""
    return max(parts, key=lambda part: _total_s(parts[part]))


def _place(worker: int) -> str:
    return "host" if worker == HOST else str(worker)
