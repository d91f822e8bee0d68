"""When ranks could do nothing for an exchange with others, worker by worker, as a table."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.study.outages import OUTAGE_SCHEMA
from ampsim.trace import read_only

NOTHING: Final = "nothing"
"""What an exchange waits for that holds nobody up."""


def waits_of(exchanges: pd.DataFrame, workers_per_rank: int) -> pd.DataFrame:
    """One row a worker of a rank that waited: worker, kind ("waits for all", ...), start_s, end_s.

    Args:
        exchanges: as `Result.exchanges`.
        workers_per_rank: as of the solver.
    """
    if not len(exchanges):
        return read_only({name: np.zeros(0, kind) for name, kind in OUTAGE_SCHEMA.items()})
    end_s, stalled_s = (exchanges[name].to_numpy(float) for name in ("end_s", "stalled_s"))
    why = np.array([f"waits for {one}" for one in exchanges["waits_for"]], object)
    waits = stalled_s > 0
    rank = exchanges["rank"].to_numpy()[waits]
    workers = (rank[:, None] * workers_per_rank + np.arange(workers_per_rank)).reshape(-1)
    columns: dict[str, Any] = {"kind": why, "start_s": end_s - stalled_s, "end_s": end_s}
    spread = {name: np.repeat(one[waits], workers_per_rank) for name, one in columns.items()}
    return read_only({"worker": workers.astype(np.int32), **spread})
