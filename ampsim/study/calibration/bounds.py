"""What bounds a row: its busiest worker in training and in validation, and that worker's nodes."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from ampsim.study.calibration.table_file import Quantity
from ampsim.study.result import Result

NAMED: Final = 2
"""Nodes of a worker that are named, those that take the most (chosen: a line of a table)."""


def bounds_of(result: Result) -> dict[Quantity, str]:
    """For each quantity the busiest worker, its share of the time, and its costliest nodes."""
    spans, train_s = result.spans, float(result.epochs.train_s.iloc[0])
    is_training = spans.start_s < train_s
    return {
        "train_per_s": bound(spans[is_training], train_s),
        "valid_per_s": bound(spans[~is_training], float(result.epochs.valid_s.iloc[0])),
    }


def bound(spans: pd.DataFrame, seconds: float) -> str:
    """The busiest worker of spans of a pass of so many seconds, its share, and its nodes."""
    lengths: Any = spans.end_s - spans.start_s
    busy: Any = lengths.groupby([spans.worker, spans.node], observed=True).sum()
    by_worker: Any = busy.groupby(level="worker").sum()
    if not len(by_worker) or seconds <= 0:
        return "nothing"
    worker = by_worker.idxmax()
    nodes = busy.loc[worker].sort_values(ascending=False)
    names = ", ".join(str(name) for name in nodes.index[:NAMED])
    more = len(nodes) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f"worker {worker}, busy {by_worker.loc[worker] / seconds:.0%}: {names}{rest}"
