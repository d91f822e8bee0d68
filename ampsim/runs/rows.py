"""Rows of a table: what a finished run says of itself, and beside the first row.

Why a row is faster: the time to the target is training and validation, T = t + v, and the training
is epochs times items of an epoch over throughput, t = E n / r. So with the share of training, s = t
/ T,

    T = E n / (r s),    and    T_1 / T_k = (r_k / r_1) (E_1 / E_k) (s_k / s_1)

exactly, where n is the same; else the factor of epochs is that of E n, the items that were needed.
All three are those of the run whose time is the median, up to the validation that reached the
target; of an even number of runs, those of the two in the middle together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import pandas as pd

from ampsim.data_parallel import Solver
from ampsim.metric import Goal, Metric
from ampsim.model_parallel import Schedule
from ampsim.runs.ranking import Ranking, Sureness, Times, columns_of, rank
from ampsim.runs.run import SHARES, Run
from ampsim.study.bound_words import behind_messages, bound_by
from ampsim.study.learning_rates import is_fair
from ampsim.text import finite
from ampsim.trace import MEMORY_CATEGORIES


@dataclass(frozen=True, slots=True)
class Interval:
    """A median with an interval that covers it; all None where not even the median is known."""

    middle: float | None  # None if half of the runs or more did not reach the target
    low: float | None  # lower end; None with fewer than two runs
    high: float | None  # None also where it is a run that did not reach the target
    coverage: float  # probability that it covers the true median; 0 without an interval


def median_interval(values: Sequence[float], wanted: float = 0.9) -> Interval:
    """Return the median and a distribution-free interval of order statistics around it.

    The k-th smallest and k-th largest of n values cover the median of what they were drawn from
    with probability 1 − 2·P(Binomial(n, 1/2) < k). The largest k that still covers with
    `wanted` is taken, and k = 1, smallest to largest, where none does: 3 runs cover 75 %.

    Args:
        values: one a run; infinite for a run that did not get there.
        wanted: coverage aimed at.

    >>> median_interval([3.0, 1.0, 2.0])
    Interval(middle=2.0, low=1.0, high=3.0, coverage=0.75)
    >>> median_interval([1.0, math.inf, math.inf])
    Interval(middle=None, low=1.0, high=None, coverage=0.75)
    """
    if not values:
        return Interval(None, None, None, 0.0)
    ordered = sorted(values)
    middle = finite(median(ordered))
    if len(ordered) == 1:
        return Interval(middle, None, None, 0.0)
    ranks = range(1, len(ordered) // 2 + 1)
    rank = max((k for k in ranks if _coverage(len(ordered), k) >= wanted), default=1)
    low, high = ordered[rank - 1], ordered[-rank]
    return Interval(middle, finite(low), finite(high), _coverage(len(ordered), rank))


def _coverage(count: int, rank: int) -> float:
    outside = sum(math.comb(count, below) for below in range(rank)) / 2**count
    return 1.0 - 2.0 * outside


def time_by_formula(epochs: float, train: tuple[int, float], valid: tuple[int, float]) -> float:
    """Return seconds to target, epochs · (n_train / rate_train + n_valid / rate_valid).

    Source: AMPNet, Appendix C.
    """
    return epochs * (train[0] / train[1] + valid[0] / valid[1])


COLUMNS: Final = (
    "speed_up", "speed_up_by_throughput", "speed_up_by_epochs", "speed_up_by_validation",
)  # fmt: skip
"""What the table says of a row: time of the first row over its own, and the three factors."""


@dataclass(frozen=True, slots=True)
class WayToTarget:
    """Time and items of a row until the target."""

    time_s: float
    train_s: float
    items: float

    @property
    def per_s(self) -> float:
        """Items per second of training."""
        return self.items / self.train_s

    @property
    def share(self) -> float:
        """The share of the time that is training."""
        return self.train_s / self.time_s


def way_of(goal: Goal, runs: Sequence[Run]) -> WayToTarget | None:
    """The way of the median run; None where fewer than half arrive, or no time passed."""
    ways = sorted((_way(goal, run) for run in runs), key=lambda way: way.time_s)
    if not ways:
        return None
    middle = ways[(len(ways) - 1) // 2 : len(ways) // 2 + 1]
    fields = ("time_s", "train_s", "items")
    means = [sum(getattr(way, name) for way in middle) / len(middle) for name in fields]
    return WayToTarget(*means) if math.isfinite(means[0]) and min(means) > 0 else None


def factor_columns(ways: Sequence[WayToTarget | None]) -> list[dict[str, Any]]:
    """`COLUMNS` of each row against the first; None where either does not arrive."""
    return [_factors(ways[0], way) for way in ways] if ways else []


def _factors(first: WayToTarget | None, row: WayToTarget | None) -> dict[str, Any]:
    if first is None or row is None:
        return dict.fromkeys(COLUMNS)
    factors = (
        first.time_s / row.time_s,
        row.per_s / first.per_s,
        first.items / row.items,
        row.share / first.share,
    )
    return dict(zip(COLUMNS, factors, strict=True))


def _way(goal: Goal, run: Run) -> WayToTarget:
    """Return the way of one run to the target; infinite where it does not arrive."""
    looks = run.looks
    index = goal.reached_by(looks[goal.metric.kind])
    if index is None:
        return WayToTarget(math.inf, math.inf, math.inf)
    done = looks.iloc[: index + 1]
    time_s, items = float(done["time_s"].iloc[-1]), done["instances"]
    return WayToTarget(
        time_s,
        time_s - float(done["valid_s"].sum()),
        float(items.iloc[-1] if len(run.validations) else items.sum()),
    )


TEXTS: Final = (
    "schedule", "bound_by", "note", "bound_at", "items", "bound_largest", "learning_rate_rule",
    "standing",
)  # fmt: skip
_OF_FIRST: Final = ("max_active_keys", "min_update_interval", "replicas", "workers")


def row_of(schedule: str, goal: Goal, runs: Sequence[Run]) -> dict[str, Any]:
    """Summarise the repeats of one schedule; unknown is None.

    Throughputs, utilisation and staleness are medians over repeats, maxima are maxima. Epochs and
    time to target are medians in which a run that failed to get there counts as infinite. What
    bounds the row, and the shares, are those of the first repeat: `bound_largest` names what has
    the largest share, and `bound_by` does too if that is at least a half, else it is "no single
    thing"; both are None where no time passed. `peak_bytes` is what lay in the fullest worker's
    memory, of all repeats, and the columns behind it say of what it consisted. `workers_idle` is
    how many workers of the first repeat never do anything that takes time.
    """
    reached = [arrival(goal, run) for run in runs]
    epochs = median_interval([epoch for epoch, _time_s in reached])
    time_s = median_interval([time_s for _epoch, time_s in reached])
    train_per_s = _median(runs, "train_per_s")
    valid_per_s = _median(runs, "valid_per_s")
    return {
        "schedule": schedule,
        **{name: getattr(runs[0], name) for name in _OF_FIRST},
        "train_per_s": train_per_s,
        "valid_per_s": valid_per_s,
        "epochs_to_target": epochs.middle,
        "time_to_target_s": time_s.middle,
        "time_to_target_low_s": time_s.low,
        "time_to_target_high_s": time_s.high,
        "utilisation": _median(runs, "utilisation"),
        "staleness_mean": _median(runs, "staleness_mean"),
        "staleness_max": max(
            (run.staleness_max for run in runs if run.staleness_max is not None), default=None
        ),
        "messages": round(median(run.messages for run in runs)),
        "makespan_s": _median(runs, "makespan_s"),
        "time_to_target_formula_s": _formula(runs, epochs.middle, train_per_s, valid_per_s),
        "best_accuracy": _best(Metric("accuracy"), runs),
        "best_error": _best(Metric("error"), runs),
        "repeats": len(runs),
        "repeats_reached": sum(math.isfinite(epoch) for epoch, _time_s in reached),
        "bound_by": bound_by(runs[0].bound_by, (getattr(runs[0], name) for name in SHARES)),
        **{name: finite(getattr(runs[0], name)) for name in SHARES},
        "note": _note(goal, runs),
        "bound_at": behind_messages(runs[0].bound_by, runs[0].bound_at, runs[0].path_parts),
        "time_to_target_coverage": time_s.coverage or None,
        "items": runs[0].items,
        "bound_largest": runs[0].bound_by,
        **_upkeep(runs, [time_s for _epoch, time_s in reached]),
        **_peak(runs),
        "workers_idle": _idle(runs[0]),
    }


def _idle(run: Run) -> int | None:
    """Workers that never do anything that takes time; None where no time passed."""
    shares = run.utilisation_by_worker.drop(columns="worker").to_numpy(float)
    return None if not len(shares) or math.isnan(shares.sum()) else int((shares.sum(1) == 0).sum())


def _peak(runs: Sequence[Run]) -> dict[str, int | None]:
    """Return the bytes of the fullest memory of all workers and repeats; None if unknown."""
    peaks = [peak for run in runs if len(peak := run.peak_memory)]
    fullest = max(peaks, key=lambda one: one["bytes"].to_numpy().max(), default=None)
    columns = {"peak_bytes": "bytes"} | {f"peak_{one}_bytes": one for one in MEMORY_CATEGORIES}
    if fullest is None:
        return dict.fromkeys(columns)
    at = int(fullest["bytes"].to_numpy().argmax())
    return {name: int(fullest[of].to_numpy()[at]) for name, of in columns.items()}


def _upkeep(runs: Sequence[Run], times_s: Sequence[float]) -> dict[str, float | None]:
    """Joules and dollars of a run, and those to the target, medians over repeats.

    To the target are a run's times its time to the target over its makespan: what it takes after
    that, such as the rest of its last epoch, is left out evenly. Infinite is what did not arrive.
    """

    def to_target(name: str) -> float | None:
        each = [
            getattr(run, name) * time_s / (run.makespan_s or 1) if math.isfinite(time_s) else time_s
            for run, time_s in zip(runs, times_s, strict=True)
        ]
        return None if any(map(math.isnan, each)) else finite(median(each))

    return {
        "energy_j": _median(runs, "energy_j"),
        "energy_to_target_j": to_target("energy_j"),
        "cost_usd": _median(runs, "cost_usd"),
        "cost_to_target_usd": to_target("cost_usd"),
    }


def table_of(rows: Sequence[dict[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Rows as a table in which an unknown number is NaN, and a column has one type.

    A column whose name begins with "is_" holds truth values, of which one may be missing.
    """
    table = pd.DataFrame(rows)
    claims = [name for name in table if str(name).startswith("is_")]
    objects = [name for name in table if table[name].dtype == object]
    numbers = [
        name
        for name in objects
        if name not in (*TEXTS, *claims) and not any(isinstance(one, str) for one in table[name])
    ]
    types: dict[Any, Any] = {**dict.fromkeys(numbers, float), **dict.fromkeys(claims, "boolean")}
    return table.astype(types)


