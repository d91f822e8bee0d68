"""Runs in processes of this machine, one each, so that one that dies takes no other with it.

A process is forked for its run where that is possible, so that it has models and data at once, and
ends with it, so that what the run took is free again; pebble starts it, sends back what it gives,
and says how it ended (docs/decisions/0021-executors.md).

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
import types
import uuid
import warnings
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, Final

from ampsim.runs.executor import (
    Answer,
    Died,
    Read,
    RunExecutor,
    answer,
    overdue,
    paced,
    packed,
    resolving,
)
from ampsim.runs.task import Task
from ampsim.study.progress import OnProgress

START_METHOD: Final = "fork" if sys.platform == "linux" else "spawn"
"""A fork has everything at once, models and data. Elsewhere a process starts with nothing: Windows
has no fork, and the libraries of macOS do not bear one."""

SECONDS_UNTIL_REAPED: Final = 1.0
"""How long at most a process that is gone keeps how it ended to itself (chosen: many times what a
thread that has learnt it takes to say so)."""

SECONDS_BETWEEN_NEWS: Final = 0.05
"""Progress within an epoch that is told from another process at most (chosen: as bars redraw)."""

_GROUPED: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
DECIDED_ELSEWHERE: Final = [getattr(signal, one) for one in _GROUPED if hasattr(signal, one)]
"""Signals that a group of processes gets together, as far as the system has them."""

_SET_PARENT_DEATH_SIGNAL: Final = 1
"""Linux's `PR_SET_PDEATHSIG`. Source: prctl(2), <linux/prctl.h>."""


_FORKING: Final = threading.Lock()
"""So that no process inherits another's end of a pipe, which would be open after that has ended."""


class LocalSlots(RunExecutor):
    """Make runs in a few processes at a time, each of which may take so long."""

    is_local = True

    def __init__(self, slots: int, limit_s: float | None = None) -> None:
        self.slots: float = slots
        self.limit_s = limit_s
        self._name = f"ampsim-{uuid.uuid4().hex}"
        self._context: Any = multiprocessing.get_context(START_METHOD)
        # Before Python waits for processes at its end, which one that sends a result to nobody and
        # heeds no signal never reaches.
        self._at_exit = Finalize(None, _end_all, args=(self._name,), exitpriority=0)

    def submit(
        self, key: str, task: Task, read: Read, tell: OnProgress | None = None
    ) -> Future[Answer]:
        """Start a process for the run; it ends with the thread that calls this."""
        from pebble import concurrent

        given: Any = (task, read) if START_METHOD == "fork" else packed(task, read)
        untyped: Any = concurrent
        started: list[BaseProcess] = []

        def noted(**its: Any) -> BaseProcess:
            started.append(self._context.Process(**its))
            return started[-1]

        context = types.SimpleNamespace(
            Pipe=self._context.Pipe,
            get_start_method=self._context.get_start_method,
            Process=noted,
        )
        name = f"{self._name} {key}"
        start = untyped.process(name=name, daemon=True, timeout=self.limit_s, context=context)
        with _FORKING, _signals_blocked(), _without_main(), warnings.catch_warnings():
            # of threads: those that draw bars hold nothing it needs
            warnings.simplefilter("ignore", DeprecationWarning)
            here, there = self._context.Pipe(duplex=False)
            ended = start(serve)(given, there, tell is not None, sys.stdout is sys.stderr)
            there.close()
        made: Future[Answer] = Future()

        def listen() -> None:
            with resolving(made):
                made.set_result(_answer_of(started[0], ended, here, tell))

        threading.Thread(target=listen, daemon=True).start()
        return made

    def stop(self, asked: Mapping[str, Future[Answer]]) -> None:
        """End the processes of these runs, whatever they are at."""
        for key in asked:
            _end_all(f"{self._name} {key}")

    def close(self) -> None:
        """End every process, whatever it is at.

        Raises:
            KeyboardInterrupt: another signal came meanwhile; they are ended nevertheless, at the
                latest before Python ends.
        """
        try:
            _end_all(self._name)
        except KeyboardInterrupt:
            _end_all(self._name)
            raise
        self._at_exit.cancel()


def _answer_of(
    process: BaseProcess, ended: Future[Answer], news: Connection, tell: OnProgress | None
) -> Answer:
    """Pass on what a process tells until it ends, then give what it gave.

    Raises:
        Died: it gave nothing; says how it ended.
    """
    from pebble import ProcessExpired

    try:
        with news, contextlib.suppress(EOFError, OSError):  # OSError: it died in a message
            while True:
                progress = news.recv()
                if tell is not None:
                    tell(progress)
        for thread in threading.enumerate():
            if thread.name == process.name:  # pebble's, which takes what the process gives
                thread.join()
        with contextlib.suppress(ProcessExpired):
            if ended.done():  # unless that thread failed
                return ended.result()
        raise Died(f"its process {_ending(_exit_code(process))}")
    except TimeoutError as error:
        raise overdue(error.args[-1]) from None
    finally:
        process.kill()  # if it is its news that could not be taken


def serve(given: Any, news: Connection, is_heard: bool, is_output_kept: bool) -> Answer:
    """Make one run in a process of its own; what it prints is no output where that is kept."""
    if is_output_kept:  # a process that is no fork has not got the streams of its parent
        sys.stdout = sys.stderr
    end_with_parent()
    leave_signals_to_parent()
    with news:
        task, read = pickle.loads(given) if isinstance(given, bytes) else given
        tell = paced(news.send, SECONDS_BETWEEN_NEWS, has_all_ends=True) if is_heard else None
        return answer(task, read, tell)


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
        with contextlib.suppress(OSError, AttributeError):  # a C library without prctl
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent.pid:  # it was gone before the system was asked
            os._exit(1)


def leave_signals_to_parent() -> None:
    """Ignore what the parent takes care of, and unblock what it blocked while starting this."""
    for number in DECIDED_ELSEWHERE:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, DECIDED_ELSEWHERE)


def _end_all(name: str) -> None:
    """End the processes whose names begin so."""
    started = [one for one in multiprocessing.active_children() if one.name.startswith(name)]
    for process in started:
        process.kill()
    for process in started:
        process.join()
        _exit_code(process)


def _exit_code(process: BaseProcess) -> int | None:
    """Return a process's exit code; None if something outside `multiprocessing` was told it.

    The system tells one thread, once. Any that starts, joins or counts processes may be the one,
    and until it has written it down, others read None, and count the process as alive.
    """
    until = time.monotonic() + SECONDS_UNTIL_REAPED
    while (code := process.exitcode) is None and time.monotonic() < until:
        time.sleep(0.001)
    return code


def _ending(code: int | None) -> str:
    """Tell how a process ended that should not have.

    >>> _ending(3)
    'ended by itself, with exit code 3; does the model call os._exit?'
    """
    if code is None:
        return "is gone, and how it ended was told to something else"
    if code >= 0:
        return f"ended by itself, with exit code {code}; does the model call os._exit?"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if name == "SIGKILL":
        return "was killed (SIGKILL); perhaps memory ran out: try fewer jobs"
    return f"died of {name}"


@contextlib.contextmanager
def _signals_blocked() -> Generator[None]:
    """Hold back signals until the new process has said what it does with them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DECIDED_ELSEWHERE)
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
