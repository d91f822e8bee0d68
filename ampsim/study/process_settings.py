"""Settings of the process under which passes run: BLAS threads, NumPy's errors, collection."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import Any, Final

import numpy as np
import threadpoolctl  # pyright: ignore[reportMissingTypeStubs]  # has none

_THREADPOOLS: Final[Any] = threadpoolctl

ALLOCATIONS: Final = 400_000
"""Allocations between two garbage collections (chosen: more than a chunk of a trace's rows needs,
which then are never searched; Python's own default is 700)."""


class ProcessSetting:
    """A setting of the whole process: made for the first thread that needs it, kept for the last.

    Were each thread to put back what it found, one that starts within another's time would put
    back the other's setting, and one that ends first would take it from the other.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        """Change nothing yet; `make` gives what sets and puts back."""
        self._make = make
        self._count = 0
        self._restore = ExitStack()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):  # a thread that holds the lock is not in the fork
            os.register_at_fork(after_in_child=self._renew_lock)

    @contextlib.contextmanager
    def held(self) -> Generator[None]:
        """Hold the setting while the block runs, in this thread and any other."""
        with self._lock:
            if not self._count:
                self._restore.enter_context(self._make())
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1
                if not self._count:
                    self._restore.close()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


@contextlib.contextmanager
def _rare_collection() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _one_blas_thread() -> Generator[None]:
    limits = _limited()
    try:
        yield
    finally:  # perhaps in another thread, whom threadpoolctl 3.8 would not obey
        _give_up_control()
        limits.restore_original_limits()
        _give_up_control()


_LIBRARIES: Final[dict[int, Any]] = {}
"""What limits the libraries that are loaded, by the number of modules, with which they come. To
look for them takes a millisecond, seven times a run: a quarter of one of 150 small images."""


def _limited() -> Any:
    _give_up_control()
    modules = len(sys.modules)
    found: Any = _LIBRARIES.get(modules)
    if found is None:
        found = _THREADPOOLS.ThreadpoolController()
        _LIBRARIES.clear()
        _LIBRARIES[modules] = found
    return found.limit(limits=1, user_api="blas")


def _give_up_control() -> None:
    """Let any thread limit a BLAS whose threads are the whole process's; one before may have."""
    give_up = getattr(_THREADPOOLS.OpenBLASController, "clear_controlling_thread", None)
    if give_up is not None:
        give_up(force=True)


@cache
def _is_limit_per_thread() -> bool:
    """Tell if each thread limits BLAS for itself, as where BLAS takes its threads from OpenMP."""
    return any(
        one["internal_api"] == "openblas" and one.get("threading_layer") == "openmp"
        for one in _THREADPOOLS.threadpool_info()
    )


@cache
def linear_algebra() -> str:
    """Name what computes NumPy's matrix products: library, version, and its choice of kernels.

    Kernels follow the processor (or `OPENBLAS_CORETYPE`) and round each in their own way, so that
    what a run learns is the same to the last bit with the same kernels only.
    """
    found = [one for one in _THREADPOOLS.threadpool_info() if one["user_api"] == "blas"]
    own = [one for one in found if "numpy" in one["filepath"]] or found
    keys = ("internal_api", "version", "architecture")
    return ", ".join(" ".join(str(one[key]) for key in keys if one.get(key)) for one in own)


_BLAS: Final = ProcessSetting(_one_blas_thread)
_COLLECTION: Final = ProcessSetting(_rare_collection)


def single_threaded() -> AbstractContextManager[None]:
    """Keep matrix products and factorisations on one thread, whoever else is at work.

    Their bits then do not depend on how many cores a machine has. Whatever makes numbers that a run
    rests on is within: a model file's code, first weights, data, a probe of a placement, a pass
    (`tests/unit/test_threads.py`).
    """
    return _limited() if _is_limit_per_thread() else _BLAS.held()


@contextlib.contextmanager
def fixed_settings() -> Generator[None]:
    """Keep matrix products on one thread, collect garbage rarely, leave NaN to the engine.

    Messages and records form no cycles, so that searching them for cycles every 700 allocations
    only costs time: a quarter of a run in `sleep` mode (`tests/benchmark/bench_messages.py`).
    Numbers that overflow become a `DivergenceError`, which says where; NumPy's warnings would only
    come before it.
    """
    with (
        single_threaded(),
        _COLLECTION.held(),
        np.errstate(over="ignore", invalid="ignore", divide="ignore"),
    ):
        yield
