"""JSON of the trace event format: finite numbers, times in microseconds, escaped names."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ampsim.errors import OptionError
from ampsim.report.frames import Floats, Integers

LONGEST_S: Final = 9e9
"""Seconds in nearly 2^63 nanoseconds, the longest time in 64 bits."""


def quoted(text: str) -> str:
    r"""A JSON string in ASCII, without "<", which a browser could read as HTML.

    >>> print(quoted('<b> "ä"'))
    "\u003cb> \"\u00e4\""
    """
    return json.dumps(text).replace("<", "\\u003c")


def arguments(values: Mapping[str, Any]) -> str:
    """A JSON object of texts and numbers; numbers that are not finite are left out.

    >>> arguments({"mean": 0.5, "loss": float("nan")})
    '{"mean":0.5}'
    """
    known = {
        key: value
        for key, value in values.items()
        if not isinstance(value, float) or math.isfinite(value)
    }
    pairs = (
        f"{quoted(key)}:{quoted(value) if isinstance(value, str) else repr(value)}"
        for key, value in known.items()
    )
    return f"{{{','.join(pairs)}}}"


def metadata(place: str, what: str, values: Mapping[str, Any]) -> str:
    """An event that names or orders a process or a track.

    >>> metadata('"pid":1', "process_name", {"name": "amp"})
    '{"ph":"M","pid":1,"name":"process_name","args":{"name":"amp"}}'
    """
    return f'{{"ph":"M",{place},"name":"{what}","args":{arguments(values)}}}'


def track_names(pid: int, tid: int, name: str, order: int) -> Iterator[str]:
    """Name and order of a track."""
    place = f'"pid":{pid},"tid":{tid}'
    yield metadata(place, "thread_name", {"name": name})
    yield metadata(place, "thread_sort_index", {"sort_index": order})


def in_nanoseconds(time_s: Floats) -> Integers:
    """Times in whole nanoseconds; rounding keeps their order.

    Raises:
        OptionError: a time is too long for the format.
    """
    if time_s.max(initial=0.0) >= LONGEST_S:
        raise OptionError(
            f"a trace for Perfetto counts nanoseconds and ends before {LONGEST_S:.1e} s, got a "
            f"step at {float(time_s.max()):.3g} s; take another format, such as .html"
        )
    return np.rint(time_s * 1e9).astype(np.int64)


def in_microseconds(time_ns: Integers) -> list[float]:
    """Times in microseconds; Perfetto multiplies them by 1000 and cuts the fraction off.

    Where the cut would lose a nanosecond, the time is the next larger number.

    >>> in_microseconds(np.array([16_001, 2_000]))
    [16.001, 2.0]
    """
    time_us = time_ns / 1000.0
    is_cut = np.trunc(time_us * 1000.0) < time_ns
    return np.where(is_cut, np.nextafter(time_us, np.inf), time_us).tolist()


def in_microseconds_of(time_ns: int) -> float:
    """One time in microseconds, as `in_microseconds` gives it.

    >>> in_microseconds_of(16_001)
    16.001
    """
    time_us = time_ns / 1000.0
    return math.nextafter(time_us, math.inf) if int(time_us * 1000.0) < time_ns else time_us
