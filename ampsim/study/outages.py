"""The outages of a run as a table, and how long they held up steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.hardware import Cluster
from ampsim.machine import outages_until
from ampsim.trace import Recorder, read_only

OUTAGE_SCHEMA: Final[dict[str, Any]] = {
    "worker": np.int32,
    "kind": object,
    "start_s": np.float64,
    "end_s": np.float64,
}
LOSS_SCHEMA: Final[dict[str, Any]] = {
    "checkpoint_s": np.float64,
    "updates_lost": np.int64,
}
"""More columns, where a stop may lose weights: the time of the checkpoint that the device came back
with, NaN where it kept its weights, and the updates that were lost with them."""

_NONE_LOST: Final = (math.nan, 0)
_DOWN: Final = ("pause", "stop")


def outage_table(cluster: Cluster, seed: int, recorder: Recorder) -> pd.DataFrame:
    """The outages that begin before a run's last span ends, worker by worker, each to its own end.

    Beside them are the checkpoints that took time.
    """
    found = outages_until(cluster, seed, recorder.summary.end_s)
    rows: list[tuple[Any, ...]] = [
        (worker, one.kind, one.start_s, one.end_s) for worker, one in found
    ]
    schema = OUTAGE_SCHEMA
    if cluster.checkpoints is not None:
        schema = OUTAGE_SCHEMA | LOSS_SCHEMA
        rows += [(worker, "checkpoint", *times) for worker, *times in recorder.checkpoints]
        rows.sort(key=lambda row: (row[0], row[2]))
        lost = {(worker, start_s): rest for worker, start_s, *rest in recorder.losses}
        rows = [
            (*row, *(lost.get((row[0], row[2]), _NONE_LOST) if row[1] == "stop" else _NONE_LOST))
            for row in rows
        ]
    fields = list(zip(*rows, strict=True)) or [()] * len(schema)
    columns = zip(schema.items(), fields, strict=True)
    return read_only({name: np.array(values, kind) for (name, kind), values in columns})


def no_outages() -> pd.DataFrame:
    """The table of a run in which every device is as usual."""
    return read_only({name: np.zeros(0, kind) for name, kind in OUTAGE_SCHEMA.items()})


def held_up_s(spans: Iterable[Any], outages: pd.DataFrame, workers: int) -> np.ndarray:
    """Per worker, the seconds within steps in which the device was down.

    Args:
        spans: chunks of all spans of the run, with worker, start_s and end_s.
        outages: as `Result.outages`.
        workers: how many there are.
    """
    total_s = np.zeros(workers)
    down: pd.DataFrame = outages[outages["kind"].isin(_DOWN)]
    if not len(down):
        return total_s
    numbers: list[int] = down["worker"].unique().tolist()
    until = {number: _down_until(down[down["worker"] == number]) for number in numbers}
    for chunk in spans:
        worker = np.asarray(chunk["worker"])
        start_s, end_s = np.asarray(chunk["start_s"]), np.asarray(chunk["end_s"])
        for number, (times_s, down_s) in until.items():
            own = worker == number
            first, last = (np.interp(at[own], times_s, down_s) for at in (start_s, end_s))
            total_s[number] += float((last - first).sum())
    return total_s


def _down_until(outages: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Times, and how long the device was down until then; outages that overlap count once."""
    edges: list[float] = [0.0]
    down_s: list[float] = [0.0]
    rows = outages.sort_values("start_s")[["start_s", "end_s"]].to_numpy().tolist()
    for start_s, end_s in rows:
        start_s = max(start_s, edges[-1])
        if end_s > start_s:
            edges += [start_s, end_s]
            down_s += [down_s[-1], down_s[-1] + end_s - start_s]
    return np.array(edges), np.array(down_s)
