"""What tables and figures take from a run: it can be kept when the weights are long gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ampsim.study.read_off import Rates


@dataclass(frozen=True)
class Outline(Rates):
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
        bound_by: what bounds the run, as `Result.bounds`; None where unknown.
        worker_share: of the makespan, that of the busiest worker; as `Result.bounds`, all four.
        path_share: that of the critical path.
        link_share: that of the busiest link.
        admission_share: that in which the limit on what is in flight holds it up.
        placement: its name and options, and the worker of each node.
        epochs: as `Result.epochs`.
        spans: as `Result.spans`, the leading ones.
        transfers: as `Result.transfers`, the leading ones.
        staleness: as `Result.staleness`.
        utilisation_by_worker: as `Result.utilisation_by_worker`.
        time_by_node: as `Result.time_by_node`.
        path_parts: as `Result.critical_path_parts`.
        bound_at: the nodes at what `bound_by` names; empty without one.
        items: what throughput is of, such as "images"; empty where unknown.
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
    placement: dict[str, Any] = field(repr=False)
    epochs: pd.DataFrame = field(repr=False)
    spans: pd.DataFrame = field(repr=False)
    transfers: pd.DataFrame = field(repr=False)
    staleness: pd.DataFrame = field(repr=False)
    utilisation_by_worker: pd.DataFrame = field(repr=False)
    time_by_node: pd.DataFrame = field(repr=False)
    path_parts: pd.DataFrame = field(repr=False)
    bound_at: str = ""
    items: str = ""
