"""Several runs at a time: given to what makes them, taken back as they end.

A run is on one core from first to last: its order of events is what makes it reproducible. But runs
of different schedules and seeds share nothing, so that a forecast of nine takes as many cores as
there are, here or elsewhere.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import uuid
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, TypeAlias

from ampsim.errors import AmpsimError, ExecutorError, Failure, OptionError, SimulationError
from ampsim.options import REPEATS_MAX, require_count
from ampsim.runs.dask_client import SCHEME, DaskClient, connected
from ampsim.runs.executor import Answer, AnyExecutor, Carried, Died, Read, RunExecutor
from ampsim.runs.local_slots import LocalSlots
from ampsim.runs.run import Run, run_of
from ampsim.runs.store import RunCache, RunKey, named
from ampsim.runs.task import Task
from ampsim.study.outages import outage_table
from ampsim.study.progress import OnProgress, Progress, Whole
from ampsim.study.read_off import crossings_of
from ampsim.study.result import Result
from ampsim.study.training import resolved
from ampsim.text import short

OnLoss: TypeAlias = Callable[[int, str], None]
"""``on_loss(place, sentence)`` is told of a task that gave nothing: what made it died, or a run
with its seed could not begin."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks of this process."""

    on_finish: Callable[[int, Any], None]  # takes a task's place, and what was read off its run
    on_loss: OnLoss  # is told of runs that there is no result of
    on_progress: OnProgress | None = None  # is told how far runs are
    earlier: int = 0  # runs that were kept from before, which progress counts as done


def jobs_here() -> int:
    """Count the cores for this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


ExecutorLike: TypeAlias = "int | str | concurrent.futures.Executor | Any"
"""What makes runs, as users name it; `opened` says what may be named."""


@contextlib.contextmanager
def opened(
    executor: ExecutorLike, jobs: int = 1, run_limit_s: float | None = None
) -> Generator[RunExecutor]:
    """Open what makes runs, as a user named it, while the block lasts.

    Args:
        executor: how many processes; a `concurrent.futures.Executor`; a `distributed.Client`; or
            "dask:ADDRESS", "dask:FILE" or "dask".
        jobs: what the user says of the same, too.
        run_limit_s: how long a run may take; a longer one is ended, and lost. None for no limit.

    Raises:
        OptionError: it is nothing of that, or cannot be reached, or does not fit.
    """
    if jobs not in (1, executor):
        raise OptionError(f"jobs {jobs} and executor say the same thing; leave one of them out")
    made = _executor_of(executor, run_limit_s)
    try:
        yield made
    finally:
        made.close()


def _executor_of(given: ExecutorLike, limit_s: float | None) -> RunExecutor:
    if isinstance(given, concurrent.futures.Executor):
        if limit_s is not None:
            raise OptionError(
                f"run_limit_s must be None for an executor of your own, which cannot end a run, "
                f"got {limit_s:g}; leave it out, or take jobs or Dask"
            )
        return AnyExecutor(given)
    if isinstance(given, str) and given.partition(":")[0] == SCHEME:
        return connected(given, limit_s)
    if isinstance(given, Integral):
        return LocalSlots(require_count("executor", given, REPEATS_MAX), limit_s)
    if type(given).__module__.partition(".")[0] == "distributed" and hasattr(given, "submit"):
        return DaskClient(given, is_own=False, limit_s=limit_s)
    raise OptionError(
        "executor must be a number of processes, a concurrent.futures.Executor, a "
        "distributed.Client, or text such as 'dask:scheduler.json' or 'dask:tcp://host:8786', got "
        f"{short(given)}"
    )


def run_all(
    tasks: Sequence[Task],
    executor: RunExecutor,
    listeners: Listeners,
    read: Read = run_of,
    *,
    is_whole: bool = False,
) -> None:
    """Make every run, as many at a time as may be, and hand each over as soon as it has ended.

    `read`, which has a name, gives what is handed over. With `is_whole` that is a `Run`, which has
    its result where that can come back.

    Raises:
        AmpsimError: what a run raised; those under way are given up.
        KeyboardInterrupt: likewise; what was handed over is whole.
    """
    listeners = _with_whole(tasks, listeners)
    if executor.is_local and executor.limit_s is None and min(executor.slots, len(tasks)) < 2:
        for places in _alike(tasks).values():
            try:
                result, failure = tasks[places[0]].run(listeners.on_progress)
            except (SimulationError, MemoryError) as error:
                for place in places:
                    listeners.on_loss(place, loss_of(tasks[place], error))
            else:
                value = read(result, failure)
                for place in places:
                    listeners.on_finish(place, replace(value, made=result) if is_whole else value)
        return
    _make_beside(tasks, executor, listeners, read, is_whole=is_whole)


def take_or_make(
    tasks: Sequence[Task],
    known: Sequence[RunKey],
    keeping: RunCache,
    executor: RunExecutor,
    listeners: Listeners,
) -> None:
    """Take what is kept, make the rest, and keep each run as soon as it has ended.

    Of tasks that are known by the same, one is made.

    Raises:
        AmpsimError: what a run raised; what was handed over before is kept.
        KeyboardInterrupt: likewise.
    """
    left: list[int] = []
    for place, (task, one) in enumerate(zip(tasks, known, strict=True)):
        kept = keeping.take(task, one)
        if kept is None:
            left.append(place)
        else:
            listeners.on_finish(place, named(kept, task))
    if not left:
        return

    def keep(index: int, run: Run) -> None:
        keeping.put(known[left[index]], run)
        listeners.on_finish(left[index], named(run, tasks[left[index]]))

    def lose(index: int, sentence: str) -> None:
        listeners.on_loss(left[index], sentence)

    folder, earlier = keeping.learnings(), len(tasks) - len(left)
    learning = [tasks[place].learning_in(folder, known[place].key) for place in left]
    try:
        run_all(learning, executor, Listeners(keep, lose, listeners.on_progress, earlier))
    finally:
        keeping.tidy()


def _alike(tasks: Sequence[Task]) -> dict[str, list[int]]:
    """Places of tasks, by what these are known by; of those at one, one is made."""
    places: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        places.setdefault(task.key or uuid.uuid4().hex, []).append(place)
    return places


def _make_beside(
    tasks: Sequence[Task],
    executor: RunExecutor,
    listeners: Listeners,
    read: Read,
    *,
    is_whole: bool,
) -> None:
    """Ask for as many runs at a time as may be, and hear of each."""
    places = _alike(tasks)
    waiting, asked = deque(places), dict[str, concurrent.futures.Future[Answer]]()
    news: queue.SimpleQueue[tuple[str, Progress | None]] = queue.SimpleQueue()

    def take(key: str, progress: Progress | None) -> None:
        news.put((key, progress))

    try:
        executor.progress(take if listeners.on_progress else None)
        while waiting or asked:
            while waiting and len(asked) < executor.slots:
                key = waiting.popleft()
                asked[key] = executor.submit(key, tasks[places[key][0]], read, is_whole)
                asked[key].add_done_callback(lambda _future, key=key: take(key, None))
            key, progress = news.get()
            if key not in asked:  # another client's, or told too late
                continue
            if progress is None:
                future = asked.pop(key)
                for place in places[key]:
                    _hand_over(place, tasks[place], future, listeners)
            elif listeners.on_progress is not None:  # whoever asked first called it otherwise
                task = tasks[places[key][0]]
                called = {"schedule": task.label, "repeat": task.repeat, "repeats": task.repeats}
                listeners.on_progress(replace(progress, **called))
    finally:
        executor.stop(list(asked))
        executor.progress(None)


def _hand_over(
    place: int, task: Task, future: concurrent.futures.Future[Answer], listeners: Listeners
) -> None:
    """Tell what came of a task.

    Raises:
        AmpsimError: what the run raised, or the executor is gone.
    """
    name = f"{task.label}, seed {task.seed}"
    try:
        answer = future.result()
        parts: Any = (None, None) if isinstance(answer, Exception) else answer
        value, carried = parts
    except Died as error:
        listeners.on_loss(place, f"{name}: {error}")
        return
    except AmpsimError:
        raise
    except Exception as why:  # of an executor that a user brought
        raise ExecutorError(f"{name}: the executor broke: {type(why).__name__}: {why}") from why
    if isinstance(answer, SimulationError | MemoryError):
        listeners.on_loss(place, loss_of(task, answer))
    elif isinstance(answer, Exception):
        raise answer
    else:
        if carried is not None:
            value = replace(value, made=_result_of(task, carried))
        listeners.on_finish(place, value)


def loss_of(task: Task, error: SimulationError | MemoryError) -> Failure:
    """The sentence on a run that gave nothing, as where its seed's data could not be made."""
    is_memory = isinstance(error, MemoryError)
    said = f"memory ran out; try fewer jobs: {error!r}" if is_memory else error
    sentence = Failure(f"{task.label}, seed {task.seed}: {said}")
    sentence.traceback = Failure.of(error).traceback
    return sentence


