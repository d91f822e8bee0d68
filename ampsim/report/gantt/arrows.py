"""Transfers that a Gantt chart shows as arrows, as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ampsim.report.frames import DataFrame, Floats, Integers, floats, integers
from ampsim.report.gantt.boxes import Window

ARROWS_MAX = 200  # chosen: more hide what they join; of more, every second, third, ... is drawn
_HOST = -1


@dataclass(frozen=True, slots=True)
class Arrows:
    """Transfers between workers that overlap a window, in the order of the record.

    Attributes:
        source: the worker that sends.
        target: the worker that receives.
        start_s: when the message enters the link.
        end_s: when it arrives.
        size_bytes: size of the message.
        to_host: how many other transfers in the window begin or end at the host.
    """

    source: Integers
    target: Integers
    start_s: Floats
    end_s: Floats
    size_bytes: Integers
    to_host: int

    @property
    def workers(self) -> frozenset[int]:
        """The workers that send or receive any of these."""
        return frozenset(int(w) for w in np.unique(np.concatenate([self.source, self.target])))

    def thinned(self, most: int) -> tuple[Arrows, int]:
        """Every step-th transfer, at most `most`, and the step."""
        step = max(1, -(-len(self.source) // most))
        chosen = slice(None, None, step)
        columns = (self.source, self.target, self.start_s, self.end_s, self.size_bytes)
        kept: list[Any] = [column[chosen] for column in columns]
        return Arrows(*kept, to_host=self.to_host), step


def arrows_in(transfers: Sequence[DataFrame], window_s: Window) -> Arrows:
    """Transfers between workers that overlap a window.

    Args:
        transfers: chunks of the trace's transfers.
        window_s: start and end of the time shown.
    """
    counts, times = np.empty(0, np.int64), np.empty(0)
    parts: list[list[Any]] = [[counts, counts, times, times, counts]]
    to_host = 0
    for chunk in transfers:
        start_s, end_s = floats(chunk, "start_s"), floats(chunk, "end_s")
        touching = (end_s > window_s[0]) & (start_s < window_s[1])
        rows = chunk[touching]
        source, target = (integers(rows, f"{end}_worker") for end in ("source", "target"))
        joins = (source != _HOST) & (target != _HOST)
        to_host += int((~joins).sum())
        columns = [source, target, start_s[touching], end_s[touching], integers(rows, "bytes")]
        parts.append([column[joins] for column in columns])
    joined: list[Any] = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return Arrows(*joined, to_host=to_host)
