"""Let a pass run undisturbed by what else a Python process does."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]  # has none

ALLOCATIONS: Final = 400_000
"""Allocations between two garbage collections (chosen: more than a chunk of a trace's rows needs,
which then are never searched; Python's own default is 700)."""


@contextlib.contextmanager
def undisturbed() -> Generator[None]:
    """Keep matrix products on one thread, collect garbage rarely, leave NaN to the engine.

    On one thread the bits of a product do not depend on how many cores a machine has. Messages and
    records form no cycles, so that searching them for cycles every 700 allocations only costs time:
    a quarter of a run in `sleep` mode (`tests/benchmark/bench_messages.py`). Numbers that overflow
    become a `DivergenceError`, which says where; NumPy's warnings would only come before it.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], ALLOCATIONS), *before[1:])
    try:
        with (
            threadpool_limits(limits=1, user_api="blas"),
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),
        ):
            yield
    finally:
        gc.set_threshold(*before)
