"""The part of a run that a chart shows: a window of time, or the time of some instances."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ampsim.errors import OptionError
from ampsim.report.frames import DataFrame, floats, integers
from ampsim.report.gantt.boxes import Window, check_window
from ampsim.units import format_seconds

_ROUNDING = 1e-4
"""How much later than the end a window may end (chosen: ends are told in six digits)."""

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "\u03bcs": 1e-6, "ns": 1e-9}
_TIME = re.compile(rf"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*({'|'.join(_UNITS)})?\Z")
_INSTANCES = re.compile(r"instances?:([0-9]+)(?:-([0-9]+))?\Z")


@dataclass(frozen=True, slots=True)
class Instances:
    """The time from the start of the first step of some instances to the end of their last.

    Attributes:
        first: number of the first.
        last: number of the last.
    """

    first: int
    last: int

    def window(self, spans_by_schedule: Mapping[str, DataFrame]) -> Window:
        """One window for all schedules.

        Raises:
            OptionError: no step of these instances takes time.
        """
        ends: list[float] = []
        starts: list[float] = []
        highest = -1
        for spans in spans_by_schedule.values():
            instance = integers(spans, "instance")
            start_s, end_s = floats(spans, "start_s"), floats(spans, "end_s")
            chosen = (instance >= self.first) & (instance <= self.last) & (end_s > start_s)
            highest = max(highest, int(np.max(instance, initial=-1)))
            if chosen.any():
                starts.append(float(np.min(start_s[chosen])))
                ends.append(float(np.max(end_s[chosen])))
        if not starts:
            raise OptionError(
                f"--window instance:{self.first}-{self.last}: no step of these instances takes "
                f"time; the last instance of this run is {highest}"
            )
        return min(starts), max(ends)


Choice: TypeAlias = "Window | Instances"


def parse_window(text: str) -> Choice:
    """Reads --window: ``0:2e-5``, ``0:2ms``, ``instance:3`` or ``instance:3-7``.

    Numbers without a unit are seconds; a start without one takes the unit of the end.

    Raises:
        OptionError: the text is none of these.

    >>> parse_window("1:2ms"), parse_window("instance:3-7")
    ((0.001, 0.002), Instances(first=3, last=7))
    """
    named = _INSTANCES.match(text.strip())
    if named:
        first, last = int(named[1]), int(named[2] or named[1])
        if first > last:
            raise OptionError(
                f"--window {text}: instances must rise, such as instance:{last}-{first}"
            )
        return Instances(first, last)
    start, separator, end = text.partition(":")
    times = [_TIME.match(part.strip()) for part in (start, end)]
    try:
        values = [float(time[1]) for time in times if time]
    except ValueError:  # such as 1.2.3
        values = []
    if not separator or len(values) < 2:
        raise OptionError(
            "--window must be START:END in virtual seconds or with a unit, such as 0:2e-5 or "
            f"0:2ms, or instance:FIRST-LAST, got {text!r}"
        )
    units = [time[2] for time in times if time]
    factors = [_UNITS[unit or units[1] or "s"] for unit in units]
    return check_window((values[0] * factors[0], values[1] * factors[1]))


def chosen_window(choice: Choice, spans_by_schedule: Mapping[str, DataFrame]) -> Window:
    """The window of time of a choice.

    Raises:
        OptionError: no step of the instances asked for takes time, or the window reaches beyond
            the end of the last schedule.
    """
    if isinstance(choice, Instances):
        return choice.window(spans_by_schedule)
    ends = [
        float(np.max(floats(spans, "end_s"), initial=0.0)) for spans in spans_by_schedule.values()
    ]
    end_s = max(ends, default=0.0)
    if choice[1] > end_s * (1 + _ROUNDING):
        raise OptionError(
            f"--window {choice[0]:g}:{choice[1]:g} reaches beyond the run, which ends at {end_s:g} "
            f"seconds ({format_seconds(end_s)}); take an END of at most {end_s:g}"
        )
    return choice
