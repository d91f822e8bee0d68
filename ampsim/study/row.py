"""One row of a forecast: what the repeats of a schedule say together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import pandas as pd

from ampsim.metric import Goal, Metric
from ampsim.study.bound_words import bound_by
from ampsim.study.outline import Outline
from ampsim.study.target import median_interval, time_by_formula
from ampsim.trace import MEMORY_CATEGORIES

TEXTS: Final = ("schedule", "bound_by", "note", "bound_at", "items", "bound_largest")
SHARES: Final = ("worker_share", "path_share", "link_share", "admission_share")


def row_of(
    schedule: str, goal: Goal, runs: Sequence[Outline], failures: Sequence[str] = ()
) -> dict[str, Any]:
    """Summarise the repeats of one schedule; unknown is None.

    Throughputs, utilisation and staleness are medians over repeats, maxima are maxima. Epochs and
    time to target are medians in which a run that failed to get there counts as infinite. What
    bounds the row, and the shares, are those of the first repeat: `bound_largest` names what has
    the largest share, and `bound_by` does too if that is at least a half, else it is "no single
    thing"; both are None where no time passed. `peak_bytes` is what lay in the fullest worker's
    memory, of all repeats, and the columns behind it say of what it consisted.

    Args:
        schedule: name of the row.
        goal: what was aimed at.
        runs: the repeats.
        failures: why those of them that ended early did.
    """
    reached = [_reached(goal, run.epochs) for run in runs]
    epochs = median_interval([epoch for epoch, _time_s in reached])
    time_s = median_interval([time_s for _epoch, time_s in reached])
    train_per_s = _median(runs, lambda run: run.train_per_s)
    valid_per_s = _median(runs, lambda run: run.valid_per_s)
    return {
        "schedule": schedule,
        "max_active_keys": runs[0].max_active_keys,
        "min_update_interval": runs[0].min_update_interval,
        "replicas": runs[0].replicas,
        "workers": runs[0].workers,
        "train_per_s": train_per_s,
        "valid_per_s": valid_per_s,
        "epochs_to_target": epochs.middle,
        "time_to_target_s": time_s.middle,
        "time_to_target_low_s": time_s.low,
        "time_to_target_high_s": time_s.high,
        "utilisation": _median(runs, lambda run: run.utilisation),
        "staleness_mean": _median(runs, lambda run: run.staleness_mean),
        "staleness_max": max(
            (run.staleness_max for run in runs if run.staleness_max is not None), default=None
        ),
        "messages": round(median(run.messages for run in runs)),
        "makespan_s": _median(runs, lambda run: run.makespan_s),
        "time_to_target_formula_s": _formula(runs, epochs.middle, train_per_s, valid_per_s),
        "best_accuracy": _best(Metric("accuracy"), runs),
        "best_error": _best(Metric("error"), runs),
        "repeats": len(runs),
        "repeats_reached": sum(math.isfinite(epoch) for epoch, _time_s in reached),
        "bound_by": bound_by(runs[0].bound_by, (getattr(runs[0], name) for name in SHARES)),
        **{name: _known(getattr(runs[0], name)) for name in SHARES},
        "note": _note(goal, runs, failures),
        "bound_at": runs[0].bound_at,
        "time_to_target_coverage": time_s.coverage or None,
        "items": runs[0].items,
        "bound_largest": runs[0].bound_by,
        **_upkeep(runs, time_s.middle),
        **_peak(runs),
    }


def _peak(runs: Sequence[Outline]) -> dict[str, int | None]:
    """What lay in the fullest memory of all workers and repeats at its peak; None if unknown."""
    peaks = [one for run in runs for one in run.peak_memory.to_dict("records")]
    if not peaks:
        return {"peak_bytes": None, **{f"peak_{name}_bytes": None for name in MEMORY_CATEGORIES}}
    fullest = max(peaks, key=lambda one: one["bytes"])
    parts = {f"peak_{name}_bytes": int(fullest[name]) for name in MEMORY_CATEGORIES}
    return {"peak_bytes": int(fullest["bytes"]), **parts}


def _upkeep(runs: Sequence[Outline], time_to_target_s: float | None) -> dict[str, float | None]:
    """Joules and dollars of a run, medians over repeats, and those to the target.

    These are the run's times its median time to target over its median makespan: what a run takes
    after it has reached the target, such as the rest of its last epoch, is left out evenly.
    """
    makespan_s = _median(runs, lambda run: run.makespan_s)
    share = time_to_target_s / makespan_s if makespan_s and time_to_target_s is not None else None
    energy_j = _median(runs, lambda run: run.energy_j)
    cost_usd = _median(runs, lambda run: run.cost_usd)
    return {
        "energy_j": energy_j,
        "energy_to_target_j": _times(energy_j, share),
        "cost_usd": cost_usd,
        "cost_to_target_usd": _times(cost_usd, share),
    }


def _times(whole: float | None, share: float | None) -> float | None:
    return None if whole is None or share is None else whole * share


def table_of(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a table in which a number that is missing is NaN, and each column has one type."""
    table = pd.DataFrame(rows)
    numbers = [name for name in table if name not in TEXTS and table[name].dtype == object]
    return table.astype(dict.fromkeys(numbers, float))


def _reached(goal: Goal, epochs: pd.DataFrame) -> tuple[float, float]:
    """Return (epoch, virtual time) of the first epoch at the target; infinite without one."""
    index = goal.reached_by(epochs[goal.metric.kind])
    if index is None:
        return math.inf, math.inf
    return float(epochs["epoch"].iloc[index]), float(epochs["time_s"].iloc[index])


def _median(runs: Sequence[Outline], of: Callable[[Outline], float]) -> float | None:
    values = [value for value in map(of, runs) if math.isfinite(value)]
    return float(median(values)) if values else None


def _known(share: float) -> float | None:
    return share if math.isfinite(share) else None


def _best(metric: Metric, runs: Sequence[Outline]) -> float | None:
    return metric.best(float(score) for run in runs for score in run.epochs[metric.kind])


def _formula(
    runs: Sequence[Outline],
    epochs: float | None,
    train_per_s: float | None,
    valid_per_s: float | None,
) -> float | None:
    if epochs is None or not train_per_s or not valid_per_s:
        return None
    first = next(run.epochs.iloc[0] for run in runs if len(run.epochs))  # one may have failed
    train = (int(first["instances"]), train_per_s)
    return time_by_formula(epochs, train, (int(first["valid_instances"]), valid_per_s))


def _note(goal: Goal, runs: Sequence[Outline], failures: Sequence[str]) -> str:
    if failures:
        return f"{len(failures)} of {len(runs)} runs failed: {failures[0]}"
    best = _best(goal.metric, runs)
    if goal.target is None or best is None:
        return ""
    missed = sum(goal.reached_by(run.epochs[goal.metric.kind]) is None for run in runs)
    if not missed:
        return ""
    ran = max(len(run.epochs) for run in runs)
    return (
        f"{goal.text} not reached in {missed} of {len(runs)} runs "
        f"within {ran} epoch{'s' * (ran != 1)}; best {_best_text(goal.metric, best)}"
    )


def _best_text(metric: Metric, best: float) -> str:
    return f"{100 * best:.1f} %" if metric.is_rising else metric.text(best)
