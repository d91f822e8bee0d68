"""The rules of the trace event format, as Perfetto reads it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

ROUNDING_US = 1e-9


def check_trace(events: list[dict]) -> None:
    """Fails where the trace event format is broken."""
    assert {event["ph"] for event in events} <= set("MXiCsf")
    named = Counter()
    for event in events:
        assert isinstance(event["pid"], int) and event["pid"] > 0
        if event["ph"] == "M":
            named[event["name"], event["pid"], event.get("tid")] += 1
            continue
        assert isinstance(event["name"], str) and event["name"]
        assert math.isfinite(event["ts"]) and event["ts"] >= 0
        assert isinstance(event.get("args", {}), dict)
        if event["ph"] in "Xisf":
            assert isinstance(event["tid"], int) and event["tid"] > 0
        if event["ph"] == "C":
            assert event["args"] and all(math.isfinite(x) for x in event["args"].values())
    assert set(named.values()) == {1}
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xisf"}
    for pid, tid in tracks:
        for what, place in (("thread", tid), ("process", None)):
            assert named[f"{what}_name", pid, place] == 1
            assert named[f"{what}_sort_index", pid, place] == 1
    check_nesting(events)
    check_flows(events)


def check_nesting(events: list[dict]) -> None:
    """On each track a slice ends before the next begins, or encloses it, after Perfetto's cut."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start, length = int(event["ts"] * 1000.0), int(event["dur"] * 1000.0)
            assert length >= 0
            tracks[event["pid"], event["tid"]].append((start, -length))
    for slices in tracks.values():
        open_until = []
        for start, minus_length in sorted(slices):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            end = start - minus_length
            assert not open_until or end <= open_until[-1], (start, end)
            open_until.append(end)


def check_flows(events: list[dict]) -> None:
    """Each arrow has one tail and one head, in this order, both inside a slice."""
    ends = defaultdict(list)
    slices = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]].append(event)
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for of_track in slices.values():
        of_track.sort()
    for tail, head in ends.values():
        assert (tail["ph"], head["ph"], head["bp"]) == ("s", "f", "e")
        assert tail["ts"] <= head["ts"]
        assert tail["name"] == head["name"]
        for end in (tail, head):
            starts = [start for start, _ in slices[end["pid"], end["tid"]]]
            index = int(np.searchsorted(starts, end["ts"], side="right")) - 1
            begin, until = slices[end["pid"], end["tid"]][index]
            assert begin <= end["ts"] <= until + ROUNDING_US


@pytest.fixture(scope="session")
def check_rules() -> Callable[[list[dict[str, Any]]], None]:
    """Fails where the events of a trace for Perfetto break the format's rules."""
    return check_trace
