"""How long each node keeps its worker busy, by direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from ampsim.study.bound_words import nodes_at
from ampsim.trace import DIRECTIONS, Recorder

_COLUMNS: Final = ("node", "worker", "direction", "steps", "busy_s", "share")


def times_of_nodes(
    recorder: Recorder, placed: Mapping[str, int], makespan_s: float
) -> pd.DataFrame:
    """What `Result.time_by_node` gives.

    Nodes stand in the order of the graph; directions that took no time are left out.
    """
    recorder.flush()
    summary = recorder.summary
    rows: list[tuple[Any, ...]] = []
    for place, node in enumerate(recorder.nodes):
        for code in (2, 1, 0):
            steps, busy_s = int(summary.node_steps[place, code]), float(summary.node_s[place, code])
            if steps:
                worker = placed.get(node, -1)
                rows.append((node, worker, DIRECTIONS[code], steps, busy_s, busy_s / makespan_s))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def bound_at(
    name: str | None, recorder: Recorder, placed: Mapping[str, int], parts: pd.DataFrame
) -> str:
    """The nodes at what bounds a run, those that work for longest first; empty where it has none.

    Args:
        name: of the bound, as `Bounds.bound_by`.
        recorder: of the run.
        placed: the worker of each node.
        parts: of its critical path.
    """
    if name == "critical path":
        steps = parts.loc[parts["kind"] == "compute", "node"]
        return ", ".join(dict.fromkeys(str(node) for node in steps))
    works_s = recorder.summary.node_s.sum(axis=1).tolist()
    busy_s = dict(zip(recorder.nodes, works_s, strict=True))
    return nodes_at(name or "", placed, busy_s)
