"""A kept run read back as a result: its tables, and the numbers that are read off them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ampsim.arguments import checked
from ampsim.runs.folder import KeptRun, read_run
from ampsim.study.outages import waits_of
from ampsim.study.read_off import Occupation, WithMemory, WithTotals, numbered, path_of_tables
from ampsim.trace import COMPUTE_LANE, DIRECTIONS, LANES, read_only
from ampsim.trace.summary import Summary


class _Kept:
    """A table of the folder, as `Result` has it by the same name; read when first asked for."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, run: LoadedRun | None, owner: type | None = None) -> pd.DataFrame:
        if run is None:
            untyped: Any = self
            return untyped
        held: dict[str, pd.DataFrame] = vars(run)
        key = f"_{self._name}"
        if key not in held:
            read = run.kept.table(self._name)
            held[key] = read_only({str(name): _array(read[name]) for name in read})
        return held[key].copy(deep=False)


@dataclass(frozen=True)
class LoadedRun(WithTotals, WithMemory):
    """What `load_run` returns: as `Result`, but for the model and its weights, which are not kept.

    The tables are read-only, and read when they are first asked for.

    Attributes:
        kept: the folder and its manifest.
    """

    kept: KeptRun

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

    spans = _Kept()
    transfers = _Kept()
    admissions = _Kept()
    updates = _Kept()
    stashes = _Kept()
    epochs = _Kept()
    memory = _Kept()  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]  # is read alike
    outages = _Kept()
    exchanges = _Kept()
    collectives = _Kept()

    @property
    def waits(self) -> pd.DataFrame:
        """As `Result.waits`."""
        manifest = self.kept.manifest
        return waits_of(self.exchanges, manifest["schedule"], manifest["seed"])

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
