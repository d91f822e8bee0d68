"""A critical path as users read it: names instead of numbers, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.trace import DIRECTIONS, LANES, PATH_KINDS, Records, critical_path, read_only
from ampsim.trace.records import LANE, LOG_SCHEMAS, log_of
from ampsim.trace.table import Columns

PART: Final = ("kind", "node", "direction", "worker")
"""What parts of a path have in common that are added up."""

_CONTROLLER: Final = "controller"
NO_DIRECTION: Final = ""
"""Direction of what is no step."""


def path_frame(path: Columns, nodes: Sequence[str]) -> pd.DataFrame:
    """What `Result.critical_path` gives."""
    codes = {
        "kind": (path["kind"], PATH_KINDS),
        "node": (path["node"], nodes),
        "direction": (
            np.where(path["direction"] < 0, len(DIRECTIONS), path["direction"]),
            (*DIRECTIONS, NO_DIRECTION),
        ),
    }
    decoded = {
        name: pd.Categorical.from_codes(places.tolist(), dtype=pd.CategoricalDtype(list(names)))
        for name, (places, names) in codes.items()
    }
    return read_only({**path, **decoded})


def path_parts(path: pd.DataFrame) -> pd.DataFrame:
    """What `Result.critical_path_parts` gives."""
    lasting = path.assign(seconds=path["end_s"] - path["start_s"])
    sums = lasting.groupby(list(PART), observed=True, sort=False)["seconds"].sum().reset_index()
    sums = sums[sums["seconds"] > 0].sort_values("seconds", ascending=False, kind="stable")
    makespan_s = float(path["end_s"].iloc[-1]) if len(path) else np.nan
    return sums.assign(share=sums["seconds"] / makespan_s).reset_index(drop=True)


def path_of_tables(
    spans: pd.DataFrame, transfers: pd.DataFrame, admissions: pd.DataFrame
) -> pd.DataFrame:
    """The critical path of a whole trace that has names instead of numbers."""
    names = sorted({str(one) for frame in (spans["node"], transfers["target"]) for one in frame})
    nodes = list(dict.fromkeys([_CONTROLLER, *names]))
    tables = {"spans": spans, "transfers": transfers, "admissions": admissions}
    columns = {
        table: {name: frame[name].to_numpy() for name in LOG_SCHEMAS[table]}
        for table, frame in tables.items()
    }
    columns["spans"]["node"] = numbered(spans["node"], nodes)
    columns["transfers"]["target"] = numbered(transfers["target"], nodes)
    columns["spans"]["direction"] = numbered(spans["direction"], DIRECTIONS)
    for name in LANE:
        if name in spans:
            columns["spans"][name] = numbered(spans[name], LANES)
    logs = {table: log_of(own, table) for table, own in columns.items()}
    return path_frame(critical_path(Records(**logs, closures=())), nodes)


def numbered(column: pd.Series[Any], names: Sequence[str]) -> np.ndarray:
    """The place among `names` of each name in a column."""
    places = {name: place for place, name in enumerate(names)}
    return column.astype(object).map(places).to_numpy(np.int64)
