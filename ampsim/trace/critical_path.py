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
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from ampsim.trace.kinds import LANES, Cause, record_of
from ampsim.trace.records import CausalRecords, Log
from ampsim.trace.table import CHUNK_ROWS, Columns, schema

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

PATH_SCHEMA: Final = schema("start_s end_s kind node direction worker source_worker instance")
PIECE_PARTS: Final = 1 << 20
"""Parts of a path that are read at once (chosen: 45 MB; most paths are one piece)."""

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


class Path:
    """The critical path of a run, from time 0 to the end of its last span; empty without spans.

    It can have as many parts as the run has spans. So it lies in a log, whose end may be on disk,
    and is read in pieces.
    """

    def __init__(self, backward: Log) -> None:
        self._backward = backward

    def pieces(self) -> Iterator[Columns]:
        """The parts in columns, the earliest first, so many at a time that memory is bounded.

        There is at least one piece; only that of an empty path has no parts.
        """
        waiting: list[np.ndarray] = []
        for chunk in self._backward.chunks_backward():
            if sum(map(len, waiting)) >= PIECE_PARTS:
                yield _columns(waiting)
                waiting = []
            waiting.append(chunk[::-1])
        yield _columns(waiting)

    def columns(self) -> Columns:
        """The whole path as columns."""
        return _columns([chunk[::-1] for chunk in self._backward.chunks_backward()])


def critical_path(records: CausalRecords) -> Path:
    """Walk from the last span back to time 0.

    Parts of no length are left out, but for admissions.
    """
    backward = Log(PATH_SCHEMA)
    parts = _walk(records)
    while fields := list(zip(*islice(parts, CHUNK_ROWS), strict=True)):
        columns = zip(PATH_SCHEMA.items(), fields, strict=True)
        backward({name: np.array(values, kind) for (name, kind), values in columns})
    return Path(backward)


def _columns(chunks: list[np.ndarray]) -> Columns:
    return {
        name: np.concatenate([np.zeros(0, kind), *(chunk[name] for chunk in chunks)])
        for name, kind in PATH_SCHEMA.items()
    }


def last_span(records: CausalRecords) -> int:
    """Return the number of the span that ends last, of several the last one; -1 without any."""
    found, end_s, first = -1, -np.inf, 0
    for chunk in records.spans.chunks():
        ends_s = chunk["end_s"][::-1]
        place = int(ends_s.argmax())
        if ends_s[place] >= end_s:
            found, end_s = first + len(chunk) - 1 - place, ends_s[place]
        first += len(chunk)
    return found


def _walk(records: CausalRecords) -> Iterator[Part]:
    """Follow causes from the last span to the start; the parts in the order of the walk.

    Each part comes before the time from its cause's end to its start, if there is any. It ends, for
    no record ends after what it made possible began, and none is met twice.
    """
    later = _met(records, last_span(records), -1)
    for _ in range(len(records.spans) + len(records.transfers) + len(records.admissions)):
        if later is None:
            return
        earlier, from_s = _met(records, later.cause, later.part.instance), 0.0
        if earlier is not None:
            from_s, start_s = earlier.part.end_s, later.part.start_s
            is_rounding = from_s != start_s and is_near(from_s, start_s)
            assert from_s <= start_s or is_rounding, f"{earlier} ends after {later} began"
            if is_rounding:
                earlier, later = _joined(earlier, later)
                from_s = earlier.part.end_s
        part = later.part
        if part.end_s > part.start_s or part.kind in MOMENTS:
            yield part
        if part.start_s > from_s:
            yield Part(from_s, part.start_s, later.queue, *part[3:])
        later = earlier
    assert later is None, f"{later} is met twice: causes run in a circle"


def is_near(first_s: float, second_s: float) -> bool:
    """Tell whether two times differ by rounding at most: clocks count ticks, links add seconds."""
    return abs(first_s - second_s) <= _ROUNDING_S + 4 * math.ulp(second_s)


def _joined(earlier: _Link, later: _Link) -> tuple[_Link, _Link]:
    """Let two parts join between which there is rounding: steps stay as the clock has them."""
    part, start_s = earlier.part, later.part.start_s
    if part.kind != TRANSFER:
        return earlier, later._replace(part=later.part._replace(start_s=part.end_s))
    joined = part._replace(start_s=min(part.start_s, start_s), end_s=start_s)
    return earlier._replace(part=joined), later


def _met(records: CausalRecords, cause: Cause, instance: int) -> _Link | None:
    """The record that is this cause; None at the start of the run, or of a run without steps.

    `instance` is that of what it made possible.
    """
    table, number = record_of(cause)
    if table == "span":
        row = records.spans.row(number)
        start_s, end_s, cause, instance, worker, node, way, lane = row
        part = Part(start_s, end_s, _KIND_OF_LANE[int(lane)], node, way, worker, NOBODY, instance)
        return _Link(part, DEVICE_QUEUE, cause)
    if table == "transfer":
        row = records.transfers.row(number)
        _sent_s, start_s, _held_s, end_s, cause, node, sender, worker, _bytes = row
        part = Part(start_s, end_s, TRANSFER, node, NO_DIRECTION, worker, sender, instance)
        return _Link(part, LINK_QUEUE, cause)
    if table == "admission":
        time_s, cause, is_limited = records.admissions.row(number)
        kind = LIMIT if is_limited else ADMISSION
        part = Part(time_s, time_s, kind, _CONTROLLER, NO_DIRECTION, HOST, NOBODY, instance)
        return _Link(part, DEVICE_QUEUE, cause)
    return None
