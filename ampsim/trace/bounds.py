"""A run is bounded by a worker, a link, its critical path, or the limit on what is in flight.

Each is a share of the makespan, measured over the whole run. A run cannot be shorter than its
busiest worker's work or its busiest link's traffic; where messages of several pairs of workers
share edges and ports, it is the busiest of these. The third is the critical path without what the
limit on instances in flight alone made wait: the steps and transfers on it since the last instance
that the limit had kept out, and before the barriers earlier on it likewise. The fourth is time in
which instances are kept out while the busier of that worker and that link has nothing to do. The
largest of the four is what to change first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ampsim.trace.critical_path import ADMISSION, COMPUTE, HOST, LIMIT, WORK, Path
from ampsim.trace.kinds import COMPUTE_LANE, LANES
from ampsim.trace.records import CausalRecords
from ampsim.trace.table import Columns

Place: TypeAlias = "tuple[int, int]"
"""(worker, worker) of a link; (worker, lane) of a device."""


class Crossing(NamedTuple):
    """An edge, link or port that messages from one worker to another cross.

    Args:
        name: such as "edge 0 to hub"; equal for all pairs of workers that share it.
        bytes_per_s: its rate, of which a message takes a part; None where each message holds it
            alone, as long as it holds its whole way.
    """

    name: str
    bytes_per_s: float | None


Crossings: TypeAlias = "Callable[[int, int], Sequence[Crossing]]"
"""What messages from one worker to another cross."""

_UPDATE: Final = 0
_ALL: Final = -3
"""In place of who sends, where a transfer stands for a collective; its kind then follows."""

_ROUNDING: Final = 1e-9  # of sums of the same times in another order


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shares of the makespan, each in [0, 1]; NaN where no time passed.

    Args:
        bound_by: "worker 3", "critical path", "link 0 to 1", "link host to 1" or
            "admission limit": what has the largest share; None where no time passed. It is "host"
            or "copy-out of worker 3" where such a lane is busier than all workers, and a
            crossing's name where messages cross edges and ports that others cross too.
        worker_share: time in which the busiest worker, host or other lane of a device is busy.
        path_share: steps and transfers on the critical path that no limit on instances in flight
            made wait.
        link_share: time in which the busiest link is occupied; of an edge or port that messages
            share, what they bring over it takes at its full rate.
        admission_share: time in which the busier of that worker and that link idles while
            instances are kept out.
    """

    bound_by: str | None
    worker_share: float
    path_share: float
    link_share: float
    admission_share: float


def bounds_of(records: CausalRecords, path: Path, crossings: Crossings | None = None) -> Bounds:
    """Say what bounds a run.

    Args:
        records: all of the run.
        path: its critical path.
        crossings: what messages between workers cross; None where each pair of workers has a link
            of its own.
    """
    unlimited_s, makespan_s = _unlimited_s(path)
    if not makespan_s:
        return Bounds(None, math.nan, math.nan, math.nan, math.nan)
    closed = _Closed(records.closures, makespan_s)
    workers = _devices_busy(records, closed)
    links = _links_used(records, closed, makespan_s, crossings or _link)
    worker = _busiest(dict(sorted(workers.items())), (HOST, HOST))
    link = _busiest(links, "link host to host")
    busiest = max((workers.get(worker, _NOTHING), links.get(link, _NOTHING)))
    lasting_s = {
        _device(worker): workers.get(worker, _NOTHING)[0],
        "critical path": unlimited_s,
        link: links.get(link, _NOTHING)[0],
        "admission limit": closed.whole_s - busiest[1],
    }
    shares = {name: min(1.0, max(0.0, one / makespan_s)) for name, one in lasting_s.items()}
    bound_by = max(shares, key=shares.__getitem__)  # the first of equals
    return Bounds(bound_by, *shares.values())


