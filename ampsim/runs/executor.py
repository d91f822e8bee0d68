"""Executors that make runs: processes here, Dask, or an executor of one's own.

A run goes there as a task, and comes back as what is read off it; a result as a whole, weights and
trace, comes back from processes of this machine only. Tasks go as bytes to a process that starts
with nothing. A model is Python objects with functions of a file that was loaded by its path, or of
a notebook: the process executes the same source under the same name first, whatever the file says
by now; then functions of a file are found by name, and the rest, such as lambdas and what was
defined in a notebook, is carried whole by cloudpickle.

Numbers are the same to the bit wherever a run is made, as long as ampsim's code, Python, NumPy and
the kernels of its matrix products are the same; where they are not, the run is refused.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import socket
import tempfile
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from ampsim.errors import OVERDUE, AmpsimError, ExecutorError, OptionError
from ampsim.files import prepare_folder
from ampsim.runs.run import Run
from ampsim.runs.task import Task
from ampsim.study.loading import bytes_of, modules_here
from ampsim.study.model import Parameters
from ampsim.study.progress import OnProgress, Progress
from ampsim.study.provenance import about
from ampsim.study.result import Result
from ampsim.text import short
from ampsim.units import format_seconds

Read: TypeAlias = Callable[[Result, str | None], Any]
"""``read(result, failure)`` gives what is wanted of a run, in the process that made it."""


Answer: TypeAlias = tuple[Any, Parameters | None] | Exception
"""What was read off a run, with the weights of a whole result; or why there is nothing."""


class Died(Exception):
    """A run gave nothing, for what made it is gone; others are not concerned."""


def overdue(limit_s: float | None) -> Died:
    """Tell that a run was ended, as it took longer than it may."""
    return Died(f"{OVERDUE} {format_seconds(limit_s or 0)}, and was ended")


@contextlib.contextmanager
def resolving(made: Future[Answer]) -> Generator[None]:
    """Give a future whatever the block raises, so that nobody waits for it in vain.

    Of what nobody foresaw, one run is lost, in one sentence.
    """
    try:
        yield
    except BaseException as error:
        told: BaseException = error
        if not isinstance(error, Died | AmpsimError):
            told = Died(f"what came of it could not be taken: {type(error).__name__}: {error}")
            told.__cause__ = error
        with contextlib.suppress(InvalidStateError):  # it was stopped meanwhile
            made.set_exception(told)


class RunExecutor(ABC):
    """Makes runs."""

    slots: float = math.inf  # how many runs may be asked for at a time; more wait here
    is_local: bool = False  # whether it is of this machine, so that results come back whole
    limit_s: float | None = None  # how long a run may take, of the time of whoever waits

    @abstractmethod
    def submit(
        self, key: str, task: Task, read: Read, tell: OnProgress | None = None
    ) -> Future[Answer]:
        """Ask for a run, the sooner the earlier; a key stands for one run, whoever asks for it.

        `tell` is told how far it is, in any thread.

        Raises:
            OptionError, ExecutorError: the task cannot be sent, or nobody takes it.
        """

    def stop(self, asked: Mapping[str, Future[Answer]]) -> None:
        """End these runs, also those that are under way, as far as that can be done."""
        for made in asked.values():
            made.cancel()

    def close(self) -> None:  # noqa: B027  # where nothing was opened
        """End everything, and let go of what was opened."""


class AnyExecutor(RunExecutor):
    """A `concurrent.futures.Executor` that a user brings: of MPI, Slurm, Parsl, or Python's own.

    It tells no progress while a run is under way, and cannot end one: what has begun when Ctrl-C
    comes goes on, and what it gives is not kept.
    """

    def __init__(self, executor: Executor) -> None:
        """Take one that is open, and stays so."""
        self._executor = executor

    def submit(
        self, key: str, task: Task, read: Read, tell: OnProgress | None = None
    ) -> Future[Answer]:
        """Ask for a run, of which no whole result comes back."""
        content = packed_for_elsewhere(task, read)
        try:
            made = self._executor.submit(answer_elsewhere, content)
        except Exception as error:  # it was shut down, broke, or reaches nobody
            raise ExecutorError(f"the executor takes no more: {error!r}; give another") from error
        if not hasattr(made, "add_done_callback"):
            raise OptionError(
                "executor must give a concurrent.futures.Future from submit, got "
                f"{short(made)}; have its submit return one"
            )
        return made


def answer(task: Task, read: Read, tell: OnProgress | None) -> Answer:
    """Make one run here, and give what is to be sent back.

    A whole result goes without what whoever asked for it knows, and what no pickle may hold.
    """
    try:
        value = read(*task.run(tell))
        if not isinstance(value, Run) or value.made is None:
            return value, None
        known: dict[str, Any] = dict.fromkeys(("model", "schedule", "crossings", "recount"))
        return replace(value, made=replace(value.made, **known)), value.made.model.given
    except (AmpsimError, MemoryError) as error:
        error.add_note(traceback.format_exc())  # its own is lost on the way
        return error
    except Exception:
        return RuntimeError(f"a run failed in a process of its own\n\n{traceback.format_exc()}")


def packed(task: Task, *others: Any) -> bytes:
    """A task, and what goes with it, for a process that starts with nothing.

    Raises:
        OptionError: its model holds something that only this process can have.
    """
    try:
        return bytes_of((task, *others))
    except Exception as error:  # whatever an object raises that cannot be taken apart
        raise OptionError(
            f"jobs must be 1 here, for model {task.plan.model.name} cannot be sent to another "
            f"process: {type(error).__name__}: {error}; make such objects within make_graph and "
            "make_data"
        ) from error


def packed_for_elsewhere(task: Task, read: Read) -> bytes:
    """Pack a task for a machine that may have another file system.

    Raises:
        OptionError: likewise.
    """
    return packed(task, read, _mark_in(task.plan.options.learnings), about())


def answer_elsewhere(content: bytes, tell: OnProgress | None = None) -> Answer:
    """Make the run of `packed_for_elsewhere`, perhaps on another machine.

    What it learns is kept in the folder that its client named, where that is seen from here, else
    in one of this process.
    """
    task, read, mark, expected = pickle.loads(content)
    try:
        require_same(expected, about(), socket.gethostname())
    except OptionError as error:
        return error
    model, folder = task.plan.model, task.plan.options.learnings
    if "modules" in model.origin and modules_here(model) != model.origin["modules"]:
        return OptionError(
            f"modules that {model.origin['file']} imports must be the same everywhere, for others "
            f"give other numbers: got others on {socket.gethostname()}; copy them there"
        )
    if folder is not None and not os.path.lexists(folder / mark):
        task = task.learning_in(Path(_folder_of_this_process().name))
    return answer(task, read, tell)


@cache
def _folder_of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ampsim-", ignore_cleanup_errors=True)


_MARK: Final = "seen-by-"


def _mark_in(folder: Path | None) -> str:
    """A file in a folder, by whose name it is recognised wherever it is seen."""
    if folder is None:
        return ""
    prepare_folder(folder)
    for one in folder.glob(f"{_MARK}*"):
        return one.name
    mark = folder / f"{_MARK}{uuid.uuid4().hex}"
    mark.touch()
    return mark.name


_REMEDIES: Final = (
    ("ampsim", "install the same version on all machines"),
    ("Python", "install the same version on all machines"),
    ("NumPy", "install the same version on all machines"),
    ("kernels of matrix products", "set OPENBLAS_CORETYPE=Haswell, or another, everywhere"),
)


def require_same(expected: tuple[str, ...], found: tuple[str, ...], where: str) -> None:
    """Refuse a process that would give other numbers.

    Raises:
        OptionError: it would.
    """
    for (what, remedy), here, there in zip(_REMEDIES, expected, found, strict=True):
        if here != there:
            raise OptionError(
                f"{what} must be the same everywhere, for others give other numbers: got "
                f"{there[:60]} on {where} and {here[:60]} here; {remedy}"
            )


def paced(send: OnProgress, seconds: float, *, has_all_ends: bool) -> OnProgress:
    """Tell at most so often, and, unless not `has_all_ends`, of each epoch's end."""
    told_s = 0.0

    def tell(progress: Progress) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= seconds or (has_all_ends and progress.is_epoch_end):
            told_s = now_s
            send(progress)

    return tell
