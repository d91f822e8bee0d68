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
import os
import pickle
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final

from ampsim.errors import AmpsimError, ExecutorError, OptionError
from ampsim.runs.executor import (
    Answer,
    Died,
    Read,
    RunExecutor,
    about,
    answer_elsewhere,
    overdue,
    paced,
    packed_for_elsewhere,
    require_same,
    resolving,
)
from ampsim.runs.task import Task
from ampsim.study.progress import OnProgress, Progress

SCHEME: Final = "dask"
ADDRESS: Final = "DASK_SCHEDULER_ADDRESS"
TOPIC: Final = "ampsim-progress"
OVERDUE: Final = "ampsim-overdue"

SECONDS_BETWEEN_NEWS: Final = 0.25
"""Progress that a run tells at most (chosen: a scheduler passes on some thousand messages a
second, and may have hundreds of workers)."""

SECONDS_TO_CONNECT: Final = "10s"
"""How long a scheduler may take to answer (chosen: as a job of Slurm whose network is slow)."""

SECONDS_TO_STOP: Final = 2.0
"""How long a run that is to end may go on before its worker is started again (chosen: Ctrl-C is to
take five seconds at most)."""

SECONDS_TO_CLOSE: Final = 1.0
"""How long a worker that is started again may take to end; Dask's five are more than there are."""

TRIES_ALONE: Final = 2
"""How often a worker may die while a run is the only one under way, until it is the run that is to
blame (chosen: one death may be that of a machine that is taken away, as spot instances are)."""

LOST: Final = "the Dask scheduler at {} is gone; start it, and run again to go on"


class Stopped(Exception):
    """A run is not wanted any more."""


class DaskClient(RunExecutor):
    """A `distributed.Client` as what makes runs."""

    def __init__(self, client: Any, *, is_own: bool, limit_s: float | None = None) -> None:
        """Take a client, and look whether its workers give the numbers that this process gives.

        Args:
            client: connected to a scheduler.
            is_own: whether to close it at the end.
            limit_s: how long a worker may be at a run.

        Raises:
            OptionError: a worker has no ampsim, or another one, or other kernels.
            ExecutorError: the scheduler is gone.
        """
        self.limit_s = limit_s
        self._client, self._is_own = client, is_own
        self._address: str = client.scheduler.address
        self._lock = threading.RLock()
        self._asked: dict[str, tuple[Any, Future[Answer], OnProgress | None]] = {}
        self._suspects: set[str] = set()
        self._tries_alone = Counter[str]()
        self._count = 0
        client.subscribe_topic(TOPIC, self._hear_of_progress)
        client.subscribe_topic(OVERDUE, self._hear_of_overdue)
        try:
            _require_alike(client)
        except AmpsimError:
            self.close()
            raise

    def submit(
        self, key: str, task: Task, read: Read, tell: OnProgress | None = None
    ) -> Future[Answer]:
        """Ask for a run, of which no whole result comes back."""
        given, name = (packed_for_elsewhere(task, read), self.limit_s), _name(key)
        self._count += 1
        with _reaching(self._address):
            asked = self._client.submit(answer_on_worker, *given, key=name, priority=-self._count)
        made: Future[Answer] = Future()
        with self._lock:
            self._asked[key] = asked, made, tell
        self._hear_of(key, asked)
        return made

    def _hear_of(self, key: str, asked: Any) -> None:
        """Wait for a run; in a thread, for one that is lost with its worker is made again first."""
        asked.add_done_callback(partial(_begin, self._finish, key))

    def _finish(self, key: str) -> None:
        """Take what the scheduler has, and let go of it there."""
        from distributed import KilledWorker

        with self._lock:
            if key not in self._asked:  # it was stopped
                return
            asked, made, _tell = self._asked[key]
        with resolving(made):
            error = asked.exception() if asked.status == "error" else None
            if error is None:
                try:
                    with _reaching(self._address):  # one lost with its worker is made again,
                        made.set_result(asked.result())
                except KilledWorker as killed:  # on another one, which has died, too
                    error = killed
            may_be_chance = isinstance(error, KilledWorker) and self._tries_alone[key] < TRIES_ALONE
            if error and not may_be_chance:
                raise _told(error)
        with self._lock:
            if made.done():
                self._asked.pop(key, None)
            elif key in self._asked:
                self._suspects.add(key)
        self._try_alone()

    def _try_alone(self) -> None:
        """When nothing else is under way, make a run again of which workers died.

        Dask blames what waited on a worker as it does what ran there; alone, it is to blame itself,
        the more so the second time.
        """
        with self._lock:
            if not self._suspects or len(self._suspects) < len(self._asked):
                return
            key = self._suspects.pop()
            self._tries_alone[key] += 1
            asked, made, _tell = self._asked[key]
        with resolving(made):
            with _reaching(self._address):
                asked.retry()
            self._hear_of(key, asked)

    def _hear_of_overdue(self, event: tuple[float, str]) -> None:
        _begin(self._end_overdue, event[1])

    def _end_overdue(self, key: str) -> None:
        """End a run that a worker is at for too long."""
        with self._lock:
            _asked, made, _tell = self._asked.get(key, (None, None, None))
        if made is not None:
            with resolving(made):
                self._end([key])
                raise overdue(self.limit_s)
            self._try_alone()

    def _hear_of_progress(self, event: tuple[float, bytes]) -> None:
        """Pass on what runs tell, if they are of this client."""
        key, progress = pickle.loads(event[1])
        _asked, _made, tell = self._asked.get(key, (None, None, None))
        if tell is not None:
            tell(progress)

    def stop(self, asked: Mapping[str, Future[Answer]]) -> None:
        """End these runs within some seconds, those of which a worker tells nothing by force."""
        self._end(asked.keys())
        super().stop(asked)

    def _end(self, keys: Collection[str]) -> None:
        async def kill(dask_worker: Any) -> None:  # its nanny, of the workers that have one
            await dask_worker.kill(timeout=SECONDS_TO_CLOSE)

        with self._lock:
            self._suspects.difference_update(keys)
            asked = [self._asked.pop(key)[0] for key in keys if key in self._asked]
        if not asked or self._client.status != "running":
            return
        with contextlib.suppress(OSError, TimeoutError, ValueError, KeyError):  # they are gone
            ask = self._client.scheduler.processing  # which may be gone, and not be missed yet
            at_work = self._client.sync(ask, workers=None, callback_timeout=SECONDS_TO_STOP)
            self._client.cancel(asked)
            names = [_name(key) for key in keys]
            workers = [at for at, tasks in at_work.items() if not {*tasks}.isdisjoint(names)]
            until_s = time.monotonic() + SECONDS_TO_STOP
            while workers and time.monotonic() < until_s:
                time.sleep(0.1)
                busy = self._client.run(_are_running, names, workers=workers, on_error="ignore")
                workers = [worker for worker, is_busy in busy.items() if is_busy]
            if workers:
                known = self._client.scheduler_info(n_workers=-1)["workers"]
                self._client.run(kill, workers=workers, nanny=True, on_error="ignore")
                if alone := [worker for worker in workers if not known[worker]["nanny"]]:
                    self._client.restart_workers(alone, timeout=10, raise_for_error=False)

    def close(self) -> None:
        """Close the client if it is our own; leave another one as it was."""
        if self._is_own:
            self._client.close()
        elif self._client.status == "running":
            for topic in (TOPIC, OVERDUE):
                self._client.unsubscribe_topic(topic)


