"""Runs on the workers of a Dask cluster: of this machine, of Slurm, of Kubernetes.

A run's task is called by the run's own key, so that equal runs are made once, whoever asks for
them. What comes back is kept by the client at once: a worker that dies loses what it is at, which
another one makes again; when the scheduler dies, or the client, only what is under way is lost.

Dask does not stop a task that runs when it is cancelled, it only lets go of it. The worker's own
state of a task tells so; a run that tells of its progress looks there, and ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import pickle
import time
import uuid
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final

from ampsim.errors import AmpsimError, ExecutorError, OptionError
from ampsim.runs.executor import (
    Answer,
    Died,
    OnNews,
    Read,
    about,
    answer_elsewhere,
    paced,
    packed_for_elsewhere,
    require_same,
)
from ampsim.runs.task import Task
from ampsim.study.progress import Progress

SCHEME: Final = "dask"
ADDRESS: Final = "DASK_SCHEDULER_ADDRESS"
TOPIC: Final = "ampsim-progress"

SECONDS_BETWEEN_NEWS: Final = 0.25
"""Progress that a run tells at most (chosen: a scheduler passes on some thousand messages a
second, and may have hundreds of workers)."""

SECONDS_TO_CONNECT: Final = "10s"
"""How long a scheduler may take to answer (chosen: as a job of Slurm whose network is slow)."""

SECONDS_TO_STOP: Final = 2.0
"""How long a run that is to end may go on before its worker is started again (chosen: Ctrl-C is to
take five seconds at most)."""

LOST: Final = "the Dask scheduler at {} is gone; start it, and run again to go on"


class Stopped(Exception):
    """A run is not wanted any more."""


class DaskClient:
    """A `distributed.Client` as what makes runs."""

    is_local = False
    slots = math.inf

    def __init__(self, client: Any, *, is_own: bool) -> None:
        """Take a client, and look whether its workers give the numbers that this process gives.

        Args:
            client: connected to a scheduler.
            is_own: whether to close it at the end.

        Raises:
            OptionError: a worker has no ampsim, or another one, or other kernels.
        """
        self._client, self._is_own = client, is_own
        self._address: str = client.scheduler.address
        self._asked: dict[str, Any] = {}
        self._suspects: dict[str, Future[Answer]] = {}
        self._tried_alone: set[str] = set()
        self._count, self._is_subscribed = 0, False
        try:
            _require_alike(client)
        except OptionError:
            self.close()
            raise

    def submit(self, key: str, task: Task, read: Read, is_whole: bool) -> Future[Answer]:
        """Ask for a run, of which no whole result comes back."""
        content, name = packed_for_elsewhere(task, read), _name(key)
        self._count += 1
        asked = self._client.submit(answer_on_worker, content, key=name, priority=-self._count)
        self._asked[key] = asked
        made: Future[Answer] = Future()
        self._hear_of(key, made)
        return made

    def _hear_of(self, key: str, made: Future[Answer]) -> None:
        def finish(_asked: Any) -> None:
            self._finish(key, made)

        self._asked[key].add_done_callback(finish)

    def _finish(self, key: str, made: Future[Answer]) -> None:
        """Take what the scheduler has, and let go of it there."""
        asked = self._asked.get(key)
        if asked is None:  # it was stopped
            return
        try:
            error = asked.exception() if asked.status == "error" else None
            if error is not None and key not in self._tried_alone and _is_killed(error):
                self._suspects[key] = made
            elif error is not None:
                made.set_exception(_told(error))
            elif asked.status in ("cancelled", "lost"):  # not by us
                made.set_exception(ExecutorError(LOST.format(self._address)))
            else:
                made.set_result(asked.result())
        except BaseException:  # Dask's own cancellation, as when the scheduler dies just now
            made.set_exception(ExecutorError(LOST.format(self._address)))
        if made.done():
            del self._asked[key]
        self._try_alone()

    def _try_alone(self) -> None:
        """When nothing else is under way, make a run again of which workers died.

        Dask blames what waited on a worker as it does what ran there; alone, it is to blame itself.
        """
        if self._suspects and len(self._suspects) == len(self._asked):
            key, made = self._suspects.popitem()
            self._tried_alone.add(key)
            self._asked[key].retry()
            self._hear_of(key, made)

    def progress(self, on_news: OnNews | None) -> None:
        """Tell this of what runs tell, those of other clients among them."""

        def tell(event: tuple[float, bytes]) -> None:
            assert on_news is not None
            on_news(*pickle.loads(event[1]))

        if on_news is not None:
            self._client.subscribe_topic(TOPIC, tell)
        elif self._is_subscribed:
            self._client.unsubscribe_topic(TOPIC)
        self._is_subscribed = on_news is not None

    def stop(self, keys: Collection[str]) -> None:
        """End these runs within some seconds, those of which a worker tells nothing by force."""
        self._suspects.clear()
        asked = [one for key in keys if (one := self._asked.pop(key, None)) is not None]
        if not asked or self._client.status != "running":
            return
        with contextlib.suppress(OSError, TimeoutError, ValueError):  # the scheduler is gone
            at_work = self._client.processing()
            self._client.cancel(asked)
            names = [_name(key) for key in keys]
            workers = [at for at, tasks in at_work.items() if not {*tasks}.isdisjoint(names)]
            until_s = time.monotonic() + SECONDS_TO_STOP
            while workers and time.monotonic() < until_s:
                time.sleep(0.1)
                busy = self._client.run(_are_running, names, workers=workers)
                workers = [worker for worker, is_busy in busy.items() if is_busy]
            if workers:
                self._client.restart_workers(workers, timeout=10, raise_for_error=False)

    def close(self) -> None:
        """Close the client if it is our own."""
        if self._is_own:
            self._client.close()


def _name(key: str) -> str:
    """What a run is called on the scheduler."""
    return f"ampsim-run-{key}"


def _is_killed(error: BaseException) -> bool:
    from distributed import KilledWorker

    return isinstance(error, KilledWorker)


def _told(error: BaseException) -> Exception:
    """What a failure of Dask's means to whoever asked for the run."""
    if _is_killed(error):
        killed: Any = error
        worker = killed.last_worker
        limit = getattr(worker, "memory_limit", 0)
        has = f" (it may take {limit / 1e6:,.0f} MB)" if limit else ""
        return Died(
            f"its Dask worker died {killed.allowed_failures + 1} times; does the model call "
            f"os._exit, or did memory run out{has}? The log of the worker at {worker.address} "
            "says more"
        )
    if isinstance(error, AmpsimError):
        return error
    return RuntimeError(f"a run failed on a Dask worker: {type(error).__name__}: {error}")


