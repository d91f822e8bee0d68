"""How far the intervals of a device's numbers spread what a forecast or report says.

A device file may have, with the source of a number, the ends of its 95 % interval. Each row is then
run again at both ends of each such number, all others as they are, in mode "sleep" on its leading
instances (`ampsim.study.end_runs`). Only the ratios to the same short run at the numbers themselves
are taken: they multiply the row's throughputs, and its time to the target by

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from ampsim.hardware import Cluster, Device

_OF_HOST: Final = ("step_overhead_s", "message_overhead_s")
"""Numbers of a host that take time."""


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
        host = cluster.host
        devices = tuple(map(self._of, cluster.devices))
        return cluster.model_copy(
            update={"devices": devices, "host": None if host is None else self._of(host)}
        )

    def _of(self, device: Device) -> Device:
        if device.name != self.device or self.key not in device.intervals:
            return device
        return device.model_copy(update={self.key: self.value})


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughputs of a short run, in items per second; NaN of what takes no time."""

    train_per_s: float
    valid_per_s: float

    def time_s(self, train: float, valid: float) -> float:
        """What so many training and validation items take."""
        return train / self.train_per_s + (valid / self.valid_per_s if valid else 0.0)


def ends_of(cluster: Cluster) -> list[End]:
    """The ends of all intervals that the cluster's devices have, and its host, of what it takes."""
    intervals = [
        (device.name, key, interval)
        for device in dict.fromkeys(cluster.devices)
        for key, interval in device.intervals.items()
    ]
    if cluster.host is not None:
        of_host = cluster.host.intervals
        intervals += [(cluster.host.name, key, of_host[key]) for key in _OF_HOST if key in of_host]
    found = [
        End(device, key, value, is_high)
        for device, key, interval in intervals
        for is_high, value in zip((False, True), interval, strict=True)
    ]
    return list(dict.fromkeys(found))


def combined(ratios: Sequence[float]) -> tuple[float, float]:
    """The lower and upper ratio of several that err independently, two for each number.

    Args:
        ratios: at the lower and the upper end of the first number, then of the second, and so on.

    >>> combined([0.5, 2.0])
    (0.5, 2.0)
    """
    assert all(0 < one < math.inf for one in ratios), "a ratio of two times is above 0"
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

    def time_ratio(self, end: End, train: float, valid: float) -> float:
        """The same at one end; 1 where the row's devices have no such number."""
        if end not in self.ends:
            return 1.0
        return self.time_ratios(train, valid)[self.ends.index(end)]


@dataclass(frozen=True, slots=True)
class Unspread:
    """A row of which it is not known what the ends of the intervals do.

    Args:
        ends: of the intervals.
        why: a sentence without its full stop.
    """

    ends: tuple[End, ...]
    why: str


Spreading: TypeAlias = "Spread | Unspread | None"
"""What is known of a row; None where none of its devices says an interval."""


def to_plain(spread: Spread | Unspread) -> dict[str, Any]:
    """What is known of a row, as JSON can hold it."""
    ends = [asdict(one) for one in spread.ends]
    if isinstance(spread, Unspread):
        return {"ends": ends, "why": spread.why}
    rates = [[_known(one.train_per_s), _known(one.valid_per_s)] for one in _all(spread)]
    return {"ends": ends, "rates": rates}


def from_plain(content: Mapping[str, Any]) -> Spread | Unspread:
    """What `to_plain` gave this for.

    Raises:
        KeyError, TypeError, ValueError: it gave nothing like it.
    """
    ends = tuple(End(**one) for one in content["ends"])
    if "why" in content:
        return Unspread(ends, str(content["why"]))
    base, *others = (Rates(*map(_rate, one)) for one in content["rates"])
    if len(others) != len(ends):
        raise ValueError("there must be rates at each end")
    return Spread(ends, base, tuple(others))


def _all(spread: Spread) -> tuple[Rates, ...]:
    return (spread.base, *spread.at_ends)


def _known(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None


def _rate(value: float | None) -> float:
    return math.nan if value is None else float(value)
