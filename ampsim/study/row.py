"""One row of a forecast: what the repeats of a schedule say together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import pandas as pd

from ampsim.metric import Goal, Metric
from ampsim.study import decomposition
from ampsim.study.bound_words import bound_by
from ampsim.study.outline import Outline
from ampsim.study.ranking import Ranking, Times, columns_of
from ampsim.study.target import median_interval, time_by_formula
from ampsim.trace import MEMORY_CATEGORIES

TEXTS: Final = (
    "schedule", "bound_by", "note", "bound_at", "items", "bound_largest", "learning_rate_rule",
)  # fmt: skip
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
    memory, of all repeats, and the columns behind it say of what it consisted. `workers_idle` is
    how many workers of the first repeat never do anything that takes time.

    Args:
        schedule: name of the row.
        goal: what was aimed at.
        runs: the repeats.
        failures: why those of them that ended early did.
    """
    reached = [_reached(goal, run) for run in runs]
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
        "workers_idle": _idle(runs[0]),
    }


def _idle(run: Outline) -> int | None:
    """Workers that never do anything that takes time; None where no time passed."""
    shares = run.utilisation_by_worker.drop(columns="worker").to_numpy(float)
    return None if not len(shares) or math.isnan(shares.sum()) else int((shares.sum(1) == 0).sum())


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
    """Rows as a table in which a number that is missing is NaN, and each column has one type.

    A column whose name begins with "is_" holds truth values, of which one may be missing.
    """
    table = pd.DataFrame(rows)
    claims = [name for name in table if str(name).startswith("is_")]
    numbers = [
        name for name in table if name not in (*TEXTS, *claims) and table[name].dtype == object
    ]
    types: dict[Any, Any] = {**dict.fromkeys(numbers, float), **dict.fromkeys(claims, "boolean")}
    return table.astype(types)


def times_of(goal: Goal, seeds: Sequence[int], runs: Sequence[Outline]) -> Times:
    """Time to the target of each repeat of a row, by its seed; infinite without one."""
    return {seed: _reached(goal, run)[1] for seed, run in zip(seeds, runs, strict=True)}


def compared(
    goal: Goal,
    rows: Sequence[dict[str, Any]],
    runs: Sequence[Sequence[Outline]],
    ranking: Ranking | None,
) -> list[dict[str, Any]]:
    """The rows with what comparing them says: why each is faster than the first, and its rank.

    The rank is unknown where the rows' own medians name another best, as they may where some rows
    lack runs that others have.

    Args:
        goal: what was aimed at.
        rows: as `row_of` gives them.
        runs: the repeats of each.
        ranking: of the same rows; None where nothing can be said.
    """
    known = [row["time_to_target_s"] for row in rows]
    if ranking is not None:
        best = known[ranking.best]
        if best is None or any(one is not None and one < best for one in known):
            ranking = None
    ranks = columns_of(ranking, len(rows))
    factors = decomposition.columns_of([decomposition.way_of(goal, of) for of in runs])
    return [{**row, **of, **rank} for row, of, rank in zip(rows, factors, ranks, strict=True)]


def _reached(goal: Goal, run: Outline) -> tuple[float, float]:
    """Return (epoch, virtual time) of the first validation at the target; infinite without one."""
    looks, counted = (run.validations, "epochs") if len(run.validations) else (run.epochs, "epoch")
    index = goal.reached_by(looks[goal.metric.kind])
    if index is None:
        return math.inf, math.inf
    return float(looks[counted].iloc[index]), float(looks["time_s"].iloc[index])


def _median(runs: Sequence[Outline], of: Callable[[Outline], float]) -> float | None:
    values = [value for value in map(of, runs) if math.isfinite(value)]
    return float(median(values)) if values else None


def _known(share: float) -> float | None:
    return share if math.isfinite(share) else None


def _best(metric: Metric, runs: Sequence[Outline]) -> float | None:
    looks = (run.validations if len(run.validations) else run.epochs for run in runs)
    return metric.best(float(score) for one in looks for score in one[metric.kind])


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
    missed = sum(not math.isfinite(_reached(goal, run)[0]) for run in runs)
    if not missed:
        return ""
    ran = max(len(run.epochs) for run in runs)
    return (
        f"{goal.text} not reached in {missed} of {len(runs)} runs "
        f"within {ran} epoch{'s' * (ran != 1)}; best {_best_text(goal.metric, best)}"
    )


def _best_text(metric: Metric, best: float) -> str:
    return f"{100 * best:.1f} %" if metric.is_rising else metric.text(best)
