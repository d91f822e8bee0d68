"""What tables and figures take from a run: it can be kept when the weights are long gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Outline:
    """The numbers and tables of one run.

    Args:
        max_active_keys: instances in flight at most.
        min_update_interval: gradients between updates; None where nodes differ.
        replicas: of the model.
        workers: how many there were.
        utilisation: seconds of service over workers times makespan; NaN where no time passed.
        staleness_mean: over all gradients; NaN where there was none.
        staleness_max: of all gradients; None where there was none.
        messages: served, updates among them.
        makespan_s: end of the last span.
        bound_by: what bounds the first training pass, as `Result.bounds`; None where unknown.
        worker_share: of its time, that of the busiest worker; as `Result.bounds`, as the others.
        path_share: that of the critical path.
        link_share: that of the busiest link.
        admission_share: that in which the limit on what is in flight holds it up.
        epochs: as `Result.epochs`.
        spans: as `Result.spans`, the leading ones.
        staleness: as `Result.staleness`.
        utilisation_by_worker: as `Result.utilisation_by_worker`.
    """

    max_active_keys: int
    min_update_interval: int | None
    replicas: int
    workers: int
    utilisation: float
    staleness_mean: float
    staleness_max: int | None
    messages: int
    makespan_s: float
    bound_by: str | None
    worker_share: float
    path_share: float
    link_share: float
    admission_share: float
    epochs: pd.DataFrame = field(repr=False)
    spans: pd.DataFrame = field(repr=False)
    staleness: pd.DataFrame = field(repr=False)
    utilisation_by_worker: pd.DataFrame = field(repr=False)

    @property
    def train_per_s(self) -> float:
        """Training items per virtual second of training; NaN where there was none."""
        return rate_of(self.epochs["instances"], self.epochs["train_s"])

    @property
    def valid_per_s(self) -> float:
        """Validation items per virtual second of validation; NaN where there was none."""
        return rate_of(self.epochs["valid_instances"], self.epochs["valid_s"])


def rate_of(items: pd.Series[Any], seconds: pd.Series[Any]) -> float:
    """Return items per second over whole columns; NaN where no time passed."""
    total_s = float(seconds.sum())
    return float(items.sum()) / total_s if total_s else float("nan")
