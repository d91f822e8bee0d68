"""Intervals of a row that come of the intervals of its devices' numbers.

A device file may have, with the source of a number, the ends of its 95 % interval. Each row is then
run again at both ends of each such number, all others as they are, in mode "sleep" on its leading
instances (`ampsim.forecasting.making`). Only the ratios to the same short run at the numbers
themselves are taken: they multiply the row's throughputs, and its time to the target by

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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from ampsim.hardware import Cluster, Device
from ampsim.hardware.device import HOST_NUMBERS
from ampsim.runs.run import Run
from ampsim.text import finite, note_with
from ampsim.units import format_rate, format_seconds


@dataclass(frozen=True, slots=True)
class End:
    """One end of the interval of a number."""

    device: str
    key: str
    interval: tuple[float, float]  # by which devices of one name are told apart
    is_high: bool

    def __str__(self) -> str:
        """As in the labels of runs."""
        low, high = self.interval
        return f"{self.key} of {self.device}, {self.value} of {low} to {high}"

    @property
    def value(self) -> float:
        """The number there."""
        return self.interval[self.is_high]

    def on(self, cluster: Cluster) -> Cluster:
        """The cluster with the number at this end."""
        host = None if cluster.host is None else self._of(cluster.host)
        devices = tuple(map(self._of, cluster.devices))
        return cluster.model_copy(update={"devices": devices, "host": host})

    def _of(self, device: Device) -> Device:
        if device.name != self.device or device.intervals.get(self.key) != self.interval:
            return device
        return device.model_copy(update={self.key: self.value})


@dataclass(frozen=True, slots=True)
class Throughputs:
    """Throughputs of a short run, in items per second; NaN of what takes no time."""

    train_per_s: float
    valid_per_s: float

    def time_s(self, train: float, valid: float) -> float:
        """Return the time of so many training and validation items."""
        return train / self.train_per_s + (valid / self.valid_per_s if valid else 0.0)


def ends_of(cluster: Cluster) -> list[End]:
    """The ends of all intervals that the cluster's devices have, and its host, of what it takes."""
    held = [(one.name, one.intervals.items()) for one in cluster.devices]
    if cluster.host is not None:
        of_host = cluster.host.intervals
        known = {key: of_host[key] for key in HOST_NUMBERS if key in of_host}
        held.append((cluster.host.name, known.items()))
    numbers = dict.fromkeys((name, *number) for name, own in held for number in own)
    return [End(*one, is_high) for one in numbers for is_high in (False, True)]


def combined(ratios: Sequence[float]) -> tuple[float, float]:
    """The lower and upper ratio of several that err independently, two for each number.

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
    """The effect on a row of the ends of all intervals."""

    ends: tuple[End, ...]  # of the intervals, two for each number
    rates: tuple[Throughputs, ...] = ()  # at the numbers themselves, then at each end; or none
    why: str = ""  # what the ends do is unknown: a sentence without its full stop

    def time_ratios(self, train: float, valid: float) -> list[float]:
        """The time of so many items at each end, over that at the numbers themselves."""
        base_s, *at_ends_s = (one.time_s(train, valid) for one in self.rates)
        return [one_s / base_s for one_s in at_ends_s]


Spreading: TypeAlias = "Spread | None"
"""What is known of a row; None where none of its devices says an interval."""


def to_plain(spread: Spread) -> dict[str, Any]:
    """Write it as JSON can hold it."""
    names = ("device", "key", "value", "is_high")
    ends = [{name: getattr(one, name) for name in names} for one in spread.ends]
    if spread.why:
        return {"ends": ends, "why": spread.why}
    rates = [[finite(one.train_per_s), finite(one.valid_per_s)] for one in spread.rates]
    return {"ends": ends, "rates": rates}


def from_plain(content: Mapping[str, Any]) -> Spread:
    """Read what `to_plain` wrote.

    Raises:
        KeyError, TypeError, ValueError: it gave nothing like it.
    """
    told = content["ends"]
    ends = tuple(
        End(low["device"], low["key"], (low["value"], high["value"]), is_high)
        for low, high in zip(told[::2], told[1::2], strict=True)
        for is_high in (False, True)
    )
    if "why" in content:
        return Spread(ends, why=str(content["why"]))
    rates = [
        [math.nan if rate is None else float(rate) for rate in one] for one in content["rates"]
    ]
    if len(rates) != len(ends) + 1:
        raise ValueError("there must be rates at each end")
    return Spread(ends, tuple(Throughputs(*one) for one in rates))


COLUMNS: Final = (
    "train_per_s_low", "train_per_s_high", "time_to_target_device_low_s",
    "time_to_target_device_high_s",
)  # fmt: skip
"""What a table says of a row: 95 % intervals that come of the device's numbers alone."""

