"""What causes join: all spans, transfers and admissions of a run, a few columns of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from ampsim.trace.kinds import COMPUTE_LANE
from ampsim.trace.log import Log
from ampsim.trace.table import Columns

LOG_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "spans": {
        "start_s": np.float64,
        "end_s": np.float64,
        "cause": np.int64,
        "instance": np.int64,
        "worker": np.int32,
        "node": np.int32,
        "direction": np.int8,
    },
    "transfers": {
        "sent_s": np.float64,
        "start_s": np.float64,
        "held_s": np.float64,
        "end_s": np.float64,
        "cause": np.int64,
        "target": np.int32,
        "source_worker": np.int32,
        "target_worker": np.int32,
        "bytes": np.int64,
    },
    "admissions": {"time_s": np.float64, "cause": np.int64, "is_limited": np.bool_},
}
"""What is logged of each table: in a whole run as many rows as messages."""

LANE: Final[dict[str, Any]] = {"lane": np.int8}
"""What spans have beside that in a run whose devices have several lanes."""


class CausalRecords(NamedTuple):
    """All records of a run.

    Attributes:
        spans, transfers, admissions: their columns are those of `LOG_SCHEMAS`.
        closures: (time in seconds, is_closed): from when on instances were kept out, or no more.
    """

    spans: Log
    transfers: Log
    admissions: Log
    closures: tuple[tuple[float, bool], ...]

    def computed(self) -> Iterator[np.ndarray]:
        """Chunks of the spans of what is computed, without other lanes."""
        for chunk in self.spans.chunks():
            has_lanes = "lane" in (chunk.dtype.names or ())
            yield chunk[chunk["lane"] == COMPUTE_LANE] if has_lanes else chunk


def log_of(columns: Columns, table: str) -> Log:
    """Make a log of whole columns, which stays in memory."""
    schema = LOG_SCHEMAS[table] | {name: kind for name, kind in LANE.items() if name in columns}
    log = Log(schema, bytes_max=1 << 62)
    if len(next(iter(columns.values()))):
        log({name: columns[name] for name in schema})
    return log
