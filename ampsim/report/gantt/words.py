"""A Gantt chart in words: what stands beside it, and a row for each worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worked:
    """What one worker did, or all of them: a row of the table beside the chart."""

    name: str
    steps: int
    busy: str
    forward: str
    backward: str
    update: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One schedule's chart in words."""

    name: str
    summary: str
    of: str
    worked: list[Worked]
