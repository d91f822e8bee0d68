"""Programs that run in copies of a process, which has imported what they import.

A module of its own, so that a process that is started anew finds it, as it does no file of tests.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ampsim

TIME_LIMIT_S = 300  # chosen: several times what the longest command takes
SURROUNDINGS = {"COLUMNS": "100", "MPLBACKEND": "Agg"}


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def import_all() -> None:
    """All of ampsim."""
    for module in pkgutil.walk_packages(ampsim.__path__, "ampsim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def import_torch() -> None:
    """What the first export of a module would import."""
    import_all()
    for name in ("torch", "torch._dynamo", "torch._export", "torch.export._trace"):
        importlib.import_module(name)


def in_a_fork(start: Callable[[], object], folder: Path) -> Done:
    """Start a program in a copy of this process, which has imported what others import first."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 3.12, that there are threads
            process = os.fork()
        if not process:
            try:
                _run_here(start, folder, out.fileno(), err.fileno())
            finally:
                os._exit(70)  # who comes here has left by something that is no exit
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        said = [(stream.seek(0), stream.read().decode("utf-8"))[1] for stream in (out, err)]
        return Done(code, *said)


def _run_here(start: Callable[[], object], folder: Path, *streams: int) -> None:
    """Start a program, say what it says to these streams, and end this process."""
    signal.alarm(TIME_LIMIT_S)
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    os.chdir(folder)
    os.environ.pop("AMPSIM_DATA", None)
    os.environ.update(SURROUNDINGS)
    warnings.resetwarnings()
    warnings.simplefilter("error")
    code: Any = 0
    try:
        start()
    except SystemExit as ending:
        code = ending.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def as_script(path: Path) -> None:
    """Do what `python FILE` does: the file is the main module, and its folder comes first."""
    sys.argv = [path.name]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


@cache
def beside() -> ProcessPoolExecutor:
    """A process that has imported PyTorch and computes nothing with it: copies of it do.

    In a copy of this process they might not: once PyTorch has had threads here, a backward pass in
    a copy waits for one of them forever.
    """
    start_anew = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, start_anew, initializer=import_torch)
