"""How far the intervals of a device's fitted numbers spread what a forecast says.

A device file may have, with the source of a number, the ends of its 95 % interval. Each row is then
run again at both ends of each such number, all others as they are, in mode "sleep" on its leading
instances. Only the ratios to the same short run at the numbers themselves are taken: they multiply
the row's throughputs, and its time to the target by

    (n_train / r_train' + n_valid / r_valid') / (n_train / r_train + n_valid / r_valid).

The logarithms of the ratios that lie on one side are added as the root of their squares, as for
numbers that err independently of one another; with one number the ends are those of the runs
themselves. Numbers that were fitted to the same rows may err together, which a device file does not
say. What a message or step takes decides its weights' age, too: epochs to the target are taken to
be those at the numbers themselves.

Source of the addition: JCGM 100:2008 (GUM), 5.1.2, in logarithms, with finite steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.errors import AmpsimError
from ampsim.hardware import Cluster
from ampsim.study.leading import leading
from ampsim.study.learning_rates import with_rate
from ampsim.study.repeats import Entry
from ampsim.study.simulation import simulate

_TRAINED: Final = 40
"""Training instances of the short runs at least, or twice as many as may be in flight (chosen: as
`ampsim calibrate table` takes unless told otherwise)."""

_VALIDATED: Final = 20


@dataclass(frozen=True, slots=True)
class End:
    """One end of the interval of a number.

    Args:
        device: the name of the device that has the number.
        key: of the number.
        value: the end.
        is_high: whether it is the upper one.
    """

    device: str
    key: str
    value: float
    is_high: bool

    def on(self, cluster: Cluster) -> Cluster:
        """The cluster with the number at this end."""
        devices = tuple(
            one.model_copy(update={self.key: self.value}) if one.name == self.device else one
            for one in cluster.devices
        )
        return cluster.model_copy(update={"devices": devices})


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughputs of a short run, in items per second."""

    train_per_s: float
    valid_per_s: float

    def time_s(self, train: float, valid: float) -> float:
        """What so many training and validation items take."""
        return train / self.train_per_s + (valid / self.valid_per_s if valid else 0.0)


def ends_of(cluster: Cluster) -> list[End]:
    """The ends of all intervals that the cluster's devices have."""
    return [
        End(device.name, key, value, is_high)
        for device in dict.fromkeys(cluster.devices)
        for key, interval in device.intervals.items()
        for is_high, value in zip((False, True), interval, strict=True)
    ]


def combined(ratios: Sequence[float]) -> tuple[float, float]:
    """The lower and upper ratio of several that err independently, two for each number.

    Args:
        ratios: at the lower and the upper end of the first number, then of the second, and so on.

    >>> combined([0.5, 2.0])
    (0.5, 2.0)
    """
    below, above = 0.0, 0.0
    for first, second in zip(ratios[::2], ratios[1::2], strict=True):
        logarithms = (math.log(first), math.log(second))
        below += min(0.0, *logarithms) ** 2
        above += max(0.0, *logarithms) ** 2
    return math.exp(-math.sqrt(below)), math.exp(math.sqrt(above))


@dataclass(frozen=True, slots=True)
class Spread:
    """What the ends of all intervals do to a row.

    Args:
        ends: of the intervals, two for each number.
        base: throughputs of the short run at the numbers themselves.
        at_ends: the same at each end.
    """

    ends: tuple[End, ...]
    base: Rates
    at_ends: tuple[Rates, ...]

    def train_ratios(self) -> tuple[float, float]:
        """Training throughput at its lowest and highest, over that at the numbers themselves."""
        return combined([one.train_per_s / self.base.train_per_s for one in self.at_ends])

    def time_ratios(self, train: float, valid: float) -> list[float]:
        """The time of so many items at each end, over that at the numbers themselves."""
        base_s = self.base.time_s(train, valid)
        return [one.time_s(train, valid) / base_s for one in self.at_ends]


def spread_of(entry: Entry, seed: int) -> Spread | None:
    """Run a row shortly at the ends of its devices' intervals.

    Returns:
        None where there is no interval, or where mode "sleep" cannot run the row.
    """
    ends = ends_of(entry.plan.cluster)
    if not ends:
        return None
    try:
        base, *others = _rates(entry, ends, seed)
    except AmpsimError:
        return None
    known = [math.isfinite(one.train_per_s) and one.train_per_s > 0 for one in (base, *others)]
    return Spread(tuple(ends), base, tuple(others)) if all(known) else None


def _rates(entry: Entry, ends: Sequence[End], seed: int) -> Iterator[Rates]:
    """Throughputs at the numbers themselves, then at each end."""
    plan, schedule = entry.plan, entry.schedule
    trained = max(_TRAINED, 2 * (schedule.admission.in_flight_max or 1))
    model = leading(with_rate(plan.model, plan.rate.factor), trained, _VALIDATED)
    for cluster in (plan.cluster, *(one.on(plan.cluster) for one in ends)):
        made = simulate(
            model, cluster, schedule, mode="sleep", seed=seed, instances=plan.instances,
            placement=plan.placement, counts_memory=False,
        )  # fmt: skip
        yield Rates(float(made.train_per_s), float(made.valid_per_s))
