"""How much of a run's trace was kept: all spans, or the leading ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.report.frames import DataFrame, floats
from ampsim.units import format_seconds


@dataclass(frozen=True, slots=True)
class Kept:
    """The part of a run whose steps were kept.

    Attributes:
        until_s: end of the last step that was kept; steps under way at that time were not.
        end_s: end of the run; NaN where it is unknown.
        steps: how many steps were kept.
        steps_all: how many steps the run had.
    """

    until_s: float
    end_s: float
    steps: int
    steps_all: int

    @property
    def words(self) -> str:
        """Seconds and steps that were kept, of all.

        >>> Kept(0.5, 2.0, 20_000, 81_000).words
        'first 500 ms of 2.00 s kept (20,000 of 81,000 steps)'
        """
        of = "" if math.isnan(self.end_s) else f" of {format_seconds(self.end_s)}"
        counts = f"{self.steps:,} of {self.steps_all:,} steps"
        return f"first {format_seconds(self.until_s)}{of} kept ({counts})"

    def gap_s(self, window_s: tuple[float, float]) -> tuple[float, float] | None:
        """Start and end of the time in a window whose steps were not kept; None where all were.

        >>> Kept(0.5, 2.0, 1, 2).gap_s((0.0, 1.0)), Kept(0.5, 2.0, 1, 2).gap_s((0.0, 0.5))
        ((0.5, 1.0), None)
        """
        end_s = window_s[1] if math.isnan(self.end_s) else min(self.end_s, window_s[1])
        start_s = max(self.until_s, window_s[0])
        return (start_s, end_s) if start_s < end_s else None


WHOLE: Final = None
"""In place of a `Kept`: every step was kept."""


def kept_of(run: Any) -> Kept | None:
    """How much of a run its spans are; `WHOLE` where they are all, or their count is unknown.

    Args:
        run: has `spans`; the run or its `outline` may have `messages`, the count of all spans, and
            `makespan_s`.
    """
    spans: DataFrame = run.spans
    count = int(_said(run, "messages", 0))
    if not 0 < len(spans) < count:
        return WHOLE
    until_s = float(np.max(floats(spans, "end_s")))
    return Kept(until_s, float(_said(run, "makespan_s", math.nan)), len(spans), count)


def _said(run: Any, name: str, otherwise: float) -> Any:
    for one in (run, getattr(run, "outline", None)):
        if (found := getattr(one, name, None)) is not None:
            return found
    return otherwise