def plain_row(record: Mapping[Any, Any], counts: Collection[str]) -> dict[str, Any]:
    """A row as JSON can hold it: unknown and infinite are None, and counts are whole numbers.

    A column with a gap has turned its whole numbers into floats; `counts` names such columns, and
    those that count bytes are known.
    """
    found: dict[str, Any] = {}
    for name, value in record.items():
        value = value.item() if hasattr(value, "item") else value  # a NumPy scalar
        if isinstance(value, float):
            is_count = str(name) in counts or str(name).endswith("_bytes")
            value = value if math.isfinite(value) else None
            value = int(value) if value is not None and is_count and value % 1 == 0 else value
        found[str(name)] = None if value is pd.NA else value
    return found


def times_of(goal: Goal, runs: Iterable[Run]) -> Times:
    """Time to the target of each repeat of a row, by its seed; infinite without one."""
    return {run.seed: arrival(goal, run)[1] for run in runs}


def ranked(
    goal: Goal,
    rows: Sequence[Sequence[Run]],
    rules: Sequence[str],
    sureness: Sureness | None = None,
) -> Ranking | None:
    """Rank the rows that may be compared."""
    pairs = zip(fair_rows(goal, rows, rules), rows, strict=True)
    return rank([times_of(goal, of) if is_so else None for is_so, of in pairs], sureness)


