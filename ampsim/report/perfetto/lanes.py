"""Tracks for slices that overlap: those of one track must nest, so each takes a lane of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lanes:
    """Of each lane the track, and the end of its last slice."""

    tids: list[int] = field(default_factory=list[int])
    free_at_ns: list[int] = field(default_factory=list[int])

    def track(self, start_ns: int, end_ns: int, tids: Iterator[int]) -> int:
        """The first lane that is free at `start_ns`, a new one if none is; it is then taken."""
        for lane, free_at_ns in enumerate(self.free_at_ns):
            if free_at_ns <= start_ns:
                self.free_at_ns[lane] = end_ns
                return self.tids[lane]
        self.free_at_ns.append(end_ns)
        self.tids.append(next(tids))
        return self.tids[-1]
