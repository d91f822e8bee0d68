"""The critical path: what the last step of a run had to wait for, back to time zero.

The walk starts at the span that ends last and follows causes: the span, transfer or admission that
made each one possible. Between the end of a cause and the start of what it led to, the message
waited, for its device or for its link. So the path has no gap and no overlap: its parts add up to
the makespan.

A message waits at a device because other work comes first: the device is busy, it is another
stage's turn, or more messages are waited for, to be merged; or because the device is down. A step
that a worker merged with others counts for its own part of the group's time; what it sends leaves,
and is caused, by the last part.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from ampsim.trace.causes import Cause, record_of
from ampsim.trace.kinds import LANES
from ampsim.trace.records import Records
from ampsim.trace.table import Columns

KINDS: Final = (
    "compute", "device queue", "transfer", "link queue", "admission", "limit", "dispatch", "copy",
)  # fmt: skip
"""What a part of the path is; the column `kind` has their places here.

`compute` is a step on its device and `transfer` a message's way over a link; `device queue` and
`link queue` are a message's wait for one. `admission` and `limit` are moments, of no length, at
which the controller let instances in; those of `limit` had been kept out by the number in flight.
`dispatch` and `copy` are a step of such a lane of a device, whose wait is a `device queue` too.
"""
COMPUTE, DEVICE_QUEUE, TRANSFER, LINK_QUEUE, ADMISSION, LIMIT, DISPATCH, COPY = range(len(KINDS))
MOMENTS: Final = (ADMISSION, LIMIT)
WORK: Final = (COMPUTE, TRANSFER, DISPATCH, COPY)
"""What takes time, and is no wait."""

_KIND_OF_LANE: Final = (COMPUTE, DISPATCH, COPY, COPY)
assert len(_KIND_OF_LANE) == len(LANES)

PATH_SCHEMA: Final[dict[str, Any]] = {
    "start_s": np.float64,
    "end_s": np.float64,
    "kind": np.int8,
    "node": np.int32,
    "direction": np.int8,
    "worker": np.int32,
    "source_worker": np.int32,
    "instance": np.int64,
}
NO_DIRECTION: Final = -1
HOST: Final = -1
NOBODY: Final = -2
"""In place of a worker that sends, of a part that is no transfer."""

_CONTROLLER: Final = 0
_ROUNDING_S: Final = 1e-18


class Part(NamedTuple):
    """One row of the path. Of a transfer, `worker` receives and `source_worker` sends."""

    start_s: float
    end_s: float
    kind: int
    node: int
    direction: int
    worker: int
    source_worker: int
    instance: int


class _Link(NamedTuple):
    """A record that the walk meets, how a message waits for it, and what made it possible."""

    part: Part
    queue: int
    cause: Cause


def critical_path(records: Records) -> Columns:
    """Return the path as columns, from time 0 to the end of the last span; empty without spans.

    Parts of no length are left out, but for admissions.
    """
    parts = [part for part in _walk(records) if part.end_s > part.start_s or part.kind in MOMENTS]
    parts.reverse()
    fields = list(zip(*parts, strict=True)) or [()] * len(PATH_SCHEMA)
    columns = zip(PATH_SCHEMA.items(), fields, strict=True)
    return {name: np.array(values, kind) for (name, kind), values in columns}


def last_span(records: Records) -> int:
    """Return the number of the span that ends last, of several the last one; -1 without any."""
    found, end_s, first = -1, -np.inf, 0
    for chunk in records.spans.chunks():
        ends_s = chunk["end_s"][::-1]
        place = int(ends_s.argmax())
        if ends_s[place] >= end_s:
            found, end_s = first + len(chunk) - 1 - place, ends_s[place]
        first += len(chunk)
    return found


def _walk(records: Records) -> list[Part]:
    """Follow causes from the last span to the start; the parts in the order of the walk."""
    parts: list[Part] = []
    cause, link = last_span(records), None
    while (earlier := _met(records, cause, link)) is not None:
        if link is not None:
            if _is_rounding(earlier.part.end_s, link.part.start_s):
                earlier = _joined(parts, earlier)
            _wait(parts, link, earlier.part.end_s)
        parts.append(earlier.part)
        cause, link = earlier.cause, earlier
    if link is not None:
        _wait(parts, link, 0.0)
    return parts


def _is_rounding(first_s: float, second_s: float) -> bool:
    """Whether two times differ by rounding alone: the clock counts ticks, links add up seconds."""
    return 0 < abs(first_s - second_s) <= _ROUNDING_S + 4 * math.ulp(second_s)


def _joined(parts: list[Part], earlier: _Link) -> _Link:
    """Let two parts join between which there is rounding: steps stay as the clock has them."""
    part, later = earlier.part, parts[-1]
    if part.kind != TRANSFER:
        parts[-1] = later._replace(start_s=part.end_s)
        return earlier
    joined = part._replace(start_s=min(part.start_s, later.start_s), end_s=later.start_s)
    return earlier._replace(part=joined)


def _wait(parts: list[Part], link: _Link, from_s: float) -> None:
    """Add the time from a cause's end to the start of what it led to, if there is any."""
    until_s = parts[-1].start_s
    if until_s > from_s:
        parts.append(link.part._replace(kind=link.queue, start_s=from_s, end_s=until_s))


def _met(records: Records, cause: Cause, later: _Link | None) -> _Link | None:
    """The record that is this cause; None at the start of the run, or of a run without steps."""
    table, number = record_of(cause)
    instance = -1 if later is None else later.part.instance
    if table == "span":
        row = records.spans.row(number).item()
        start_s, end_s, cause, instance, worker, node, way, *lane = row
        kind = _KIND_OF_LANE[lane[0]] if lane else COMPUTE
        part = Part(start_s, end_s, kind, node, way, worker, NOBODY, instance)
        return _Link(part, DEVICE_QUEUE, cause)
    if table == "transfer":
        row = records.transfers.row(number).item()
        _sent_s, start_s, _held_s, end_s, cause, node, sender, worker, _bytes = row
        part = Part(start_s, end_s, TRANSFER, node, NO_DIRECTION, worker, sender, instance)
        return _Link(part, LINK_QUEUE, cause)
    if table == "admission":
        time_s, cause, is_limited = records.admissions.row(number).item()
        kind = LIMIT if is_limited else ADMISSION
        part = Part(time_s, time_s, kind, _CONTROLLER, NO_DIRECTION, HOST, NOBODY, instance)
        return _Link(part, DEVICE_QUEUE, cause)
    return None