NAMED_MAX: Final = 6
"""Rows that a sentence names at most (chosen: a grid may have hundreds)."""

Items: TypeAlias = tuple[float, float]
"""Training and validation items of an epoch, of those that take time."""


def with_devices(
    rows: Sequence[Mapping[str, Any]], runs: Sequence[Sequence[Run]], spreads: Sequence[Spreading]
) -> list[dict[str, Any]]:
    """The rows of a table with what the intervals of their devices' numbers, if any, do to them."""
    if not any(spreads):
        return [dict(row) for row in rows]
    return [
        widened(row, spread, items_of(of))
        for row, of, spread in zip(rows, runs, spreads, strict=True)
    ]


def items_of(runs: Sequence[Run]) -> Items:
    """Items of an epoch that take time: training and validation ones, or the former alone."""
    first = next((run for run in runs if len(run.epochs)), None)
    if first is None:
        return 1.0, 0.0
    epoch = first.epochs.iloc[0]
    is_free = math.isnan(first.valid_per_s)  # under solvers, and of schedules beside them
    return float(epoch["instances"]), 0.0 if is_free else float(epoch["valid_instances"])


def widened(row: Mapping[str, Any], spread: Spreading, items: Items) -> dict[str, Any]:
    """A row with the columns of its device's intervals, and its own interval widened by them.

    The interval over seeds and that of the device are independent of one another: the logarithms of
    their ends over the median are added as the root of their squares.
    """
    if spread is None or spread.why:
        return {**row, **dict.fromkeys(COLUMNS)}
    rate, time_s = row["train_per_s"], row["time_to_target_s"]
    base, *at_ends = spread.rates
    slow, fast = combined([one.train_per_s / base.train_per_s for one in at_ends])
    less, more = combined(spread.time_ratios(*items))
    ends = (None, None) if time_s is None else (time_s * less, time_s * more)
    rates = (None, None) if rate is None else (rate * slow, rate * fast)
    told: dict[str, Any] = dict(zip(COLUMNS, (*rates, *ends), strict=True))
    if time_s is not None and row["time_to_target_coverage"]:
        low, high = row["time_to_target_low_s"], row["time_to_target_high_s"]
        low = None if low is None else time_s / _joint(time_s / low, less)
        high = None if high is None else time_s * _joint(high / time_s, more)
        told |= {"time_to_target_low_s": low, "time_to_target_high_s": high}
    return {**row, **told, "note": note_with(row["note"], _words(told))}


def _joint(first: float, second: float) -> float:
    """The factor of two independent causes, each a factor; whether it is above 1 does not count."""
    return math.exp(math.hypot(math.log(first), math.log(second)))


def _words(told: Mapping[str, Any]) -> str:
    """Write a row's note on its device's intervals."""
    slow, fast, less, more = (told[name] for name in COLUMNS)
    if slow is None:
        return ""
    said = f"of the device alone, 95 %: training {format_rate(slow)} to {format_rate(fast)}"
    times = None if less is None else f"{format_seconds(less)} to {format_seconds(more)}"
    return f"{said}, time to target {times}" if times else said


