"""Several runs at a time, each in a process of its own.

Tasks go as bytes to a process that starts with nothing. A model is Python objects with functions of
a file that was loaded by its path, or of a notebook. The process executes the same source under the
same name first, whatever the file says by now; then functions of a file are found by name, and the
rest, such as lambdas and what was defined in a notebook, is carried whole by cloudpickle.

A run that may end at its target is expected to take as many epochs as such runs took that have
ended: those of its own row, else all of them, else as many as it may take.

A run is on one core from first to last: its order of events is what makes it reproducible. But runs
of different schedules and seeds share nothing, so that a forecast of nine takes as many cores as
there are.

Such a process ends with the one it works for. Whatever ends that, `SIGKILL` among it, this one ends
too, in a matrix product if need be. Signals are the other's affair: Ctrl-C reaches the whole group
of processes, and what follows is decided in one place.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any, Final, TypeAlias

import numpy as np

from ampsim.errors import AmpsimError, Failure, OptionError, SimulationError
from ampsim.options import REPEATS_MAX, require_count
from ampsim.runs.task import Task
from ampsim.study.loading import ModelSource, loaded_sources, restore
from ampsim.study.outages import outage_table
from ampsim.study.pickling import bytes_of
from ampsim.study.progress import OnProgress, Progress, Whole
from ampsim.study.read_off import crossings_of
from ampsim.study.result import Result
from ampsim.study.training import resolved
from ampsim.trace import Recorder

SECONDS_BETWEEN_NEWS: Final = 0.05
"""Progress within an epoch that is told from another process at most (chosen: as bars redraw)."""

DECIDED_ELSEWHERE: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Signals that a group of processes gets together, by their names on any system."""

_SET_PARENT_DEATH_SIGNAL: Final = 1
"""Linux's `PR_SET_PDEATHSIG`. Source: prctl(2), <linux/prctl.h>."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What comes back of a run; the rest of a result is known to whoever asked for it."""

    given: dict[str, np.ndarray]
    origin: dict[str, Any]
    recorder: Recorder
    failure: str | None
    learning_digest: str | None


def serve(take: Callable[[], list[Task]], connection: Connection, is_heard: bool) -> None:
    """Make the runs that are asked for by their place among the tasks, until told to end."""
    end_with_parent()
    leave_signals_to_parent()
    take = cache(take)
    with contextlib.suppress(EOFError, OSError):  # nobody is there any more
        while (place := connection.recv()) is not None:
            connection.send(_made(take, place, connection if is_heard else None))


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it has, for whatever reason.

    A thread waits for that. It waits in vain while compiled code keeps Python's lock; on Linux, the
    system itself kills this process.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "nobody has started this process"

    def watch(join: Callable[[], None] = parent.join) -> None:
        join()
        os._exit(1)

    threading.Thread(target=watch, name="ampsim-watch", daemon=True).start()
    if sys.platform == "linux":
        _ask_kernel_to_kill()
        if os.getppid() != parent.pid:  # it was gone before the system was asked
            os._exit(1)


def _ask_kernel_to_kill() -> None:
    with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def leave_signals_to_parent() -> None:
    """Ignore what the parent takes care of, and unblock what it blocked while starting this."""
    numbers = [getattr(signal, name) for name in DECIDED_ELSEWHERE if hasattr(signal, name)]
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _made(
    take: Callable[[], list[Task]], place: int, connection: Connection | None
) -> Carried | Exception:
    """Make one run, whose progress goes to `connection`; give what is to be sent back."""
    told_s = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if connection and (progress.is_epoch_end or now_s - told_s >= SECONDS_BETWEEN_NEWS):
            told_s = now_s
            connection.send(progress)

    try:
        result, failure = take()[place].run(tell if connection else None)
        result.recorder.flush()
        return Carried(
            result.model.given, result.origin, result.recorder, failure, result.learning_digest
        )
    except AmpsimError as error:
        error.add_note(traceback.format_exc())  # its own is lost on the way
        return error
    except Exception:
        text = traceback.format_exc()
        return RuntimeError(f"a run failed in a process of its own\n\n{text}")


def _unpacked(sources: dict[str, ModelSource], content: bytes) -> list[Task]:
    restore(sources)
    return pickle.loads(content)


def packed(tasks: Sequence[Task]) -> Callable[[], list[Task]]:
    """What gives the tasks in a process that starts with nothing; it can be pickled.

    Raises:
        OptionError: a model holds something that only this process can have.
    """
    try:
        return partial(_unpacked, loaded_sources(), bytes_of(list(tasks)))
    except Exception as error:  # whatever an object raises that cannot be taken apart
        names = ", ".join(sorted({task.plan.model.name for task in tasks}))
        raise OptionError(
            f"jobs must be 1 here, for model {names} cannot be sent to another process: "
            f"{type(error).__name__}: {error}; make such objects within make_graph and make_data"
        ) from error


SECONDS_BETWEEN_LOOKS: Final = 0.05  # chosen: as bars redraw, so that an instance costs nothing
_MOST: Final = 0.99  # chosen: a run that goes on is not done

_Key: TypeAlias = tuple[str, int]


