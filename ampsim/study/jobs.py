"""Several runs at a time, each in a process of its own; what they give does not depend on that.

A run is on one core from first to last: its order of events is what makes it reproducible. But runs
of different schedules and seeds share nothing, so that a forecast of nine takes as many cores as
there are. A process is a fork of this one: models are Python objects with functions of the user's,
which need not be sent anywhere. Where there is no fork, runs go one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.errors import AmpsimError, OptionError, SimulationError
from ampsim.options import require_count
from ampsim.runtime import Schedule
from ampsim.study.attempt import Plan, attempt
from ampsim.study.progress import OnProgress, Progress, Tracker
from ampsim.study.result import Result
from ampsim.trace import Recorder

SECONDS_BETWEEN_NEWS: Final = 0.05
"""Progress within an epoch that is told from another process at most (chosen: as bars redraw)."""

OnFinish: TypeAlias = Callable[[int, Result, str | None], None]
"""``on_finish(place, result, failure)`` takes what one of the tasks gave."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run that is to be made.

    Args:
        plan: what it shares with others.
        schedule: what runs.
        seed: its seed.
        label: what its row is called.
        repeat: which of the row's runs, from 1, of how many `repeats`.
    """

    plan: Plan
    schedule: Schedule
    seed: int
    label: str
    repeat: int
    repeats: int

    def run(self, on_progress: OnProgress | None) -> tuple[Result, str | None]:
        """Run it here; return its result, and why it ended early if it did."""
        metric = self.plan.model.measure
        tracker = Tracker(on_progress, self.label, self.repeat, self.repeats, metric=metric)
        return attempt(self.plan, self.schedule, self.seed, tracker)


def can_fork() -> bool:
    """Whether processes can be forked here; macOS has fork, but its libraries do not bear it."""
    return sys.platform != "darwin" and "fork" in multiprocessing.get_all_start_methods()


def jobs_here() -> int:
    """As many as there are cores for this process; 1 where there is no fork."""
    if not can_fork():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_jobs(jobs: object) -> int:
    """Return how many runs to make at a time.

    Raises:
        OptionError: it is no whole number of at least 1, or above 1 where there is no fork.
    """
    count = require_count("jobs", jobs)
    if count > 1 and not can_fork():
        raise OptionError(f"jobs must be 1 on this system, which cannot fork, got {count}")
    return count


def run_all(
    tasks: Sequence[Task], jobs: int, on_progress: OnProgress | None, on_finish: OnFinish
) -> None:
    """Make every run, `jobs` at a time, and hand each over as soon as it has ended.

    Args:
        tasks: started in this order.
        jobs: processes; with 1, or one task, everything happens in this one.
        on_progress: told of all runs, in this process.
        on_finish: takes the results, in the order in which the runs end.

    Raises:
        AmpsimError: what a run raised; those under way are given up.
        SimulationError: a process ended without a result.
        KeyboardInterrupt: likewise; what `on_finish` took is whole.
    """
    if min(jobs, len(tasks)) < 2:
        for place, task in enumerate(tasks):
            on_finish(place, *task.run(on_progress))
        return
    crew = _Crew(list(enumerate(tasks)), on_progress, on_finish)
    try:
        crew.work(jobs)
    finally:
        crew.dismiss()


@dataclass(frozen=True, slots=True)
class _Carried:
    """What comes back from a process; the rest of a result is known here."""

    given: dict[str, np.ndarray]
    origin: dict[str, Any]
    recorder: Recorder
    failure: str | None


class _Crew:
    """The processes under way, and what waits for one."""

    def __init__(
        self, waiting: list[tuple[int, Task]], on_progress: OnProgress | None, on_finish: OnFinish
    ) -> None:
        self._waiting = waiting[::-1]
        self._on_progress = on_progress
        self._on_finish = on_finish
        self._context = multiprocessing.get_context("fork")
        self._at_work: dict[Connection, tuple[int, Task, Any]] = {}

    def work(self, jobs: int) -> None:
        """Keep `jobs` processes busy until nothing waits."""
        while self._waiting or self._at_work:
            while self._waiting and len(self._at_work) < jobs:
                self._start(*self._waiting.pop())
            for ready in wait(list(self._at_work)):
                assert isinstance(ready, Connection)
                self._hear(ready)

    def dismiss(self) -> None:
        """Give up what is still under way."""
        for _place, _task, process in self._at_work.values():
            process.terminate()
        for _place, _task, process in self._at_work.values():
            process.join()

    def _start(self, place: int, task: Task) -> None:
        here, there = self._context.Pipe(duplex=False)
        is_heard = self._on_progress is not None
        process = self._context.Process(
            target=_run_there, args=(task, there, is_heard), daemon=True
        )
        with warnings.catch_warnings():  # of threads: those that draw bars hold nothing it needs
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        self._at_work[here] = (place, task, process)

    def _hear(self, connection: Connection) -> None:
        """Take one message: progress, an error, or the result, after which the process ends."""
        place, task, process = self._at_work[connection]
        try:
            news = connection.recv()
        except EOFError:
            process.join()
            raise SimulationError(
                f"{task.label}, seed {task.seed}: its process ended without a result "
                f"(exit code {process.exitcode}); perhaps memory ran out: try fewer jobs"
            ) from None
        if isinstance(news, Progress):
            assert self._on_progress is not None
            self._on_progress(news)
            return
        if isinstance(news, BaseException):
            raise news
        assert isinstance(news, _Carried)
        del self._at_work[connection]
        connection.close()
        process.join()
        self._on_finish(place, _result_of(task, news), news.failure)


def _result_of(task: Task, carried: _Carried) -> Result:
    return Result(
        model=replace(task.plan.model, given=carried.given),
        schedule=task.schedule,
        workers=task.plan.cluster.workers,
        origin=carried.origin,
        recorder=carried.recorder,
    )


def _run_there(task: Task, connection: Connection, is_heard: bool) -> None:
    """Run a task in a process of its own, and send home what comes of it.

    Ctrl-C reaches the whole group of processes; the one at home decides what follows.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told_s = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if progress.is_epoch_end or now_s - told_s >= SECONDS_BETWEEN_NEWS:
            told_s = now_s
            connection.send(progress)

    try:
        result, failure = task.run(tell if is_heard else None)
        result.recorder.flush()
        connection.send(_Carried(result.model.given, result.origin, result.recorder, failure))
    except AmpsimError as error:
        connection.send(error)
    except BrokenPipeError:  # nobody is at home any more
        pass
