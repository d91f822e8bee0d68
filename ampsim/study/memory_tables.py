"""What lay in the workers' memories, as tables of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import pandas as pd

from ampsim.errors import OptionError
from ampsim.trace import MEMORY_CATEGORIES, read_only
from ampsim.trace.table import Columns

TIMELINE_SCHEMA: Final[dict[str, Any]] = {
    "worker": np.int32,
    "time_s": np.float64,
    "bytes": np.int64,
    **dict.fromkeys(MEMORY_CATEGORIES, np.int64),
}
"""Columns of `Result.memory`."""


def timeline(columns: Columns) -> pd.DataFrame:
    """The table of what a recorder has of memory, with the sum of all categories."""
    whole = np.sum([columns[name] for name in MEMORY_CATEGORIES], axis=0, dtype=np.int64)
    return read_only({name: {**columns, "bytes": whole}[name] for name in TIMELINE_SCHEMA})


def no_timeline() -> pd.DataFrame:
    """The table of a run in which nobody counted."""
    return read_only({name: np.zeros(0, kind) for name, kind in TIMELINE_SCHEMA.items()})


class WithMemory(ABC):
    """What is read off the timeline of the workers' memories."""

    @property
    @abstractmethod
    def memory(self) -> pd.DataFrame:
        """What lay in the workers' memories: worker, time_s, bytes, weights, gradients, ...

        One row for the fullest moment of each stretch of time, of which a worker has some hundreds:
        `bytes` in all, and then those of each category (docs/decisions/0013-memory.md). Empty where
        nobody counted (`counts_memory` of `simulate`).
        """

    @property
    def peak_memory(self) -> pd.DataFrame:
        """The row of `memory` at which each worker's memory was fullest, of several the first."""
        memory = self.memory
        fullest = memory.groupby("worker")["bytes"].idxmax()
        return memory.loc[fullest].reset_index(drop=True)

    @property
    def peak_bytes(self) -> pd.Series[Any]:
        """The most bytes that lay in each worker's memory at once, by worker.

        Raises:
            OptionError: nobody counted.
        """
        memory = self.memory
        if not len(memory):
            raise OptionError(
                "peak_bytes: memory was not counted in this run; run it with counts_memory=True"
            )
        return memory.groupby("worker")["bytes"].max().rename("peak_bytes")
