"""How far all runs of a forecast or report are, from what each of them tells.

A run that may end at its target is expected to take as many epochs as such runs took that have
ended: those of its own row, else all of them, else as many as it may take.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ampsim.study.progress import OnProgress, Progress, Whole
from ampsim.study.task import Task

SECONDS_BETWEEN_LOOKS: Final = 0.05  # chosen: as bars redraw, so that an instance costs nothing
_MOST: Final = 0.99  # chosen: a run that goes on is not done

_Key: TypeAlias = tuple[str, int]


class WholeProgress:
    """Tells the news of single runs on, now and then with how far all of them are.

    Args:
        tasks: the runs that are to be made.
        on_progress: who is told.
        earlier: runs that were kept from before, which are done.
    """

    def __init__(self, tasks: Sequence[Task], on_progress: OnProgress, *, earlier: int = 0) -> None:
        """Start before the first run."""
        self._keys: list[_Key] = [(task.label, task.repeat) for task in tasks]
        self._tasks = dict(zip(self._keys, tasks, strict=True))
        self._on_progress = on_progress
        self._earlier = earlier
        self._last: dict[_Key, Progress] = {}
        self._ended = 0
        self._open_ended = sum(map(_may_stop, tasks))
        self._taken: defaultdict[str | None, _Mean] = defaultdict(_Mean)
        self._share = 0.0
        self._looked_s = float("-inf")

    def tell(self, progress: Progress) -> None:
        """Take the news of a run."""
        self._last[progress.schedule, progress.repeat] = progress
        now_s = time.monotonic()
        if progress.is_epoch_end or now_s - self._looked_s >= SECONDS_BETWEEN_LOOKS:
            self._looked_s = now_s
            progress = replace(progress, whole=self._whole())
        self._on_progress(progress)

    def end(self, place: int) -> None:
        """Note that a run has ended, however it did."""
        key = self._keys[place]
        last = self._last.pop(key, None)
        self._ended += 1
        may_stop = _may_stop(self._tasks[key])
        self._open_ended -= may_stop
        if last:
            for label in (key[0], None) if may_stop else ():
                self._taken[label].add(last.epoch)
            self._on_progress(replace(last, is_epoch_end=False, whole=self._whole()))

    def _whole(self) -> Whole:
        finished, runs = self._earlier + self._ended, self._earlier + len(self._tasks)
        under_way = sum(self._share_of(key, progress) for key, progress in self._last.items())
        self._share = max(self._share, (finished + under_way) / runs)
        is_known = not self._open_ended or self._taken[None].count > 0
        return Whole(runs, finished, self._share, is_known)

    def _share_of(self, key: _Key, progress: Progress) -> float:
        """Which share of its epochs a run that goes on has behind it."""
        in_epoch = progress.items / progress.items_total if progress.items_total else 0.0
        expected = float(_epochs_most(self._tasks[key]))
        if _may_stop(self._tasks[key]):
            row, all_rows = self._taken[key[0]], self._taken[None]
            expected = min(expected, row.mean or all_rows.mean or expected)
        return min((progress.epoch - 1 + in_epoch) / max(expected, progress.epoch), _MOST)


@dataclass(slots=True)
class _Mean:
    """The mean of the epochs that runs took which might have ended sooner; 0 of none."""

    total: int = 0
    count: int = 0

    def add(self, epochs: int) -> None:
        self.total += epochs
        self.count += 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


def _may_stop(task: Task) -> bool:
    return task.plan.stop_at is not None and _epochs_most(task) > 1


def _epochs_most(task: Task) -> int:
    return task.plan.max_epochs if task.plan.mode == "numeric" else 1
