"""Processes that make runs side by side, seen from the one that wants them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import types
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeAlias

from ampsim.study.crossings import crossings_of
from ampsim.study.job_process import DECIDED_ELSEWHERE, Broken, Carried, serve
from ampsim.study.outages import outage_table
from ampsim.study.packed_tasks import packed
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.result import Result
from ampsim.study.task import Task
from ampsim.study.training import resolved

START_METHOD: Final = "fork" if sys.platform == "linux" else "spawn"
"""A fork has everything at once, models and data. Elsewhere a process starts with nothing: Windows
has no fork, and the libraries of macOS do not bear one."""

OnFinish: TypeAlias = Callable[[int, Result, str | None], None]
"""``on_finish(place, result, failure)`` takes what one of the tasks gave."""

OnLoss: TypeAlias = Callable[[int, str], None]
"""``on_loss(place, sentence)`` is told of a task whose process died."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of what, in this process.

    Args:
        on_finish: takes results.
        on_loss: is told of runs that there is no result of.
        on_progress: is told how far runs are; None for nobody.
        earlier: runs that were kept from before, which progress counts as done.
    """

    on_finish: OnFinish
    on_loss: OnLoss
    on_progress: OnProgress | None = None
    earlier: int = 0


@dataclass(slots=True)
class _Member:
    """One process, and the place of the task that it is at."""

    process: Any
    connection: Connection
    place: int = field(default=-1)


class JobPool:
    """Processes under way, and the tasks that wait for one.

    Args:
        tasks: what is to be done, in this order.
        listeners: who is told of it.
    """

    def __init__(self, tasks: Sequence[Task], listeners: Listeners) -> None:
        """Start no process yet."""
        self._tasks = list(tasks)
        self._waiting = list(range(len(tasks)))[::-1]
        self._listeners = listeners
        self._context: Any = multiprocessing.get_context(START_METHOD)
        self._take = self._taker()
        self._at_work: dict[Connection, _Member] = {}
        self._processes: list[Any] = []

    def _taker(self) -> Callable[[], list[Task]]:
        """What gives the tasks in another process."""
        if START_METHOD != "fork":
            return packed(self._tasks).tasks
        tasks = self._tasks
        return lambda: tasks

    def work(self, jobs: int) -> None:
        """Keep `jobs` processes busy until nothing waits; then let them end.

        Raises:
            AmpsimError: what a run raised.
        """
        while self._waiting and len(self._at_work) < jobs:
            self._give(self._started())
        while self._at_work:
            for ready in wait(list(self._at_work)):
                assert isinstance(ready, Connection)
                self._receive(self._at_work[ready])

    def dismiss(self) -> None:
        """End every process, whatever it is at."""
        for process in self._processes:
            if process.pid is not None:
                process.kill()
        for process in self._processes:
            if process.pid is not None:
                process.join()

    def _started(self) -> _Member:
        here, there = self._context.Pipe()
        is_heard = self._listeners.on_progress is not None
        process = self._context.Process(
            target=serve, args=(self._take, there, is_heard), daemon=True
        )
        self._processes.append(process)
        with _signals_blocked(), _without_main(), warnings.catch_warnings():
            # of threads: those that draw bars hold nothing it needs
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        there.close()
        return _Member(process, here)

    def _give(self, member: _Member) -> None:
        """Give a process its next task, or let it end."""
        if not self._waiting:
            self._at_work.pop(member.connection, None)
            self._end(member)
            return
        member.place = self._waiting.pop()
        self._at_work[member.connection] = member
        with contextlib.suppress(OSError):  # it died; that is noticed where it is heard
            member.connection.send(member.place)

    def _end(self, member: _Member) -> None:
        with contextlib.suppress(OSError):
            member.connection.send(None)
        member.connection.close()
        member.process.join()

    def _receive(self, member: _Member) -> None:
        """Take one message: progress, an error, or a result, after which the next task is given."""
        try:
            news = member.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the midst of a message
            self._lose(member)
            return
        if isinstance(news, Progress):
            assert self._listeners.on_progress is not None
            self._listeners.on_progress(news)
            return
        if isinstance(news, Broken):
            raise RuntimeError(f"a run failed in a process of its own\n\n{news.text}")
        if isinstance(news, BaseException):
            raise news
        assert isinstance(news, Carried)
        place = member.place
        self._give(member)
        self._listeners.on_finish(place, _result_of(self._tasks[place], news), news.failure)

    def _lose(self, member: _Member) -> None:
        """Tell of a process that died, and start another in its place."""
        del self._at_work[member.connection]
        member.connection.close()
        member.process.join()
        task = self._tasks[member.place]
        self._listeners.on_loss(
            member.place,
            f"{task.label}, seed {task.seed}: its process {_ending(member.process.exitcode)}",
        )
        if self._waiting:
            self._give(self._started())


def _ending(code: int) -> str:
    """How a process ended that should not have.

    >>> _ending(3)
    'ended by itself, with exit code 3; does the model call os._exit?'
    """
    if code >= 0:
        return f"ended by itself, with exit code {code}; does the model call os._exit?"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return "was killed (SIGKILL); perhaps memory ran out: try fewer jobs"
    return f"died of {name}"


def _result_of(task: Task, carried: Carried) -> Result:
    cluster = task.plan.cluster
    return Result(
        model=replace(task.plan.model, given=carried.given),
        schedule=resolved(task.schedule, cluster),
        workers=cluster.workers,
        origin=carried.origin,
        recorder=carried.recorder,
        outages=outage_table(cluster, task.seed, carried.recorder),
        crossings=crossings_of(cluster),
    )


@contextlib.contextmanager
def _signals_blocked() -> Generator[None]:
    """Hold back signals until the new process has said what it does with them."""
    if sys.platform == "win32":
        yield
        return
    numbers = [getattr(signal, name) for name in DECIDED_ELSEWHERE if hasattr(signal, name)]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Generator[None]:
    """Keep a process that starts with nothing from executing the user's script again.

    What of the script is needed goes with the tasks; so it needs no ``if __name__ == "__main__"``.
    """
    if START_METHOD == "fork":
        yield
        return
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
