"""Tables of what held a run up: outages of devices, waits of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.data_parallel import FIXED, OF_GROUP, Solver, blocks_of
from ampsim.hardware import Cluster
from ampsim.machine import outages_until
from ampsim.trace import Recorder, read_only

OUTAGE_SCHEMA: Final[dict[str, Any]] = {
    "worker": np.int32,
    "kind": object,
    "start_s": np.float64,
    "end_s": np.float64,
}
LOSS_SCHEMA: Final[dict[str, Any]] = {"checkpoint_s": np.float64, "updates_lost": np.int64}
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
    """Per worker, the seconds within steps in which the device was down."""
    total_s = np.zeros(workers)
    if not outages["kind"].isin(_DOWN).any():
        return total_s
    for chunk in spans:
        worker = np.asarray(chunk["worker"])
        times_s = np.asarray(chunk["start_s"]), np.asarray(chunk["end_s"])
        down_s = down_within_s(outages, worker, times_s)
        total_s += np.bincount(worker[worker >= 0], down_s[worker >= 0], minlength=workers)
    return total_s


def down_within_s(
    outages: pd.DataFrame, worker: np.ndarray, times_s: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """The seconds of each step in which its device was down.

    Args:
        outages: as of `outage_table`.
        worker: of each step.
        times_s: starts and ends of the steps.
    """
    found = np.zeros(len(worker))
    down: pd.DataFrame = outages[outages["kind"].isin(_DOWN)]
    numbers: list[int] = down["worker"].unique().tolist()
    for number in numbers:
        edges_s, down_s = _down_until(down[down["worker"] == number])
        own = worker == number
        first, last = (np.interp(at[own], edges_s, down_s) for at in times_s)
        found[own] = last - first
    return found


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


NOTHING: Final = "nothing"
"""What an exchange waits for that holds nobody up."""


def waits_of(exchanges: pd.DataFrame, schedule: Mapping[str, Any], seed: int) -> pd.DataFrame:
    """One row a worker of a rank that waited, as `Result.waits`."""
    if not len(exchanges):
        return no_outages()
    end_s, stalled_s = (exchanges[name].to_numpy(float) for name in ("end_s", "stalled_s"))
    why = np.array([f"waits for {one}" for one in exchanges["waits_for"]], object)
    waits = stalled_s > 0
    counts = copies_that_wait(exchanges, schedule)[waits]
    before = np.repeat(np.cumsum(counts) - counts, counts)
    first = np.repeat(exchanges["rank"].to_numpy()[waits], counts)
    blocks = _blocks_of(schedule, seed)[first + np.arange(int(counts.sum())) - before]
    each = int(schedule.get("workers_per_rank", 1))
    workers = (blocks[:, None] * each + np.arange(each)).ravel()
    columns: dict[str, Any] = {"kind": why, "start_s": end_s - stalled_s, "end_s": end_s}
    spread = {name: np.repeat(one[waits], counts * each) for name, one in columns.items()}
    return read_only({"worker": workers.astype(np.int32), **spread})


def _blocks_of(schedule: Mapping[str, Any], seed: int) -> np.ndarray:
    """For each copy, the block of workers that it lies on."""
    levels: list[tuple[int, str]] = []
    solver = schedule
    while "ranks" in solver.get("inner", {}):
        levels.append((int(solver["ranks"]), str(solver.get("groups", FIXED))))
        solver = solver["inner"]
    copies = int(schedule["ranks"]) * _copies_by_level(schedule)[0]
    return np.array(blocks_of(levels, copies, seed))


def copies_that_wait(exchanges: pd.DataFrame, schedule: Mapping[str, Any]) -> np.ndarray:
    """For each exchange, how many copies of the model are in the rank that took part."""
    copies = _copies_by_level(schedule)
    level = np.maximum(OF_GROUP + 1 - exchanges["server"].to_numpy(), 0)
    return np.array(copies)[level]


def _copies_by_level(schedule: Mapping[str, Any]) -> list[int]:
    """Copies in each rank of a solver, of the one inside that, and so on.

    >>> _copies_by_level({"inner": {"ranks": 4, "inner": {"ranks": 2, "inner": {"name": "amp"}}}})
    [8, 2, 1]
    """
    inner: Mapping[str, Any] = schedule.get("inner", {})
    if "ranks" not in inner:
        return [1]
    within = _copies_by_level(inner)
    return [int(inner["ranks"]) * within[0], *within]


def wait_share(
    exchanges: pd.DataFrame, schedule: Mapping[str, Any], copies: int, makespan_s: float
) -> float:
    """Share of the makespan in which so many copies could do nothing for an exchange."""
    if not copies or not makespan_s:
        return np.nan
    beyond_s = (exchanges["end_s"] - makespan_s).clip(lower=0.0)  # as where a run fails later
    stalled_s = (exchanges["stalled_s"] - beyond_s).clip(lower=0.0)
    return float((stalled_s * copies_that_wait(exchanges, schedule)).sum()) / (copies * makespan_s)


def never_met(exchanges: pd.DataFrame, solver: Solver, workers: int) -> str:
    """Tell which ranks of a finished run exchanged with nobody, and why; empty where all did."""
    count, each = solver.ranks_on(workers), solver.copies_per_rank
    met = set(exchanges["rank"][exchanges["server"] > OF_GROUP].tolist())
    lone = [rank for rank in range(count) if rank * each not in met]
    if not lone:
        return ""
    who = "ranks never exchanged" if len(lone) == count else f"{_ranks(lone)} never exchanged"
    period = solver.decisions.period
    if period == 1:
        return f"{who}, as the run ended before; take more instances or epochs"
    what = "instances" if solver.assignments_per_exchange == 1 else "steps"
    return f"{who}, as the run ended before a period of {period} {what}; take a shorter period"


def _ranks(numbers: list[int]) -> str:
    """Ranks in words, at most four by their numbers."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 4:
        return f"{len(numbers)} ranks"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
