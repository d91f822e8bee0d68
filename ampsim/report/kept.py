"""How much of a run's trace is there to be drawn: all of it, or its beginning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.report.frames import DataFrame, floats
from ampsim.units import format_seconds


@dataclass(frozen=True, slots=True)
class Kept:
    """The part of a run whose steps are known.

    Attributes:
        until_s: end of the last step that was kept; what was under way then is not.
        end_s: when the run ended; NaN where only that it went on is known.
        steps: how many steps were kept.
        steps_all: how many there were.
    """

    until_s: float
    end_s: float
    steps: int
    steps_all: int

    @property
    def words(self) -> str:
        """How much of how much.

        >>> Kept(0.5, 2.0, 20_000, 81_000).words
        'first 500 ms of 2.00 s kept (20,000 of 81,000 steps)'
        """
        of = "" if math.isnan(self.end_s) else f" of {format_seconds(self.end_s)}"
        counts = f"{self.steps:,} of {self.steps_all:,} steps"
        return f"first {format_seconds(self.until_s)}{of} kept ({counts})"

    def gap_s(self, window_s: tuple[float, float]) -> tuple[float, float] | None:
        """From when to when a window shows time of the run that was not kept; None if it does not.

        >>> Kept(0.5, 2.0, 1, 2).gap_s((0.0, 1.0)), Kept(0.5, 2.0, 1, 2).gap_s((0.0, 0.5))
        ((0.5, 1.0), None)
        """
        end_s = window_s[1] if math.isnan(self.end_s) else min(self.end_s, window_s[1])
        start_s = max(self.until_s, window_s[0])
        return (start_s, end_s) if start_s < end_s else None


WHOLE: Final = None
"""In place of a `Kept`: every step is there."""


def kept_of(run: Any) -> Kept | None:
    """What is there of a run's spans; `WHOLE` where that is all, or where nobody counted them.

    Args:
        run: has `spans`, and may have `messages`, how many there were, and `makespan_s`, itself or
            in its `outline`.
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
