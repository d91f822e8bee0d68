"""Events of a Perfetto trace as JSON, and arrows between them."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

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


Place: TypeAlias = tuple[str, int]
"""Track of a slice, as it stands in the file, and a time inside it in ns."""

_WAITING_MAX = 1 << 16  # chosen: more than any schedule has in flight; validation never comes back


class FlowStep(NamedTuple):
    """What an arrow needs to know of a step; `state` is the message's, in words."""

    node: str
    direction: str
    instance: int
    state: str
    staleness: int


class Flows:
    """Joins steps as they come; an arrow is written when its head is known, so none hangs.

    A node keeps an activation under its message's state, so a backward step used that of the
    forward step with the same node, instance and state. Of several such forward steps, whose states
    differ in what the trace does not keep, the last is taken. The causes that the trace has do not
    tell: a gradient's is the step that sent it, which is another node's.
    """

    def __init__(self) -> None:
        """Start without arrows."""
        self._next_id = 1
        self._nodes: Collection[str] = ()
        self._forwards: OrderedDict[tuple[str, int], dict[str, list[Place]]] = OrderedDict()
        self._gradients: dict[str, list[Place]] = {}

    def start(self, nodes: Collection[str]) -> None:
        """Begin another schedule, in which `nodes` have updates; others get no arrows."""
        self._nodes = nodes
        self._forwards.clear()
        self._gradients.clear()

    def take(self, lines: list[str], step: FlowStep, place: Place) -> None:
        """Add a step; append the arrows that end there."""
        if step.node not in self._nodes:
            return
        if step.direction == "forward":
            self._wait(step, place)
        elif step.direction == "update":
            for gradient in self._gradients.pop(step.node, ()):
                self.join(lines, "gradient", gradient, place)
        elif step.staleness >= 0:
            self._gradients.setdefault(step.node, []).append(place)
            activation = self._activation_of(step)
            if activation:
                self.join(lines, "activation", activation, place)

    def join(self, lines: list[str], name: str, tail: Place, head: Place) -> None:
        """Append an arrow of that name."""
        common = f'"id":{self._next_id},"name":{quoted(name)},"cat":"flow"'
        self._next_id += 1
        for shape, (track, time_ns) in (('"ph":"s"', tail), ('"ph":"f","bp":"e"', head)):
            lines.append(f'{{{shape},{track},"ts":{in_microseconds_of(time_ns)!r},{common}}}')

    def _wait(self, step: FlowStep, place: Place) -> None:
        waiting = self._forwards.setdefault((step.node, step.instance), {})
        waiting.setdefault(step.state, []).append(place)
        if len(self._forwards) > _WAITING_MAX:
            self._forwards.popitem(last=False)

    def _activation_of(self, step: FlowStep) -> Place | None:
        """The forward step whose activation a backward step used; None where it is unknown."""
        of = step.node, step.instance
        waiting = self._forwards.get(of, {})
        places = waiting.get(step.state)
        if not places:
            return None
        found = places.pop()
        if not places:
            del waiting[step.state]
        if not waiting:
            del self._forwards[of]
        return found
