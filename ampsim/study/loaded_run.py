"""A kept run read back as a result: its tables, and the numbers that are read off them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ampsim.arguments import checked
from ampsim.study.path_tables import path_of_tables
from ampsim.study.read_off import WithPath
from ampsim.study.run_dir import KeptRun, TableName, read_run
from ampsim.trace import DIRECTIONS, read_only


@dataclass(frozen=True)
class LoadedRun(WithPath):
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

    @cached_property
    def critical_path(self) -> pd.DataFrame:
        """As `Result.critical_path`."""
        return path_of_tables(self.spans, self.transfers, self.admissions)

    @property
    def messages(self) -> int:
        """Messages served, updates among them."""
        return len(self.spans)

    @property
    def makespan_s(self) -> float:
        """End of the last span."""
        spans = self.spans
        return float(spans["end_s"].max()) if len(spans) else 0.0

    @property
    def utilisation(self) -> float:
        """Seconds of service over workers times makespan; NaN where no time passed."""
        spans, available_s = self.spans, self.workers * self.makespan_s
        return (
            float((spans["end_s"] - spans["start_s"]).sum()) / available_s
            if available_s
            else np.nan
        )

    @property
    def utilisation_by_worker(self) -> pd.DataFrame:
        """One row a worker: worker, and the shares of the makespan in update, backward, forward."""
        spans, makespan_s = self.spans, self.makespan_s or np.nan
        busy_s = (spans["end_s"] - spans["start_s"]).to_numpy()
        workers = spans["worker"].to_numpy()
        shares: dict[str, Any] = {"worker": np.arange(self.workers)}
        for name in DIRECTIONS:
            is_it = (spans["direction"] == name).to_numpy()
            own_s = np.bincount(workers[is_it], busy_s[is_it], self.workers)
            shares[name] = own_s / makespan_s
        return pd.DataFrame(shares)

    @property
    def staleness(self) -> pd.DataFrame:
        """The histogram: node, staleness, count of gradients."""
        made = self.spans[self.spans["staleness"] >= 0]
        counts = made.groupby(["node", "staleness"], observed=True).size()
        table = counts.rename("count").reset_index()
        return table.astype({"node": str})

    @property
    def staleness_mean(self) -> float:
        """Mean over all gradients; NaN where there was none."""
        made = self._gradients
        return float(made.mean()) if len(made) else np.nan

    @property
    def staleness_max(self) -> int | None:
        """Largest of any gradient; None where there was none."""
        made = self._gradients
        return int(made.max()) if len(made) else None

    @property
    def _gradients(self) -> np.ndarray:
        staleness = self.spans["staleness"].to_numpy()
        return staleness[staleness >= 0]

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
