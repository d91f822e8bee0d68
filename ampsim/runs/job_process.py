"""A process of its own that makes runs, as it sees itself: it ends with the process it works for.

Whatever ends that process, `SIGKILL` among them, this one ends too, in a matrix product if need be.
Signals are the other's affair: Ctrl-C reaches the whole group of processes, and what follows is
decided in one place.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import numpy as np

from ampsim.errors import AmpsimError
from ampsim.runs.task import Task
from ampsim.study.progress import Progress
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
    sentinel, parent_id = parent.sentinel, parent.pid
    assert isinstance(sentinel, int)

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="ampsim-watch", daemon=True).start()
    if sys.platform == "linux":
        _ask_kernel_to_kill()
        if os.getppid() != parent_id:  # it was gone before the system was asked
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
        return Carried(result.model.given, result.origin, result.recorder, failure)
    except AmpsimError as error:
        error.add_note(traceback.format_exc())  # its own is lost on the way
        return error
    except Exception:
        text = traceback.format_exc()
        return RuntimeError(f"a run failed in a process of its own\n\n{text}")
