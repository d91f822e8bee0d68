"""What a row says of the copies that it trains: how many there are, and how much they compute.

The columns `ranks`, `servers` and `cc_ratio`: ranks are the copies of the model under a solver, and
a schedule has 1; servers are the workers that hold no copy but the weights that ranks share, and a
schedule has 0. The CC ratio is that of `ampsim.study.cc_ratio`, and belongs to the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ampsim.data_parallel import Solver
from ampsim.errors import AmpsimError
from ampsim.hardware import Cluster
from ampsim.model_parallel import Schedule
from ampsim.study.cc_ratio import cc_ratio
from ampsim.study.model import Model
from ampsim.study.provenance import model_origin

Trained: TypeAlias = tuple[Model, Schedule, Cluster]
"""What a row is of."""


def with_copies(
    rows: Sequence[Mapping[str, Any]], trained: Sequence[Trained]
) -> list[dict[str, Any]]:
    """Rows with the columns, which come last."""
    return [{**row, **of} for row, of in zip(rows, copies_of(trained), strict=True)]


def copies_of(rows: Sequence[Trained]) -> list[dict[str, Any]]:
    """The columns of each row; the CC ratio is None where it is unknown."""
    known: dict[str, float | None] = {}
    found: list[dict[str, Any]] = []
    for model, schedule, cluster in rows:
        key = repr(model_origin(model)) if model.origin else str(id(model))
        if key not in known:
            known[key] = _ratio(model)
        found.append({**counts_of(schedule, cluster.workers), "cc_ratio": known[key]})
    return found


def counts_of(schedule: Schedule, workers: int) -> dict[str, int]:
    """How many ranks and servers a schedule or solver has on so many workers."""
    if not isinstance(schedule, Solver):
        return {"ranks": 1, "servers": 0}
    return {"ranks": schedule.ranks_on(workers), "servers": schedule.server_count}


def _ratio(model: Model) -> float | None:
    """The CC ratio; None also of a model that fails, as its runs say themselves."""
    try:
        return cc_ratio(model)
    except AmpsimError:
        return None
