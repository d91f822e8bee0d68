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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any, TypeAlias

from ampsim.errors import AmpsimError, ExecutorError, Failure, OptionError, SimulationError
from ampsim.options import REPEATS_MAX, require_count
from ampsim.runs.dask_client import SCHEME, DaskClient, connected
from ampsim.runs.executor import Answer, AnyExecutor, Died, Read, RunExecutor
from ampsim.runs.local_slots import LocalSlots
from ampsim.runs.run import Run, run_of
from ampsim.runs.store import RunCache, RunKey, named
from ampsim.runs.task import Task
from ampsim.study.progress import OnProgress, Progress, Whole
from ampsim.study.read_off import crossings_of
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


def opened(
    executor: ExecutorLike, jobs: int = 1, run_limit_s: float | None = None
) -> contextlib.closing[RunExecutor]:
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
    return contextlib.closing(_executor_of(executor, run_limit_s))


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
    tasks: Sequence[Task], executor: RunExecutor, listeners: Listeners, read: Read = run_of
) -> None:
    """Make every run, as many at a time as may be, and hand each over as soon as it has ended.

    `read`, which has a name, gives what is handed over: of `whole_run_of`, which an executor of
    this machine takes alone, the result is among that.

    Raises:
        AmpsimError: what a run raised; those under way are given up.
        KeyboardInterrupt: likewise; what was handed over is whole.
    """
    listeners = _with_whole(tasks, listeners)
    places: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):  # of those that are known by the same, one is made
        places.setdefault(task.key or uuid.uuid4().hex, []).append(place)
    if executor.limit_s is not None or not executor.is_local or min(executor.slots, len(tasks)) > 1:
        _make_beside(tasks, places, executor, listeners, read)
        return
    for of_one in places.values():
        try:
            value = read(*tasks[of_one[0]].run(listeners.on_progress))
        except (SimulationError, MemoryError) as error:
            value = error
        _hand_over(value, tasks, of_one, listeners)


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


def _make_beside(
    tasks: Sequence[Task],
    places: Mapping[str, Sequence[int]],
    executor: RunExecutor,
    listeners: Listeners,
    read: Read,
) -> None:
    """Ask for as many runs at a time as may be, and hear of each."""
    waiting, asked = deque(places), dict[str, concurrent.futures.Future[Answer]]()
    news: queue.SimpleQueue[tuple[str, Progress | None]] = queue.SimpleQueue()

    def take(key: str, progress: Progress | None) -> None:
        news.put((key, progress))

    try:
        while waiting or asked:
            while waiting and len(asked) < executor.slots:
                key = waiting.popleft()
                tell = partial(take, key) if listeners.on_progress else None
                asked[key] = executor.submit(key, tasks[places[key][0]], read, tell)
                asked[key].add_done_callback(lambda _future, key=key: take(key, None))
            key, progress = news.get()
            if key not in asked:  # told too late
                continue
            task = tasks[places[key][0]]
            if progress is None:
                _hand_over(_value_of(asked.pop(key), task), tasks, places[key], listeners)
            elif listeners.on_progress is not None:  # whoever asked first called it otherwise
                called = {"schedule": task.label, "repeat": task.repeat, "repeats": task.repeats}
                listeners.on_progress(replace(progress, **called))
    finally:
        executor.stop(asked)


def _value_of(future: concurrent.futures.Future[Answer], task: Task) -> Any:
    """Read what a task gave, or why it gave nothing; a result is as before `answer` sent it.

    Raises:
        ExecutorError: the executor that a user brought broke.
    """
    value: Any
    try:
        answer = future.result()
        value, given = (answer, None) if isinstance(answer, Exception) else answer
    except (Died, AmpsimError) as error:
        return error
    except Exception as why:
        name = f"{task.label}, seed {task.seed}"
        raise ExecutorError(f"{name}: the executor broke: {type(why).__name__}: {why}") from why
    if given is None:
        return value
    cluster, model = task.plan.cluster, task.plan.rate.applied(task.plan.model)
    known = {"model": replace(model, given=given), "schedule": resolved(task.schedule, cluster)}
    return replace(value, made=replace(value.made, **known, crossings=crossings_of(cluster)))


def _hand_over(
    value: Any, tasks: Sequence[Task], places: Sequence[int], listeners: Listeners
) -> None:
    """Tell what came of a task, for each that is known by the same.

    Raises:
        AmpsimError: what the run raised, or the executor is gone.
    """
    for place in places:
        if isinstance(value, Died | SimulationError | MemoryError):
            listeners.on_loss(place, loss_of(tasks[place], value))
        elif isinstance(value, Exception):
            raise value
        else:
            listeners.on_finish(place, value)


def loss_of(task: Task, error: Exception) -> Failure:
    """The sentence on a run that gave nothing, as where its seed's data could not be made."""
    is_memory = isinstance(error, MemoryError)
    said = f"memory ran out; try fewer jobs: {error!r}" if is_memory else error
    sentence = Failure(f"{task.label}, seed {task.seed}: {said}")
    if not isinstance(error, Died):
        sentence.traceback = Failure.of(error).traceback
    return sentence


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
