"""When ranks could do nothing for an exchange with others, worker by worker, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.data_parallel import FIXED, OF_GROUP, blocks_of
from ampsim.study.outages import OUTAGE_SCHEMA
from ampsim.trace import read_only

NOTHING: Final = "nothing"
"""What an exchange waits for that holds nobody up."""


def waits_of(exchanges: pd.DataFrame, schedule: Mapping[str, Any], seed: int) -> pd.DataFrame:
    """One row a worker of a rank that waited: worker, kind ("waits for all", ...), start_s, end_s.

    Args:
        exchanges: as `Result.exchanges`.
        schedule: its name and options, as of a manifest.
        seed: of the run, from which groups may have been drawn.
    """
    if not len(exchanges):
        return read_only({name: np.zeros(0, kind) for name, kind in OUTAGE_SCHEMA.items()})
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
    """Share of their time that so many copies could do nothing for an exchange."""
    if not copies or not makespan_s:
        return np.nan
    waiting = copies_that_wait(exchanges, schedule)
    return float((exchanges["stalled_s"] * waiting).sum()) / (copies * makespan_s)