class WholeProgress:
    """Tells the news of single runs on, now and then with how far all of them are."""

    def __init__(self, tasks: Sequence[Task], on_progress: OnProgress, *, earlier: int = 0) -> None:
        """Start before the first run."""
        self._keys: list[_Key] = [(task.label, task.repeat) for task in tasks]
        self._tasks = dict(zip(self._keys, tasks, strict=True))
        self._on_progress = on_progress
        self._earlier = earlier
        self._last: dict[_Key, Progress] = {}
        self._ended = 0
        self._open_ended = sum(map(_may_stop, tasks))
        self._taken: defaultdict[str | None, list[int]] = defaultdict(list)
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
                self._taken[label].append(last.epoch)
            self._on_progress(replace(last, is_epoch_end=False, whole=self._whole()))

    def _whole(self) -> Whole:
        finished, runs = self._earlier + self._ended, self._earlier + len(self._tasks)
        under_way = sum(self._share_of(key, progress) for key, progress in self._last.items())
        self._share = max(self._share, (finished + under_way) / runs)
        is_known = not self._open_ended or bool(self._taken[None])
        return Whole(runs, finished, self._share, is_known)

    def _share_of(self, key: _Key, progress: Progress) -> float:
        """Which share of its epochs a run that goes on has behind it."""
        in_epoch = progress.items / progress.items_total if progress.items_total else 0.0
        expected = float(self._tasks[key].plan.epochs)
        if _may_stop(self._tasks[key]):
            taken = self._taken[key[0]] or self._taken[None]
            expected = min(expected, sum(taken) / len(taken) if taken else expected)
        return min((progress.epoch - 1 + in_epoch) / max(expected, progress.epoch), _MOST)


def _may_stop(task: Task) -> bool:
    return task.plan.goal.target is not None and task.plan.epochs > 1


START_METHOD: Final = "fork" if sys.platform == "linux" else "spawn"
"""A fork has everything at once, models and data. Elsewhere a process starts with nothing: Windows
has no fork, and the libraries of macOS do not bear one."""

OnFinish: TypeAlias = Callable[[int, Result, str | None], None]
"""``on_finish(place, result, failure)`` takes what one of the tasks gave."""

OnLoss: TypeAlias = Callable[[int, str], None]
"""``on_loss(place, sentence)`` is told of a task that gave nothing: its process died, or a run with
its seed could not begin."""


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
class _JobProcess:
    """One process, and the place of the task that it is at."""

    process: Any
    connection: Connection
    place: int = field(default=-1)


class JobPool:
    """Processes under way, and the tasks that wait for one."""

    def __init__(self, tasks: Sequence[Task], listeners: Listeners) -> None:
        """Start no process yet."""
        self._tasks = tasks
        self._waiting = list(range(len(tasks)))[::-1]
        self._listeners = listeners
        self._context: Any = multiprocessing.get_context(START_METHOD)
        here = list(tasks)
        self._take = (lambda: here) if START_METHOD == "fork" else packed(here)
        self._at_work: dict[Connection, _JobProcess] = {}
        self._processes: list[Any] = []
        # Before Python waits for processes at its end, which one that sends a result to nobody and
        # heeds no signal never reaches.
        self._at_exit = Finalize(None, _end_all, args=(self._processes,), exitpriority=0)

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
        """End every process, whatever it is at.

        Raises:
            KeyboardInterrupt: another signal came meanwhile; they are ended nevertheless, at the
                latest before Python ends.
        """
        try:
            _end_all(self._processes)
        except KeyboardInterrupt:
            _end_all(self._processes)
            raise
        self._at_exit.cancel()

    def _started(self) -> _JobProcess:
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
        return _JobProcess(process, here)

    def _give(self, member: _JobProcess) -> None:
        """Give a process its next task, or let it end."""
        if not self._waiting:
            self._at_work.pop(member.connection, None)
            with contextlib.suppress(OSError):
                member.connection.send(None)
            member.connection.close()
            member.process.join()
            return
        member.place = self._waiting.pop()
        self._at_work[member.connection] = member
        with contextlib.suppress(OSError):  # it died; that is noticed where it is heard
            member.connection.send(member.place)

    def _receive(self, member: _JobProcess) -> None:
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
        if isinstance(news, BaseException) and not isinstance(news, SimulationError):
            raise news
        place = member.place
        self._give(member)
        if isinstance(news, SimulationError):
            self._listeners.on_loss(place, loss_of(self._tasks[place], news))
            return
        assert isinstance(news, Carried)
        self._listeners.on_finish(place, _result_of(self._tasks[place], news), news.failure)

    def _lose(self, member: _JobProcess) -> None:
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


def loss_of(task: Task, error: SimulationError) -> Failure:
    """The sentence on a run that could not begin, as where its seed's data could not be made."""
    sentence = Failure(f"{task.label}, seed {task.seed}: {error}")
    sentence.traceback = Failure.of(error).traceback
    return sentence


def _end_all(processes: Sequence[Any]) -> None:
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()


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
        learning_digest=carried.learning_digest,
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

    Raises:
        AmpsimError: what a run raised; those under way are given up.
        KeyboardInterrupt: likewise; what was handed over is whole.
    """
    listeners = _with_whole(tasks, listeners)
    if min(jobs, len(tasks)) < 2:
        for place, task in enumerate(tasks):
            try:
                made = task.run(listeners.on_progress)
            except SimulationError as error:
                listeners.on_loss(place, loss_of(task, error))
            else:
                listeners.on_finish(place, *made)
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
