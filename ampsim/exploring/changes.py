"""Changes of a cluster: each device, worker, link, overhead and number, made faster.

A change has a factor: rates times that, durations over it. Infinity is no time at all, or, of a
rate, the largest that a file may name. What is charged by several numbers at once, such as a device
class, changes in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

from ampsim.data_parallel import Solver
from ampsim.hardware import Cluster, Route, light_is_free, place_name
from ampsim.hardware.device import HOST_NUMBERS, NUMBERS, sign_of
from ampsim.hardware.load import replaced, with_links
from ampsim.hardware.record import NUMBER_MAX
from ampsim.model_parallel import Schedule
from ampsim.study.elasticity import BANDWIDTH, HOST_PLACE, LATENCY, SCHEDULE_PLACE, Elasticities

FACTORS: Final = (0.5, 2.0, math.inf)
CURVE: Final = (0.5, 0.71, 1.0, 1.41, 2.0, 4.0, math.inf)
"""Factors of a curve. Source: Curtsinger and Berger, "Coz", 2015, for the idea: a speed-up that is
tried, not a share that is read off."""

_PAIRS_MAX: Final = 4
_WORKERS_MAX: Final = 16
"""Most links, and most workers, that are changed each by itself: those of the largest elasticities
(chosen: a table that nobody reads is a slip)."""

_RATES: Final = (BANDWIDTH, "egress_bytes_per_s", "ingress_bytes_per_s")
_SCHEDULE_WAITS: Final = ("group_wait_s", "round_trip_s")
_VARYING: Final = {  # times of what varies, by the cluster's key
    "failures": ("mean_time_between_s", "mean_time_to_repair_s"),
    "checkpoints": ("every_s", "takes_s", BANDWIDTH), "messages": ("retry_after_s",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is made faster."""

    what: str  # as the table calls it
    share: float | None  # the elasticity of the time over it; None of what is no time constant
    of_cluster: Callable[[Cluster, float], Cluster] = lambda cluster, _factor: cluster
    of_schedule: Collection[str] = ()  # waits of the schedule
    factors: Sequence[float] = FACTORS  # that are tried
    frees_light: bool = False  # whether light steps take no time under it

    def on(self, cluster: Cluster, schedule: Any, factor: float) -> tuple[Cluster, Schedule]:
        """The cluster and the schedule with it so many times as fast."""
        own = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
        faster = {key: sped(key, own[key], factor) for key in own if key in self.of_schedule}
        if "inner" in own:  # of a solver, in each copy
            faster["inner"] = self.on(cluster, own["inner"], factor)[1]
        return self.of_cluster(cluster, factor), replace(schedule, **faster)


def sped(key: str, value: Any, factor: float) -> Any:
    """A number that is so many times as fast: a rate times the factor, a duration over it.

    >>> sped("flop_per_s", 1e12, 2.0), sped("latency_s", 1e-6, math.inf), sped("memory_bytes", 8, 2)
    (2000000000000.0, 0.0, 8)
    """
    if value is None or not sign_of(key):
        return value
    return min(value * factor, NUMBER_MAX) if sign_of(key) > 0 else value / factor


def changes_of(cluster: Cluster, schedule: Schedule, shares: Elasticities) -> list[Change]:
    """Everything that is tried on a cluster: of what takes time there, each thing."""
    return [
        *_of_devices(cluster, shares),
        *_of_links(cluster, shares, are_apart=not isinstance(schedule, Solver)),
        *_of_more(cluster, schedule, shares),
        EVERYTHING,
    ]


def _of_devices(cluster: Cluster, shares: Elasticities) -> Iterator[Change]:
    """Devices of each kind, each worker, the host, and each time constant of all devices."""
    kinds, every = cluster.kinds, range(cluster.workers)
    for device, name in kinds.items():
        on = [place for place in every if cluster.devices[place] == device]
        share = sum(shares.of(("worker", worker)) for worker in on)
        if len(on) > 1 or cluster.workers == 1:  # else it is its worker's row
            yield Change(f"device {name}", share, partial(_workers, on))
    most = shares.largest([("worker", worker) for worker in every])[:_WORKERS_MAX]
    for _worker, worker in sorted(most) if cluster.workers > 1 else ():
        share = shares.of(("worker", worker))
        kind = f" ({kinds[cluster.devices[worker]]})" * (len(kinds) > 1)
        yield Change(f"worker {worker}{kind}", share, partial(_workers, [worker]))
    if not cluster.is_host_free:
        yield Change("host", shares.of(HOST_PLACE), _host)
    keys = dict.fromkeys(key for one in kinds for key in one.numbers if sign_of(key))
    for key in keys if len(keys) > 1 else ():
        share = sum(shares.of(("worker", worker), key) for worker in every)
        yield Change(key, share, partial(_workers, every, keys=(key,)))


