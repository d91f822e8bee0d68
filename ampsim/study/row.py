"""One row of a forecast: what the repeats of a schedule say together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ampsim.runtime import Schedule
from ampsim.study.result import Result
from ampsim.study.target import median_interval, time_by_formula

if TYPE_CHECKING:
    from ampsim.study.forecast import Run


def row_of(schedule: Schedule, target: float | None, runs: Sequence[Run]) -> dict[str, Any]:
    """Summarise the repeats of one schedule; unknown is None.

    Throughputs, utilisation and staleness are medians over repeats, maxima are maxima. Epochs and
    time to target are medians in which a run that failed to get there counts as infinite. What
    bounds the row, and the shares, are those of the first repeat's first training pass.
    """
    results = [run.result for run in runs]
    reached = [_reached(result, target) for result in results]
    epochs = median_interval([epoch for epoch, _time_s in reached])
    time_s = median_interval([time_s for _epoch, time_s in reached])
    train_per_s = _median(results, lambda result: result.train_per_s)
    valid_per_s = _median(results, lambda result: result.valid_per_s)
    return {
        "schedule": schedule.name,
        "max_active_keys": schedule.max_active_keys,
        "min_update_interval": _interval(schedule, results[0]),
        "replicas": results[0].model.replicas,
        "workers": results[0].workers,
        "train_per_s": train_per_s,
        "valid_per_s": valid_per_s,
        "epochs_to_target": epochs.middle,
        "time_to_target_s": time_s.middle,
        "time_to_target_low_s": time_s.low,
        "time_to_target_high_s": time_s.high,
        "utilisation": _median(results, lambda result: result.utilisation),
        "staleness_mean": _median(results, lambda result: result.staleness_mean),
        "staleness_max": max(
            (r.staleness_max for r in results if r.staleness_max is not None), default=None
        ),
        "messages": round(median(result.messages for result in results)),
        "makespan_s": _median(results, lambda result: result.makespan_s),
        "time_to_target_formula_s": _formula(results[0], epochs.middle, train_per_s, valid_per_s),
        "best_accuracy": _best(results),
        "repeats": len(runs),
        "repeats_reached": sum(math.isfinite(epoch) for epoch, _time_s in reached),
        **_bounds(results[0]),
        "note": _note(runs, target, reached),
    }


def _reached(result: Result, target: float | None) -> tuple[float, float]:
    """Return (epoch, virtual time) of the first epoch at the target; infinite if there is none."""
    frame = result.epochs
    hits = frame[frame["accuracy"] >= target] if target is not None else frame[:0]
    if hits.empty:
        return (math.inf, math.inf)
    return (float(hits["epoch"].iloc[0]), float(hits["time_s"].iloc[0]))


def _median(results: Sequence[Result], of: Callable[[Result], float]) -> float | None:
    values = [value for value in map(of, results) if math.isfinite(value)]
    return float(median(values)) if values else None


def _best(results: Sequence[Result]) -> float | None:
    values = [float(result.epochs["accuracy"].max()) for result in results]
    known = [value for value in values if math.isfinite(value)]
    return max(known) if known else None


def _bounds(result: Result) -> dict[str, Any]:
    bounds = result.bounds
    shares = ("worker_share", "path_share", "link_share", "admission_share")
    known = {name: getattr(bounds, name) for name in shares}
    return {
        "bound_by": bounds.bound_by,
        **{name: share if math.isfinite(share) else None for name, share in known.items()},
    }


def _interval(schedule: Schedule, result: Result) -> int | None:
    """Return the one interval of all parameterized nodes; None where there is none, or several."""
    names = {name.rpartition(".")[0] for name in result.model.parameters()}
    preferred = result.model.update_interval
    intervals = {schedule.update_interval(name, preferred(name)) for name in names}
    return intervals.pop() if len(intervals) == 1 else None


def _formula(
    result: Result, epochs: float | None, train_per_s: float | None, valid_per_s: float | None
) -> float | None:
    if epochs is None or not train_per_s or not valid_per_s:
        return None
    first = result.epochs.iloc[0]
    train = (int(first["instances"]), train_per_s)
    return time_by_formula(epochs, train, (int(first["valid_instances"]), valid_per_s))


def _note(runs: Sequence[Run], target: float | None, reached: Sequence[tuple[float, float]]) -> str:
    failed = [run.failure for run in runs if run.failure]
    if failed:
        return f"{len(failed)} of {len(runs)} runs failed: {failed[0]}"
    best = _best([run.result for run in runs])
    if target is None or best is None:
        return ""
    missed = sum(math.isinf(epoch) for epoch, _time_s in reached)
    if not missed:
        return ""
    ran = max(len(run.result.epochs) for run in runs)
    return (
        f"{100 * target:g} % not reached in {missed} of {len(runs)} runs "
        f"within {ran} epochs; best {100 * best:.1f} %"
    )
