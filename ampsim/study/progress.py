"""Progress of a run, told to whoever shows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ampsim.metric import ACCURACY, Metric


@dataclass(frozen=True, slots=True)
class Whole:
    """A count of runs, and of those that have ended, runs kept from before among them."""

    runs: int
    finished: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run; told whenever an instance finishes, after each epoch and at the end."""

    schedule: str  # name of the one that runs
    repeat: int  # which repeat, from 1
    repeats: int  # of how many
    epoch: int  # which epoch, from 1
    items: int  # items finished in this epoch
    items_total: int  # of how many, training and validation
    score: float | None  # of validation after the last epoch that has ended; None where unknown
    is_epoch_end: bool = False  # whether this epoch has ended, so that `score` is its own
    metric: Metric = ACCURACY  # what `score` is, with its unit
    whole: Whole | None = None  # how far all runs are, where that is new: as one begins, or ends


OnProgress: TypeAlias = Callable[[Progress], None]


class Tracker:
    """Counts what one run finishes and tells it as `Progress`."""

    def __init__(
        self,
        on_progress: OnProgress | None,
        schedule: str,
        repeat: int = 1,
        repeats: int = 1,
        *,
        metric: Metric = ACCURACY,
    ) -> None:
        self.items_total = 0  # of an epoch; to be set before the first instance finishes
        self._on_progress = on_progress
        self._first = Progress(schedule, repeat, repeats, 1, 0, 0, None, metric=metric)
        self.start()

    def start(self) -> None:
        """Begin to count, or begin again."""
        self._now = self._first

    def on_items(self, items: int) -> None:
        """Count the items of an instance that has finished."""
        self._tell(items=self._now.items + items, is_epoch_end=False)

    def on_epoch(self, score: float) -> None:
        """Note that an epoch has ended, with what validation measured; NaN where unknown."""
        self._tell(score=None if math.isnan(score) else score, is_epoch_end=True)
        self._now = replace(self._now, epoch=self._now.epoch + 1, items=0)

    def _tell(self, **news: Any) -> None:
        if self._on_progress is not None:
            self._now = replace(self._now, items_total=self.items_total, **news)
            self._on_progress(self._now)
