"""A row of a forecast or report, ready to run, and all that decides what its runs give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ampsim.model_parallel import Schedule
from ampsim.study.provenance import cluster_origin, model_origin, schedule_origin
from ampsim.study.task import Plan

PAPER: Final = "paper"
"""Name of the placement that a row has unless it says another."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a report, ready to run.

    Args:
        label: what it is called.
        schedule: what runs.
        plan: on what, and for how long.
        settings: options of the model that are its own.
        data: the files that the model reads, with their hashes.
        code: a hash of what the model's file says.
        has_own_cluster: whether its cluster is not that of other rows.
    """

    label: str
    schedule: Schedule
    plan: Plan
    settings: dict[str, Any]
    data: tuple[dict[str, str], ...]
    code: str
    has_own_cluster: bool = False

    @property
    def origin(self) -> dict[str, Any]:
        """What ran, as plain values."""
        schedule = schedule_origin(self.schedule)
        own: dict[str, Any] = {"set": self.settings} if self.settings else {}
        placement = self.plan.placement.origin
        if placement["name"] != PAPER:
            own["placement"] = placement
        if self.has_own_cluster:
            own["cluster"] = cluster_origin(self.plan.cluster)
        return {"label": self.label, **schedule, "mode": self.plan.mode, **own}

    @property
    def decided_by(self) -> dict[str, Any]:
        """Everything that its runs depend on but seed and ampsim itself, as plain values."""
        origin = model_origin(self.plan.model)
        if self.data:  # it says what lies there
            origin["config"].pop("folder", None)
        origin["sha256"] = self.code
        return {
            "numpy": np.__version__,
            "model": origin,
            "cluster": self.plan.cluster.digest,
            "schedule": schedule_origin(self.schedule),
            "placement": self.plan.placement.origin,
            "mode": self.plan.mode,
            "instances": self.plan.instances,
            "epochs": self.plan.max_epochs,
            "stop_at": self.plan.stop_at,
            "data": self.data,
            **({} if self.plan.rate.factor == 1 else {"rate_factor": self.plan.rate.factor}),
            **(
                {}
                if self.plan.validate_every is None
                else {"validate_every": self.plan.validate_every}
            ),
            **({} if self.plan.times_validation else {"times_validation": False}),
        }
