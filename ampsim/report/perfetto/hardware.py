"""Tracks of a trace for what befalls devices, and counters for what lies in their memories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ampsim.report.frames import DataFrame, floats, integers, texts
from ampsim.report.perfetto.event_json import (
    arguments,
    in_microseconds,
    in_nanoseconds,
    quoted,
    track_names,
)
from ampsim.report.perfetto.lanes import Lanes
from ampsim.report.words import plain

_CHUNK_ROWS: Final = 1 << 15
_NO_CATEGORY: Final = ("worker", "time_s", "bytes")
_BEHIND: Final = 1 << 20
"""Added to a worker's number for the order of its track of outages: these come behind workers."""


def outage_events(
    outages: DataFrame, pid: int, tids: Iterator[int], end_s: float, what: str = "outages"
) -> Iterator[list[str]]:
    """Lines of the times in which devices were slow or down, a track for each such worker.

    Times that overlap, as slow ones may, have tracks of their own.

    Args:
        outages: rows of `Result.outages`.
        pid: the schedule's process.
        tids: of tracks, each given once.
        end_s: end of the run; what lasts longer is cut there.
        what: the tracks are of.
    """
    lanes: dict[int, Lanes] = {}
    order = np.argsort(floats(outages, "start_s"), kind="stable")
    start_s = floats(outages, "start_s")[order]
    is_there = start_s < end_s
    order, start_s = order[is_there], start_s[is_there]
    start_ns = in_nanoseconds(start_s)
    end_ns = in_nanoseconds(floats(outages, "end_s")[order].clip(max=end_s))
    kinds: list[str] = texts(outages, "kind")
    workers: list[int] = integers(outages, "worker")[order].tolist()
    lost = np.nan_to_num(floats(outages, "updates_lost"))
    names = [quoted(plain(_name(kinds[int(place)], int(lost[place])))) for place in order]
    lines: list[str] = []
    for name, worker, begin, end, ts, dur in zip(
        names, workers, start_ns.tolist(), end_ns.tolist(),
        in_microseconds(start_ns), in_microseconds(end_ns - start_ns), strict=True,
    ):  # fmt: skip
        tid = lanes.setdefault(worker, Lanes()).track(begin, end, tids)
        lines.append(
            f'{{"ph":"X","dur":{dur!r},"ts":{ts!r},"pid":{pid},"tid":{tid},"name":{name},'
            f'"cat":"{what.removesuffix("s")}"}}'
        )
    for start in range(0, len(lines), _CHUNK_ROWS):
        yield lines[start : start + _CHUNK_ROWS]
    yield [line for worker, one in sorted(lanes.items()) for line in _names(worker, one, pid, what)]


def _names(worker: int, lanes: Lanes, pid: int, what: str) -> Iterator[str]:
    for lane, tid in enumerate(lanes.tids, 1):
        name = f"worker {worker}: {what}" + (f", lane {lane}" if len(lanes.tids) > 1 else "")
        yield from track_names(pid, tid, name, _BEHIND + worker)


def _name(kind: str, updates: int) -> str:
    """What a slice is called: the kind, and what was lost."""
    return f"{kind}, {updates} updates lost" if updates else kind


def memory_events(memory: DataFrame, pid: int) -> Iterator[list[str]]:
    """Lines of a counter for each worker: bytes in its memory, by category.

    Each is the fullest moment of a stretch of time, as in `Result.memory`.
    """
    categories = [str(name) for name in memory.columns if name not in _NO_CATEGORY]
    for start in range(0, len(memory), _CHUNK_ROWS):
        chunk = memory[start : start + _CHUNK_ROWS]
        times = in_microseconds(in_nanoseconds(floats(chunk, "time_s")))
        parts = {name: integers(chunk, name).tolist() for name in categories}
        yield [
            f'{{"ph":"C","pid":{pid},"ts":{time_us!r},"name":"memory of worker {worker}",'
            f'"args":{arguments({name: one[row] for name, one in parts.items()})}}}'
            for row, (worker, time_us) in enumerate(
                zip(integers(chunk, "worker").tolist(), times, strict=True)
            )
        ]
