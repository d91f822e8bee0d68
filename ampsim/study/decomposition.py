"""Why a row is sooner at the target than the first: throughput, epochs, share of validation.

The time to the target is training and validation, T = t + v, and the training is epochs times items
of an epoch over throughput, t = E n / r. So with the share of training, s = t / T,

    T = E n / (r s),    and    T_1 / T_k = (r_k / r_1) (E_1 / E_k) (s_k / s_1)

exactly, where n is the same. All three are those of the run whose time is the median, up to the
validation that reached the target; of an even number of runs, those of the two in the middle
together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ampsim.metric import Goal
from ampsim.study.outline import Outline

COLUMNS: Final = (
    "speed_up", "speed_up_by_throughput", "speed_up_by_epochs", "speed_up_by_validation",
)  # fmt: skip
"""What the table says of a row: time of the first row over its own, and the three factors."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a row gets to the target.

    Args:
        time_s: until the target is reached.
        train_s: what of it is training.
        epochs: until then.
        items: trained on until then.
    """

    time_s: float
    train_s: float
    epochs: float
    items: float

    @property
    def per_s(self) -> float:
        """Items per second of training."""
        return self.items / self.train_s

    @property
    def share(self) -> float:
        """What share of the time is training."""
        return self.train_s / self.time_s


def way_of(goal: Goal, runs: Sequence[Outline]) -> Way | None:
    """The way of the median run; None where fewer than half arrive, or no time passed."""
    ways = sorted((_way(goal, run) for run in runs), key=lambda way: way.time_s)
    if not ways:
        return None
    middle = ways[(len(ways) - 1) // 2 : len(ways) // 2 + 1]
    fields = ("time_s", "train_s", "epochs", "items")
    means = [sum(getattr(way, name) for way in middle) / len(middle) for name in fields]
    return Way(*means) if math.isfinite(means[0]) and min(means) > 0 else None


def columns_of(ways: Sequence[Way | None]) -> list[dict[str, Any]]:
    """`COLUMNS` of each row against the first; None where either does not arrive."""
    return [_factors(ways[0], way) for way in ways] if ways else []


def _factors(first: Way | None, row: Way | None) -> dict[str, Any]:
    if first is None or row is None:
        return dict.fromkeys(COLUMNS)
    factors = (
        first.time_s / row.time_s,
        row.per_s / first.per_s,
        first.epochs / row.epochs,
        row.share / first.share,
    )
    return dict(zip(COLUMNS, factors, strict=True))


def _way(goal: Goal, run: Outline) -> Way:
    """How one run gets there; infinite where it does not."""
    epochs, within = run.epochs, run.validations
    if len(within):
        return _within(goal, run)
    index = goal.reached_by(epochs[goal.metric.kind])
    if index is None:
        return Way(math.inf, math.inf, math.inf, math.inf)
    done = epochs.iloc[: index + 1]
    return Way(
        float(done["time_s"].iloc[-1]),
        float(done["time_s"].iloc[-1] - done["valid_s"].sum()),
        float(done["epoch"].iloc[-1]),
        float(done["instances"].sum()),
    )


def _within(goal: Goal, run: Outline) -> Way:
    """The same of a run that validates within its epochs."""
    index = goal.reached_by(run.validations[goal.metric.kind])
    if index is None:
        return Way(math.inf, math.inf, math.inf, math.inf)
    done = run.validations.iloc[: index + 1]
    time_s, reached = float(done["time_s"].iloc[-1]), done.iloc[-1]
    return Way(
        time_s,
        time_s - float(done["valid_s"].sum()),
        float(reached["epochs"]),
        float(reached["instances"]),
    )