def _result_of(task: Task, carried: Carried) -> Result:
    cluster = task.plan.cluster
    return Result(
        model=replace(task.plan.rate.applied(task.plan.model), given=carried.given),
        schedule=resolved(task.schedule, cluster),
        workers=cluster.workers,
        origin=carried.origin,
        recorder=carried.recorder,
        outages=outage_table(cluster, task.seed, carried.recorder),
        crossings=crossings_of(cluster),
        learning_digest=carried.learning_digest,
    )


def _with_whole(tasks: Sequence[Task], listeners: Listeners) -> Listeners:
    """Listeners that also learn how many runs have ended."""
    tell = listeners.on_progress
    if tell is None:
        return listeners
    whole = Whole(listeners.earlier + len(tasks), listeners.earlier)
    last: dict[tuple[str, int], Progress] = {}

    def hear(progress: Progress) -> None:
        key = progress.schedule, progress.repeat
        told = progress if key in last else replace(progress, whole=whole)
        last[key] = progress
        tell(told)

    def with_end(take: Callable[[int, Any], None]) -> Callable[[int, Any], None]:
        def end(place: int, value: Any) -> None:
            nonlocal whole
            take(place, value)
            whole = replace(whole, finished=whole.finished + 1)
            said = last.pop((tasks[place].label, tasks[place].repeat), None)
            if said is not None:
                tell(replace(said, is_epoch_end=False, whole=whole))

        return end

    finish, lose = with_end(listeners.on_finish), with_end(listeners.on_loss)
    return Listeners(finish, lose, hear, listeners.earlier)
