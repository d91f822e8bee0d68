"""What is read off the tables of a run alone, whoever holds them."""

from __future__ import annotations

from typing import Any, Protocol

import pandas as pd

from ampsim.study.path_tables import path_parts


class _HasEpochs(Protocol):
    @property
    def epochs(self) -> pd.DataFrame: ...


class _HasPath(Protocol):
    @property
    def critical_path(self) -> pd.DataFrame: ...


class Rates:
    """Throughput of a run, by its epochs."""

    @property
    def train_per_s(self: _HasEpochs) -> float:
        """Training items per virtual second of training; NaN where there was none."""
        return rate_of(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self: _HasEpochs) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return rate_of(self.epochs["valid_instances"], self.epochs["valid_s"])


class WithPath(Rates):
    """The same, and where the time of its critical path goes."""

    @property
    def critical_path_parts(self: _HasPath) -> pd.DataFrame:
        """Where `critical_path` spends its time: kind, node, direction, worker, seconds, share.

        One row for all of its parts that agree in these, the longest first; the seconds add up to
        `makespan_s`.
        """
        return path_parts(self.critical_path)


def rate_of(items: pd.Series[Any], seconds: pd.Series[Any]) -> float:
    """Return items per second over whole columns; NaN where no time passed."""
    total_s = float(seconds.sum())
    return float(items.sum()) / total_s if total_s else float("nan")