def sentences_of(
    rows: Sequence[Mapping[str, Any]],
    runs: Sequence[Sequence[Run]],
    spreads: Sequence[Spreading],
    points: Sequence[Hashable] | None = None,
) -> list[str]:
    """Sentences on the intervals of the rows' devices, and what they do to the rows' order."""
    ends = list(dict.fromkeys(end for one in spreads if one is not None for end in one.ends))
    if not ends:
        return []
    points = points or [0] * len(rows)
    places: dict[Hashable, list[int]] = {}
    for place, point in enumerate(points):
        places.setdefault(point, []).append(place)
    return [
        _numbers(ends, is_all=all(one is not None for one in spreads)),
        *_unknown(rows, spreads),
        *_order(ends, rows, [items_of(of) for of in runs], spreads, [*places.values()]),
    ]


def _numbers(ends: Sequence[End], *, is_all: bool) -> str:
    """Name the numbers that have intervals, and what was done about it."""
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    numbers = [
        f"{one.key} of {one.device} {one.value:.3g} to {two.value:.3g}" for one, two in pairs
    ]
    is_one = len(pairs) == 1
    have, each = ("has a 95 % interval", "") if is_one else ("have 95 % intervals", " of each")
    which = "Each row" if is_all else "Each row on such a device"
    return (
        f"{len(pairs)} number{'s' * (not is_one)} of the devices {have}: {', '.join(numbers)}. "
        f"{which} was run shortly in mode sleep at both ends{each}, and its intervals have what "
        "that changes; numbers are taken to err independently, and epochs to stay."
    )


def _unknown(rows: Sequence[Mapping[str, Any]], spreads: Sequence[Spreading]) -> Iterator[str]:
    """A sentence for each reason why it is unknown of rows what intervals do there."""
    reasons: dict[str, list[str]] = {}
    for row, one in zip(rows, spreads, strict=True):
        if one is not None and one.why:
            reasons.setdefault(one.why, []).append(str(row["schedule"]))
    for why, labels in reasons.items():
        yield f"What these intervals do to {_listed(labels)} is unknown: {why}."


def _order(
    ends: Sequence[End], rows: Sequence[Mapping[str, Any]], items: Sequence[Items],
    spreads: Sequence[Spreading], places: Sequence[Sequence[int]],
) -> list[str]:  # fmt: skip
    """At which ends another row would be first; nothing where no two rows can be compared.

    First is the least time to the target; where no row arrived, the highest training throughput.
    """
    every = [row["time_to_target_s"] for row in rows]
    if is_time := any(one is not None for one in every):
        apart = [row["standing"] == "not compared" for row in rows]
        every = [None if is_so else one for one, is_so in zip(every, apart, strict=True)]
    else:
        every = [1.0 / row["train_per_s"] if row["train_per_s"] else None for row in rows]
    times = {place: time_s for place, time_s in enumerate(every) if time_s is not None}
    known = [[place for place in one if place in times] for one in places]
    unknown = {place for place, one in enumerate(spreads) if one is not None and one.why}
    contests = [one for one in known if len(one) > 1 and not unknown.intersection(one)]
    if not contests:
        return []

    def at_end(end: End, place: int) -> float:
        spread, counts = spreads[place], items[place] if is_time else (1.0, 0.0)
        if spread is None or end not in spread.ends:  # the row's devices have no such number
            return times[place]
        return times[place] * spread.time_ratios(*counts)[spread.ends.index(end)]

    others: list[str] = []
    are_several = len({end.device for end in ends}) > 1
    for found in contests:
        first = min(found, key=times.__getitem__)
        for end in ends:
            best = min(found, key=partial(at_end, end))
            if best != first:
                of = f" of {end.device}" if are_several else ""
                others.append(f"{rows[best]['schedule']} at {end.key}{of} = {end.value:.3g}")
    told = f"{_listed(others)} would be first" if others else "the same row is first"
    at = "At these ends" if others else "At each of these ends"
    return [f"Ranks are of the numbers themselves. {at}, {told}."]


def _listed(names: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    known = list(names)
    more = len(known) - NAMED_MAX
    return ", ".join(known[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