def answer_on_worker(content: bytes) -> Answer:
    """Make a run in a thread of a Dask worker."""
    from distributed import get_worker

    worker: Any = get_worker()
    name: str = worker.get_current_task()
    key = name.removeprefix(_name(""))
    tasks, last = worker.state.tasks, list[Progress]()

    def send(progress: Progress) -> None:
        last.clear()
        worker.log_event(TOPIC, pickle.dumps((key, progress)))

    paced_send = paced(send, SECONDS_BETWEEN_NEWS, has_all_ends=False)

    def tell(progress: Progress) -> None:
        if name not in tasks or tasks[name].state in ("cancelled", "resumed", "released"):
            raise Stopped
        last[:] = [progress]
        paced_send(progress)

    made = answer_elsewhere(content, tell)
    for progress in last:  # it was held back
        send(progress)
    return made


def _are_running(names: Iterable[str], dask_worker: Any) -> bool:
    """Whether a worker, cancelled or not, is at one of these tasks."""
    tasks = dask_worker.state.tasks
    return any(one in tasks and tasks[one].state in ("cancelled", "executing") for one in names)


def _require_alike(client: Any) -> None:
    """Refuse workers that would give other numbers.

    Raises:
        OptionError: there is one.
    """
    try:
        found = client.run(about)
    except Exception as error:  # whatever a worker raises that has no ampsim, or an old one
        raise OptionError(
            f"workers of the Dask scheduler at {client.scheduler.address} must have this version "
            f"of ampsim, got {type(error).__name__}: {error}; install it there"
        ) from error
    for worker, theirs in found.items():
        require_same(about(), theirs, worker)


def connected(text: str) -> DaskClient:
    """A client of the scheduler that a text names: `dask:ADDRESS`, `dask:FILE` or `dask`.

    Raises:
        OptionError: there is no such scheduler, Dask is not installed, or its workers do not fit.
    """
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            f"executor {text!r} needs Dask, which is not installed; pip install 'ampsim[dask]'"
        ) from None
    where = text.partition(":")[2] or os.environ.get(ADDRESS, "")
    if not where:
        raise OptionError(
            f"executor {text!r} must say where the scheduler is, for {ADDRESS} is not set; "
            "for example dask:scheduler.json or dask:tcp://host:8786"
        )
    for name in ("client", "core", "utils", "comm", "batched"):  # it says by itself what is lost
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)
    named: dict[str, Any] = {"address": where}
    if "://" not in where:
        if not os.path.isfile(where):
            raise OptionError(
                f"executor {text!r}: expected an address such as tcp://host:8786, or the file that "
                f"`dask scheduler --scheduler-file {where}` writes, and there is no such file"
            )
        named = {"scheduler_file": where}
    try:
        client = Client(**named, timeout=SECONDS_TO_CONNECT, name=f"ampsim-{uuid.uuid4().hex[:8]}")
    except (OSError, ValueError, KeyError) as error:
        raise OptionError(
            f"executor {text!r}: no Dask scheduler answers there within {SECONDS_TO_CONNECT}: "
            f"{' '.join(str(error).split())[:200]}; start one, or take --jobs"
        ) from None
    return DaskClient(client, is_own=True)
