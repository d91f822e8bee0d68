"""Several runs at a time, each in a process of its own; what they give does not depend on that.

A run is on one core from first to last: its order of events is what makes it reproducible. But runs
of different schedules and seeds share nothing, so that a forecast of nine takes as many cores as
there are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ampsim.options import REPEATS_MAX, require_count
from ampsim.study.job_pool import JobPool, Listeners
from ampsim.study.result import Result
from ampsim.study.task import Task
from ampsim.study.whole_progress import WholeProgress


def jobs_here() -> int:
    """As many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_jobs(jobs: object) -> int:
    """Return how many runs to make at a time.

    Raises:
        OptionError: it is no whole number of at least 1.
    """
    return require_count("jobs", jobs, REPEATS_MAX)


def run_all(tasks: Sequence[Task], jobs: int, listeners: Listeners) -> None:
    """Make every run, `jobs` at a time, and hand each over as soon as it has ended.

    Args:
        tasks: started in this order.
        jobs: processes; with 1, or one task, everything happens in this one.
        listeners: told of results in the order in which the runs end, in this process.

    Raises:
        AmpsimError: what a run raised; those under way are given up.
        KeyboardInterrupt: likewise; what was handed over is whole.
    """
    listeners = _with_whole(tasks, listeners)
    if min(jobs, len(tasks)) < 2:
        for place, task in enumerate(tasks):
            listeners.on_finish(place, *task.run(listeners.on_progress))
        return
    pool = JobPool(tasks, listeners)
    try:
        pool.work(jobs)
    finally:
        pool.dismiss()


def _with_whole(tasks: Sequence[Task], listeners: Listeners) -> Listeners:
    """Listeners that also learn how far all runs are."""
    if listeners.on_progress is None:
        return listeners
    whole = WholeProgress(tasks, listeners.on_progress, earlier=listeners.earlier)

    def finish(place: int, result: Result, failure: str | None) -> None:
        listeners.on_finish(place, result, failure)
        whole.end(place)

    def lose(place: int, sentence: str) -> None:
        listeners.on_loss(place, sentence)
        whole.end(place)

    return Listeners(finish, lose, whole.tell, listeners.earlier)
