"""A kept run read back as a result: its tables, and the numbers that are read off them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ampsim.arguments import checked
from ampsim.study.memory_tables import WithMemory
from ampsim.study.path_tables import numbered, path_of_tables
from ampsim.study.read_off import Occupation, WithTotals
from ampsim.study.run_dir import KeptRun, TableName, read_run
from ampsim.study.waits import waits_of
from ampsim.trace import COMPUTE_LANE, DIRECTIONS, LANES, read_only
from ampsim.trace.summary import Summary


@dataclass(frozen=True)
class LoadedRun(WithTotals, WithMemory):
    """What `load_run` returns: as `Result`, but for the model and its weights, which are not kept.

    The tables are read-only, and read when they are first asked for.

    Attributes:
        kept: the folder and its manifest.
    """

    kept: KeptRun
    _frames: dict[str, pd.DataFrame] = field(
        default_factory=dict[str, pd.DataFrame], init=False, repr=False, compare=False
    )

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.kept.folder

    @property
    def origin(self) -> dict[str, Any]:
        """Command, seed, versions, hashes and what the costs rest on: the manifest."""
        return self.kept.manifest

    @property
    def model(self) -> str:
        """The model's name."""
        return self.kept.model

    @property
    def schedule(self) -> str:
        """The schedule's name."""
        return self.kept.schedule

    @property
    def workers(self) -> int:
        """How many workers there were."""
        return self.kept.workers

    @property
    def max_active_keys(self) -> int | None:
        """Instances in flight at most; None where there are as many as stages."""
        limit = self.kept.manifest["schedule"].get("max_active_keys", 1)
        return limit if isinstance(limit, int) else None

    @property
    def spans(self) -> pd.DataFrame:
        """As `Result.spans`."""
        return self._table("spans")

    @property
    def transfers(self) -> pd.DataFrame:
        """As `Result.transfers`."""
        return self._table("transfers")

    @property
    def admissions(self) -> pd.DataFrame:
        """As `Result.admissions`."""
        return self._table("admissions")

    @property
    def updates(self) -> pd.DataFrame:
        """As `Result.updates`."""
        return self._table("updates")

    @property
    def stashes(self) -> pd.DataFrame:
        """As `Result.stashes`."""
        return self._table("stashes")

    @property
    def epochs(self) -> pd.DataFrame:
        """As `Result.epochs`."""
        return self._table("epochs")

    @property
    def memory(self) -> pd.DataFrame:
        """As `Result.memory`."""
        return self._table("memory")

    @property
    def outages(self) -> pd.DataFrame:
        """As `Result.outages`."""
        return self._table("outages")

    @property
    def exchanges(self) -> pd.DataFrame:
        """As `Result.exchanges`."""
        return self._table("exchanges")

    @property
    def waits(self) -> pd.DataFrame:
        """As `Result.waits`."""
        manifest = self.kept.manifest
        return waits_of(self.exchanges, manifest["schedule"], manifest["seed"])

    @property
    def collectives(self) -> pd.DataFrame:
        """As `Result.collectives`."""
        return self._table("collectives")

    def _occupation(self) -> Occupation:
        groups = self.kept.manifest["cluster"]["groups"]
        return Occupation(groups, self.outages, lambda: (self._computed,))

    @property
    def _computed(self) -> pd.DataFrame:
        """The spans without other lanes."""
        spans = self.spans
        return spans[spans["lane"] == LANES[COMPUTE_LANE]] if "lane" in spans else spans

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """As `Result.critical_path`."""
        return path_of_tables(self.spans, self.transfers, self.admissions)

    @property
    def _totals(self) -> Summary:
        return self._sums

    @cached_property
    def _sums(self) -> Summary:
        sums, spans = Summary(len(self._nodes), self.workers), self.spans
        if len(spans):
            columns = {str(name): spans[name].to_numpy() for name in spans}
            columns["node"] = numbered(spans["node"], self._nodes)
            columns["direction"] = numbered(spans["direction"], DIRECTIONS)
            if "lane" in columns:
                columns["lane"] = numbered(spans["lane"], LANES)
            sums(columns)
        return sums

    @property
    def _nodes(self) -> Sequence[str]:
        """Those of the spans' table, in its order."""
        return [str(one) for one in self.spans["node"].astype("category").cat.categories]

    def _table(self, name: TableName) -> pd.DataFrame:
        if name not in self._frames:
            read = self.kept.table(name)
            self._frames[name] = read_only({str(key): _array(read[key]) for key in read})
        return self._frames[name].copy(deep=False)


def _array(column: pd.Series[Any]) -> Any:
    own: Any = column.array.copy()
    return own if own.dtype == "category" else np.array(own)


@checked
def load_run(folder: str | os.PathLike[str]) -> LoadedRun:
    """Read a run that `ampsim run` kept.

    Args:
        folder: what `--out` named.

    Returns:
        Its tables and numbers, as of a `Result`; `ampsim.figures` draws it.

    Raises:
        FileFormatError: the folder does not hold a whole run.
    """
    return LoadedRun(read_run(folder))
