"""Where a forecast's numbers come from, as its manifest has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ampsim.model_parallel import Schedule
from ampsim.study.forecast_runs import Run
from ampsim.study.learning_rates import Rate
from ampsim.study.model import Model
from ampsim.study.provenance import cluster_origin, costs, model_origin, schedule_origin, software
from ampsim.study.ranking import Sureness
from ampsim.study.task import Plan


def manifest_of(
    plan: Plan, schedules: Sequence[Schedule], rates: Sequence[Rate], runs: Sequence[Run]
) -> dict[str, Any]:
    """Command, versions, seeds, hashes, costs and placement, as nested plain values.

    Args:
        plan: what all rows share.
        schedules: those of the rows.
        rates: their learning rates; none where nothing has run.
        runs: every run; the placement is that of the first.
    """
    target, rates = plan.stop_at, rates or [Rate()] * len(schedules)
    return {
        **software(),
        "seeds": sorted({run.seed for run in runs}),
        "mode": plan.mode,
        "target": "none" if target is None else target,
        "metric": plan.model.measure.kind,
        "max_epochs": plan.max_epochs if plan.mode == "numeric" else 1,
        **({} if plan.validate_every is None else {"validate_every": plan.validate_every}),
        "model": model_origin(plan.model),
        "cluster": cluster_origin(plan.cluster),
        "schedules": [
            {**schedule_origin(schedule), **_rate_origin(rate, plan.model)}
            for schedule, rate in zip(schedules, rates, strict=True)
        ],
        "placement": runs[0].outline.placement if runs else plan.placement.origin,
        "costs": costs(plan.cluster),
    }


def sureness_of(sureness: Sureness, rows: int) -> Mapping[str, Any]:
    """How sure a call of the order of so many rows is, and how often it was looked for."""
    return {"sure": sureness.sure, "looks": sureness.looks} if rows > 1 else {}


def _rate_origin(rate: Rate, model: Model) -> dict[str, Any]:
    """A row's learning rate, if it is not as given."""
    return rate.columns(model) if rate != Rate() else {}