@contextlib.contextmanager
def _reaching(address: str) -> Generator[None]:
    """Tell in a line that the scheduler is gone: nobody here cancels what he waits for.

    Raises:
        ExecutorError: it is.
    """
    from distributed.client import ClosedClientError

    try:
        yield
    except (CancelledError, OSError, ClosedClientError):
        raise ExecutorError(LOST.format(address)) from None
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException:  # the other cancellation of Dask's, which is asyncio's
        raise ExecutorError(LOST.format(address)) from None


def _begin(what: Callable[[str], None], key: str, *_ended: Any) -> None:
    """Do something in a thread of its own, where that of Dask must not wait."""
    threading.Thread(target=what, args=(key,), daemon=True).start()


def _name(key: str) -> str:
    """Return a run's name on the scheduler."""
    return f"ampsim-run-{key}"


def _told(error: BaseException) -> Exception:
    """Translate a failure of Dask's for whoever asked for the run."""
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        worker, deaths = error.last_worker, error.allowed_failures + 1 + TRIES_ALONE
        limit = getattr(worker, "memory_limit", 0)
        has = f" (it may take {limit / 1e6:,.0f} MB)" if limit else ""
        return Died(
            f"its Dask worker died {deaths} times; does the model call os._exit, or did memory run "
            f"out{has}? The log of the worker at {worker.address} says more"
        )
    if isinstance(error, AmpsimError):
        return error
    return Died(f"it failed on a Dask worker: {type(error).__name__}: {error}")


def answer_on_worker(content: bytes, limit_s: float | None) -> Answer:
    """Make a run in a thread of a Dask worker; after `limit_s`, tell who wants it to end it."""
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

    alarm = threading.Timer(limit_s or 0, worker.log_event, (OVERDUE, key))
    alarm.daemon = True
    if limit_s is not None:
        alarm.start()
    try:
        made = answer_elsewhere(content, tell)
    finally:
        alarm.cancel()
    for progress in last:  # it was held back
        send(progress)
    return made


def _are_running(names: Iterable[str], dask_worker: Any) -> bool:
    """Tell whether a worker, cancelled or not, is at one of these tasks."""
    tasks = dask_worker.state.tasks
    return any(one in tasks and tasks[one].state in ("cancelled", "executing") for one in names)


def _require_alike(client: Any) -> None:
    """Refuse workers that would give other numbers.

    Raises:
        OptionError: there is one.
    """
    with _reaching(client.scheduler.address):
        found = client.run(about, on_error="return")
    for worker, theirs in found.items():
        if isinstance(theirs, OSError):  # it has just died; of who comes, each run asks again
            continue
        if isinstance(theirs, Exception):  # whatever it raises without ampsim, or with an old one
            raise OptionError(
                f"workers of the Dask scheduler at {client.scheduler.address} must have this "
                f"version of ampsim, got {type(theirs).__name__}: {theirs}; install it there"
            )
        require_same(about(), theirs, worker)


def connected(text: str, limit_s: float | None = None) -> DaskClient:
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
    return DaskClient(client, is_own=True, limit_s=limit_s)