class _Closed:
    """The stretches of time in which instances were kept out, of copies of a model by any."""

    def __init__(self, closures: Iterable[tuple[float, bool]], end_s: float) -> None:
        times_s, are_closed = zip(*closures, (end_s, False), strict=True)
        self._times_s = np.minimum(times_s, end_s)
        closed = np.cumsum(np.where(are_closed, 1, -1))[:-1] >= 0  # all begin open, which is one -1
        lasting_s = np.diff(self._times_s) * closed
        self._until_s = np.concatenate([[0.0], np.cumsum(lasting_s)])
        self.whole_s = float(self._until_s[-1])

    def within_s(self, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
        """Seconds of each time from start to end in which instances were kept out."""
        first, last = (np.interp(at, self._times_s, self._until_s) for at in (start_s, end_s))
        return last - first


_Seconds: TypeAlias = "tuple[float, float]"
"""Seconds busy, and those of them in which instances were kept out."""

_Busy: TypeAlias = "dict[Place, _Seconds]"

_NOTHING: Final = (0.0, 0.0)


def _devices_busy(records: CausalRecords, closed: _Closed) -> _Busy:
    found: _Busy = {}
    for chunk in records.spans.chunks():
        places = np.stack([chunk["worker"], chunk["lane"].astype(np.int32)])
        _add(found, places, (chunk["start_s"], chunk["end_s"]), closed)
    return found


def _links_used(
    records: CausalRecords, closed: _Closed, end_s: float, crossings: Crossings
) -> dict[str, _Seconds]:
    held, carried, first = dict[Place, _Seconds](), dict[Place, _Seconds](), 0
    numbers, kinds = np.array(records.collectives.numbers), np.array(records.collectives.kinds)
    for chunk in records.transfers.chunks():
        start_s, held_s = (np.minimum(chunk[name], end_s) for name in ("start_s", "held_s"))
        places = np.stack([chunk["source_worker"], chunk["target_worker"]])
        own = slice(*np.searchsorted(numbers, [first, first + len(chunk)]))
        if len(numbers[own]):
            places[0, numbers[own] - first], places[1, numbers[own] - first] = _ALL, kinds[own]
        first += len(chunk)
        _add(held, places, (start_s, held_s), closed)
        lasting_s = chunk["held_s"] - chunk["start_s"]
        bytes_per_s = chunk["bytes"] / np.where(lasting_s > 0, lasting_s, np.inf)
        _add(carried, places, (start_s, held_s), closed, bytes_per_s)
    for kind, way in enumerate(records.collectives.ways):
        whole = held.pop((_ALL, kind), _NOTHING)
        for pair, share in way.items():
            before = held.get(pair, _NOTHING)
            held[pair] = (before[0] + share * whole[0], before[1] + share * whole[1])
    found = dict[str, _Seconds]()
    for pair in sorted(held):
        for name, rate in crossings(*pair):
            busy, shut = held[pair] if rate is None else carried[pair]
            per_s, before = rate or 1.0, found.get(name, _NOTHING)
            found[name] = (before[0] + busy / per_s, before[1] + shut / per_s)
    return found


def _link(source: int, target: int) -> list[Crossing]:
    return [Crossing(f"link {_place(source)} to {_place(target)}", None)]


def _add(
    found: _Busy,
    ends: np.ndarray,
    times_s: tuple[np.ndarray, np.ndarray],
    closed: _Closed,
    per_s: np.ndarray | float = 1.0,
) -> None:
    """Add the times of a chunk to those of the places that it names, `ends`, (2, records).

    `per_s` is what counts for each second of a record, such as its bytes.
    """
    start_s, end_s = times_s
    low = int(ends.min(initial=0))
    one, other = ends.astype(np.int64) - low
    width = int(ends.max(initial=0)) - low + 1
    known, number = np.unique(one * width + other, return_inverse=True)  # quicker than of pairs
    busy_s = np.bincount(number, weights=(end_s - start_s) * per_s)
    closed_s = np.bincount(number, weights=closed.within_s(start_s, end_s) * per_s)
    for code, busy, shut in zip(known.tolist(), busy_s, closed_s, strict=True):
        place = code // width + low, code % width + low
        before = found.get(place, _NOTHING)
        found[place] = (before[0] + float(busy), before[1] + float(shut))


_Part = TypeVar("_Part", str, Place)


def _busiest(parts: Mapping[_Part, _Seconds], nothing: _Part) -> _Part:
    """The part that is busy for longest, the first of equals; `nothing` where there is none."""
    most_s = max((busy_s for busy_s, _closed_s in parts.values()), default=0.0) * (1 - _ROUNDING)
    return next((part for part in parts if parts[part][0] >= most_s), nothing)


def _unlimited_s(path: Path) -> tuple[float, float]:
    """Seconds of steps and transfers that would remain if no limit had kept an instance out.

    What comes before an instance that the limit had kept out need not have come before it; what
    comes before a barrier, an update of the controller's or the start of a pass, must.

    Returns:
        These seconds, and those of the whole path.
    """
    total_s = open_s = end_s = 0.0  # `open_s`, of the total, is what a limit may still take back
    for piece in path.pieces():
        if not len(piece["kind"]):
            break
        segment, is_limit, counted_s = _segments(piece)
        first, last = segment == 0, segment == segment[-1]
        if bool((is_limit & first).any()):
            total_s, open_s = total_s - open_s, 0.0
        total_s += float(counted_s[counted_s > 0].sum())
        open_s = float(counted_s[last].sum()) + (open_s if segment[-1] == 0 else 0.0)
        end_s = float(piece["end_s"][-1])
    return total_s, end_s


def _segments(path: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the stretch between barriers of each part, whether it is a limit, and its seconds."""
    kinds = path["kind"]
    is_barrier = (kinds == ADMISSION) | (
        (kinds == COMPUTE) & (path["direction"] == _UPDATE) & (path["instance"] < 0)
    )
    segment = np.cumsum(is_barrier)  # a barrier belongs to what comes after it
    last_limit = np.full(int(segment.max(initial=0)) + 1, -1)
    limits = np.flatnonzero(kinds == LIMIT)
    last_limit[segment[limits]] = limits
    counts = np.isin(kinds, WORK)
    counts &= np.arange(len(kinds)) > last_limit[segment]
    return segment, kinds == LIMIT, np.where(counts, path["end_s"] - path["start_s"], 0.0)


def _device(place: Place) -> str:
    worker, lane = place
    name = "host" if worker == HOST else f"worker {worker}"
    return f"{LANES[lane]} of {name}" if lane > COMPUTE_LANE else name


def _place(worker: int) -> str:
    return "host" if worker == HOST else str(worker)