def fair_rows(goal: Goal, rows: Sequence[Sequence[Run]], rules: Sequence[str]) -> list[bool]:
    """Mark the rows to compare: the fair (`is_fair`) that were measured, or all if none is."""
    kind, fair = goal.metric.kind, list[bool]()
    for rule, of in zip(rules, rows, strict=True):
        is_measured = not of or any(run.failure or run.looks[kind].notna().any() for run in of)
        fair.append(is_measured and is_fair(rule, [run.failure for run in of]))
    return fair if any(fair) else [True] * len(rows)


def is_draining_pipeline(schedule: Schedule) -> bool:
    """Tell whether a schedule has several instances in flight and drains before it updates."""
    admission = schedule.admission
    return admission.drains and admission.in_flight_max != 1 and not isinstance(schedule, Solver)


def compared(
    goal: Goal,
    rows: Sequence[dict[str, Any]],
    runs: Sequence[Sequence[Run]],
    sureness: Sureness | None = None,
) -> list[dict[str, Any]]:
    """The rows with what comparing them says: why each is faster than the first, and its rank.

    The rank is unknown where the rows' own medians name another best, as they may where some rows
    lack runs that others have.
    """
    rules = [str(row.get("learning_rate_rule") or "") for row in rows]
    ranking, fair = ranked(goal, runs, rules, sureness), fair_rows(goal, runs, rules)
    times = [row["time_to_target_s"] for row in rows]
    if ranking is not None:
        best = times[ranking.best]
        others = [time_s for time_s, is_so in zip(times, fair, strict=True) if is_so and time_s]
        ranking = ranking if best is not None and best <= min(others, default=best) else None
    factors = factor_columns([way_of(goal, of) for of in runs])
    return [
        {**row, **factor, **rank_of, **({} if is_so else {"standing": "not compared"})}
        for row, factor, rank_of, is_so in zip(
            rows, factors, columns_of(ranking, len(rows)), fair, strict=True
        )
    ]