def _of_links(cluster: Cluster, shares: Elasticities, *, are_apart: bool) -> Iterator[Change]:
    """Latency and bandwidth of all links, and the links that matter most, each by itself.

    Links of a solver are not `are_apart`: a collective goes over all of them at once.
    """
    pairs = dict.fromkeys(place for place, _key in shares.by_constant if len(place) == 3)
    parts = {"latency": (LATENCY,), "bandwidth": _RATES}
    there = {name: keys for name, keys in parts.items() if _links(cluster, 0.5, keys) != cluster}
    for name, keys in there.items():
        share = sum(shares.of(place, keys[0]) for place in pairs)
        yield Change(f"{name} of links", share, partial(_links, keys=keys))
    if cluster.has_shared_bandwidth or not are_apart or not there:
        return
    for pair in [one for one in shares.largest(pairs) if shares.of(one) > 0][:_PAIRS_MAX]:
        name = " to ".join(map(place_name, pair[1:]))
        yield Change(f"link {name}", shares.of(pair), partial(_pair, *pair[1:]))


def _of_more(cluster: Cluster, schedule: Any, shares: Elasticities) -> Iterator[Change]:
    """Waits of the schedule, or of that inside copies, and what can only be there or not."""
    for key in _SCHEDULE_WAITS:
        if getattr(getattr(schedule, "inside", schedule), key, None):
            share = shares.of(SCHEDULE_PLACE, key) if key == "round_trip_s" else None
            yield Change(f"{key} of the schedule", share, of_schedule=(key,))
    if not all(map(light_is_free, cluster.devices)):
        yield Change("no light work", None, factors=(math.inf,), frees_light=True)
    if cluster.varies:
        yield Change("no stragglers", None, _steady, factors=(math.inf,))


def _faster(part: Any, factor: float, keys: Collection[str]) -> Any:
    """A record of hardware with these of its numbers so many times as fast; None stays None.

    It is not checked as a file is: a memory may become faster than the cache before it.
    """
    if part is None:
        return None
    own = {key: one for key in keys if (one := getattr(part, key, None))}
    return part.model_copy(update={key: sped(key, one, factor) for key, one in own.items()})


def _steady(cluster: Cluster, _factor: float) -> Cluster:
    """A cluster without jitter, outages, and messages that are late or lost."""
    steady = replaced(cluster, events=(), failures=None, checkpoints=None, messages=None)
    every = (*cluster.devices, cluster.host)
    *devices, host = (one and one.model_copy(update={"jitter_cv": 0.0}) for one in every)
    return steady.model_copy(update={"devices": tuple(devices), "host": host})


def _workers(
    on: Sequence[int], cluster: Cluster, factor: float, keys: Collection[str] = NUMBERS
) -> Cluster:
    made, places = {one: _faster(one, factor, keys) for one in set(cluster.devices)}, set(on)
    devices = [made[one] if at in places else one for at, one in enumerate(cluster.devices)]
    return cluster.model_copy(update={"devices": tuple(devices)})


def _host(cluster: Cluster, factor: float) -> Cluster:
    return cluster.model_copy(update={"host": _faster(cluster.host, factor, HOST_NUMBERS)})


def _pair(source: int, target: int, cluster: Cluster, factor: float) -> Cluster:
    link = _faster(cluster.link_between(source, target), factor, (LATENCY, BANDWIDTH))
    own = Route(source=source, target=target, link=link)
    others = [one for one in cluster.links if (one.source, one.target) != (source, target)]
    return replaced(cluster, links=(*others, own))


def _links(cluster: Cluster, factor: float, keys: Collection[str] = (LATENCY, *_RATES)) -> Cluster:
    return with_links(cluster, partial(_faster, factor=factor, keys=keys))


def _all(cluster: Cluster, factor: float) -> Cluster:
    """A cluster with all its time constants so many times as fast."""
    events = tuple(_faster(one, factor, ("from_s", "until_s")) for one in cluster.events)
    varying = {key: _faster(getattr(cluster, key), factor, own) for key, own in _VARYING.items()}
    cluster = replaced(_links(cluster, factor), events=events, **varying)
    return _host(_workers(range(cluster.workers), cluster, factor), factor)


EVERYTHING: Final = Change("everything", 1.0, _all, _SCHEDULE_WAITS, (0.5, 2.0))
"""All time constants at once: every time of the run is divided by the factor."""
