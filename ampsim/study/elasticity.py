"""Elasticities: by how many percent a run is longer where one time constant is one percent larger.

A time constant is a duration, such as a latency, or one over a rate. With twice of each a run takes
twice the time, with the same order of everything. So by Euler's theorem the elasticities over all
time constants add up to 1. Each is the share of the path through whoever held the device
(`ampsim.trace.holding`) that it accounts for: of a step, what the price of the step has of it,
found by changing it a little where the step is priced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, TypeAlias, TypeVar

import pandas as pd

from ampsim.hardware import HOST, Cluster, Device, place_name
from ampsim.hardware.device import NUMBERS, sign_of
from ampsim.study.outages import down_within_s
from ampsim.study.result import Result
from ampsim.trace import COMPUTE_LANE, COPY_IN_LANE, COPY_OUT_LANE, Holding, held_path

Place: TypeAlias = "tuple[str, int] | tuple[str, int, int] | tuple[str]"
"""("worker", number), ("link", source, target), the host, the schedule, or what is none of them."""

_P = TypeVar("_P", bound=Place)

LATENCY: Final = "latency_s"
BANDWIDTH: Final = "bandwidth_bytes_per_s"
HOST_PLACE: Final = ("host",)
SCHEDULE_PLACE: Final = ("schedule",)
WAITS: Final = ("waits",)
_STEP: Final = 2.0**-20
"""By how much a number is changed; chosen: a price is linear in it but for a kink."""

DIGITS: Final = 6  # of a share, or change, by which things are ordered; behind them is rounding
_LEAST: Final = 1e-12  # share below which there is only rounding


@dataclass(frozen=True)
class Elasticities:
    """The elasticities of a run's time, by place and key of a time constant there.

    Of `WAITS` are set times, such as those of outages, and exchanges by a closed form.
    """

    by_constant: Mapping[tuple[Place, str], float]

    def of(self, place: Place, key: str | None = None) -> float:
        """The elasticity over a time constant of a place, or over all of them."""
        pairs = self.by_constant.items()
        return sum(one for (at, of), one in pairs if at == place and key in (None, of))

    def largest(self, places: Iterable[_P]) -> list[_P]:
        """Places by their elasticity, the largest first; those that are equal stay in order."""
        return sorted(places, key=lambda one: -round(self.of(one), DIGITS))

    @property
    def table(self) -> pd.DataFrame:
        """One row a time constant: where, constant, elasticity; the largest first."""
        rows: list[tuple[str, str, float]] = []
        for ((kind, *numbers), key), one in self.by_constant.items():
            ends = " to ".join(map(place_name, numbers))
            rows.append((f"{kind} {ends}".strip(), key, one))
        frame = pd.DataFrame(rows, columns=["where", "constant", "elasticity"])
        order = frame["elasticity"].round(DIGITS).sort_values(ascending=False, kind="stable").index
        return frame.loc[order].reset_index(drop=True)


def elasticities(
    result: Result, cluster: Cluster, items: tuple[float, float] | None = None
) -> Elasticities:
    """The elasticities of the time of a run's epochs, from all its records; their sum is 1 or 0.

    With `items`, they are of an epoch of so many training and validation items, of which the run
    had the leading ones: its seconds of either count as many times.
    """
    recorder, prices = result.recorder, _Prices(result, cluster)
    spans, until_s = recorder.columns("spans"), float(result.epochs["time_s"].max())
    down_s = down_within_s(result.outages, spans["worker"], (spans["start_s"], spans["end_s"]))
    wait_s = getattr(getattr(result.schedule, "order", None), "group_wait_s", 0.0)
    walk = partial(
        held_path, recorder, crossings=result.crossings, down_s=down_s, group_wait_s=wait_s
    )
    path = walk(until_s, by_message=prices.counts_messages)
    if items is not None and (valid_s := float(result.epochs["valid_s"].iloc[-1])) > 0:
        train = walk(until_s - valid_s, by_message=prices.counts_messages)
        own = result.epochs[["instances", "valid_instances"]].sum()
        more, of_valid = (wanted / one for wanted, one in zip(items, own, strict=True))
        path = {
            held: of_valid * path.get(held, 0.0) + (more - of_valid) * train.get(held, 0.0)
            for held in path | train
        }
    total_s, found = sum(path.values()), defaultdict[tuple[Place, str], float](float)
    for held, seconds in path.items():
        for place, key, share in prices.shares(held):
            found[place, key] += seconds * share / total_s
    return Elasticities({one: share for one, share in found.items() if abs(share) > _LEAST})


class _Prices:
    """The prices of a run's steps, by time constant."""

    def __init__(self, result: Result, cluster: Cluster) -> None:
        self._cluster, kinds = cluster, result.recorder.kinds
        self._has_client = hasattr(result.schedule, "round_trip_s")
        self.vary = cluster.steps_vary and any(one.message_overhead_s for one in cluster.devices)
        self.counts_messages = self.vary or not cluster.is_host_free
        every = kinds.all
        self._seconds_on = {every[number]: one for number, one in sorted(kinds.seconds_on.items())}
        self._parts = cache(self._priced)

    def shares(self, held: Holding) -> Iterator[tuple[Place, str, float]]:
        """The share of each time constant in what held a run up."""
        host, on_link = self._cluster.host, {"latency": LATENCY, "bandwidth": BANDWIDTH}
        if held.kind == "wait":
            yield WAITS, "", 1.0
        elif self._has_client and HOST in (held.source_worker, held.worker):
            yield SCHEDULE_PLACE, "round_trip_s", 1.0
        elif held.kind in on_link:
            yield ("link", held.source_worker, held.worker), on_link[held.kind], 1.0
        elif held.worker == HOST and host is not None:
            known, each_s = host.step_overhead_s, host.message_overhead_s  # which do not vary
            size = known + held.messages * each_s if held.messages or not each_s else held.size
            for key, share in _split({"step_overhead_s": known}, "message_overhead_s", size):
                yield HOST_PLACE, key, share
        else:
            for key, share in self._of_step(held, self._cluster.devices[held.worker]):
                yield ("worker", held.worker), key, share

    def _of_step(self, held: Holding, device: Device) -> Iterator[tuple[str, float]]:
        if held.step[-1] in (COPY_OUT_LANE, COPY_IN_LANE):
            known = {"copy_latency_s": device.copy_latency_s}
            yield from _split(known, "copy_bandwidth_bytes_per_s", device.copy_s(held.step[4]))
        elif held.step[-1] != COMPUTE_LANE:
            yield "dispatch_s", 1.0
        else:
            priced_s, parts = self._parts(held.step, held.worker)
            key, overhead_s = "message_overhead_s", held.messages * device.message_overhead_s
            if self.vary:
                parts, priced_s = parts | {key: overhead_s}, priced_s + overhead_s
            elif device.message_overhead_s:  # what is not priced is of messages
                priced_s = max(held.size, priced_s)
            yield from _split(parts, key, priced_s)

    def _priced(self, step: tuple[int, ...], worker: int) -> tuple[float, dict[str, float]]:
        """Return a step's price, and how many of its seconds each time constant makes.

        A member of a group that only waited has no price.
        """
        device, parts = self._cluster.devices[worker], dict[str, float]()
        seconds_on = self._seconds_on.get(step)
        if seconds_on is None:
            return 0.0, {}
        for key in (key for key in NUMBERS if sign_of(key) and getattr(device, key)):
            more, less = (seconds_on(_slower(device, key, 1 + of)) for of in (_STEP, -_STEP))
            parts[key] = (more - less) / (2 * _STEP)
        return seconds_on(device), parts


def _slower(device: Device, key: str, factor: float) -> Device:
    """A device with a time constant that is so many times as large."""
    return device.model_copy(update={key: getattr(device, key) * factor ** -sign_of(key)})


def _split(parts: Mapping[str, float], rest: str, size: float) -> Iterator[tuple[str, float]]:
    """Shares of the parts of a step of this size, and of what is left of it."""
    known = sum(parts.values())
    left = size - known if size - known > 1e-9 * size else 0.0
    for key, seconds in (*parts.items(), (rest, left)):
        if seconds:
            yield key, seconds / (known + left)
