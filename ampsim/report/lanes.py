"""The rows of a chart of a run: a worker's own, and those of its other lanes and of the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ampsim.report.frames import DataFrame, Integers, integers, texts
from ampsim.report.words import plain
from ampsim.trace import LANES

LANE_STEP: Final = 10_000_000
"""More than there are workers. A row is that of worker + `LANE_STEP` x lane: the worker's number
where it computes; the host's is -1."""


def row_numbers(spans: DataFrame) -> Integers:
    """The row of each span."""
    worker = integers(spans, "worker")
    if "lane" not in spans:
        return worker
    codes = {name: code for code, name in enumerate(LANES)}
    return worker + LANE_STEP * np.array([codes[name] for name in texts(spans, "lane")], np.int64)


def is_worker(row: int) -> bool:
    """Whether a row is where a worker computes."""
    return 0 <= row < LANE_STEP


def row_name(row: int, names: Sequence[str] = ()) -> str:
    """What the row of another lane, or of the host, is called; `names` are those of the workers."""
    if row < 0:
        return "host"
    lane, worker = divmod(row, LANE_STEP)
    return f"{plain(names[worker], 24) if names else f'worker {worker}'}: {LANES[lane]}"


def short_name(row: int) -> int | str:
    """What a row is called where there is little room."""
    if is_worker(row):
        return row
    lane, worker = divmod(row, LANE_STEP)
    return "host" if row < 0 else f"{worker} {LANES[lane]}"
