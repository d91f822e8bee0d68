"""Runs on an executor that a user brings: of MPI, Slurm, Parsl, or of the standard library.

It tells no progress while a run is under way, and cannot end one: what has begun when Ctrl-C comes
goes on, and what it gives is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from concurrent.futures import Executor, Future

from ampsim.runs.executor import Answer, OnNews, Read, answer_elsewhere, packed_for_elsewhere
from ampsim.runs.task import Task


class AnyExecutor:
    """A `concurrent.futures.Executor` as what makes runs."""

    is_local = False
    slots = math.inf
    limit_s: float | None = None

    def __init__(self, executor: Executor) -> None:
        """Take one that is open, and stays so."""
        self._executor = executor
        self._asked: dict[str, Future[Answer]] = {}

    def submit(self, key: str, task: Task, read: Read, is_whole: bool) -> Future[Answer]:
        """Ask for a run, of which no whole result comes back."""
        content = packed_for_elsewhere(task, read)
        self._asked[key] = self._executor.submit(answer_elsewhere, content)
        return self._asked[key]

    def progress(self, on_news: OnNews | None) -> None:
        """Tell nobody anything: an executor has no way for it."""

    def stop(self, keys: Collection[str]) -> None:
        """Take back what has not begun."""
        for key in keys:
            self._asked[key].cancel()

    def close(self) -> None:
        """Leave the executor to whom it belongs."""
        self._asked.clear()