def arrival(goal: Goal, run: Run) -> tuple[float, float]:
    """Return (epoch, virtual time) of the first validation at the target; infinite without one."""
    looks = run.looks
    index = goal.reached_by(looks[goal.metric.kind])
    if index is None:
        return math.inf, math.inf
    return float(looks["epoch"].iloc[index]), float(looks["time_s"].iloc[index])


def _median(runs: Sequence[Run], name: str) -> float | None:
    values = [value for run in runs if math.isfinite(value := getattr(run, name))]
    return float(median(values)) if values else None


def _best(metric: Metric, runs: Sequence[Run]) -> float | None:
    return metric.best(float(score) for run in runs for score in run.looks[metric.kind])


def _formula(
    runs: Sequence[Run],
    epochs: float | None,
    train_per_s: float | None,
    valid_per_s: float | None,
) -> float | None:
    if epochs is None or not train_per_s or not valid_per_s:
        return None
    first = next(run.epochs.iloc[0] for run in runs if len(run.epochs))  # one may have failed
    train = (int(first["instances"]), train_per_s)
    return time_by_formula(epochs, train, (int(first["valid_instances"]), valid_per_s))


def _note(goal: Goal, runs: Sequence[Run]) -> str:
    """Why runs ended early or short of the target, and which ranks of a solver met nobody."""
    failures = [run.failure for run in runs if run.failure]
    if failures:
        return f"{len(failures)} of {len(runs)} runs failed: {failures[0]}"
    apart = next((run.never_met for run in runs if run.never_met), "")
    return "; ".join(filter(None, (_missed(goal, runs), apart)))


def _missed(goal: Goal, runs: Sequence[Run]) -> str:
    best = _best(goal.metric, runs)
    if goal.target is None or best is None:
        return ""
    missed = sum(not math.isfinite(arrival(goal, run)[0]) for run in runs)
    if not missed:
        return ""
    ran = max(len(run.epochs) for run in runs)
    return (
        f"{goal.text} not reached in {missed} of {len(runs)} runs "
        f"within {ran} epoch{'s' * (ran != 1)}; best {goal.score_text(best)}"
    )
