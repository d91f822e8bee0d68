"""What cannot be felt moves nothing, whatever trains: the trace is the same to the bit.

Room for all in a memory, an outage long after the end, all ways listed one by one, another name, a
copy lane that nobody uses, a host that takes no time: each leaves out a fast path, or asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

from covering import among, together
from short_runs import CHAINS, MODELS, PAIRS, schedule_of, small_model

import ampsim
from ampsim.data_parallel import SOLVERS
from ampsim.dataflow import PROGRAMS
from ampsim.hardware import HOST, Cluster, Device, Event, Link
from ampsim.hardware.topology import Route
from ampsim.model_parallel import SCHEDULES

TABLES = ("spans", "transfers", "updates", "admissions", "epochs", "collectives", "exchanges")
WORKERS = 4


def devices_with(cluster: Cluster, **keys: Any) -> Cluster:
    made = tuple(one.model_copy(update=keys) for one in cluster.devices)
    return cluster.model_copy(update={"devices": made})


def outages_later(cluster: Cluster) -> Cluster:
    late = {"from_s": 1e6, "until_s": 2e6}
    slow = Event(kind="slow", worker=WORKERS - 1, factor=2.0, **late)
    return cluster.model_copy(update={"events": (Event(kind="stop", worker=0, **late), slow)})


def ways_listed(cluster: Cluster) -> Cluster:
    places = [HOST, *range(WORKERS)]
    ends = [(s, t) for s in places for t in places if s != t]
    ways = tuple(Route(source=s, target=t, link=cluster.link) for s, t in ends)
    return cluster.model_copy(update={"links": ways})


NOT_FELT: dict[str, Callable[[Cluster], Cluster]] = {
    "room": lambda one: devices_with(one, memory_bytes=10**14),
    "outages later": outages_later,
    "ways listed": ways_listed,
    "another name": lambda one: devices_with(one, name="other"),
    "copy lanes": lambda one: devices_with(one, copy_bandwidth_bytes_per_s=1e9),
    "host": lambda one: one.model_copy(update={"host": Device(name="host", flop_per_s=1e9)}),
}

NARROW = Link(latency_s=1e-7, bandwidth_bytes_per_s=1e9)
CLUSTERS: dict[str, tuple[dict[str, Any], Link]] = {
    "free": ({}, Link()),
    "latency": ({"step_overhead_s": 3e-8}, Link(latency_s=1e-7)),
    "bandwidth": (
        {"memory_bandwidth_bytes_per_s": 5e9},
        Link(latency_s=1e-8, bandwidth_bytes_per_s=1e9),
    ),
    "varying": (
        {"jitter_cv": 0.3, "step_overhead_s": 3e-8},
        Link(latency_s=1e-7, bandwidth_bytes_per_s=1e9),
    ),
}


def cluster_of(kind: str) -> Cluster:
    keys, link = CLUSTERS[kind]
    speeds = (1e9, 2e9, 3.3e9, 2e9)
    devices = tuple(Device(name="one", flop_per_s=speed, **keys) for speed in speeds)
    return Cluster(name="test", devices=devices, link=link)


METHODS: list[tuple[str, str]] = [
    *PAIRS,
    *((name, model) for name in SOLVERS for model in CHAINS),
    *((name, model) for name in PROGRAMS for model in ("mlp", "rnn", "dynamic_lstm")),
]
CASES = among([(*pair, *how) for pair in METHODS for how in product(NOT_FELT, CLUSTERS)])


@cache
def traced(method: str, model: str, kind: str, what: str = "") -> list[Any]:
    """The tables of a short run, of causes only that there are as many."""
    cluster = cluster_of(kind) if not what else NOT_FELT[what](cluster_of(kind))
    named: Any = schedule_of(method) if method in SCHEDULES else method
    named = f"{method}:{WORKERS - 1}" if method in SOLVERS else named
    result = ampsim.simulate(small_model(model), cluster, named, epochs=1, mode="sleep")
    return [getattr(result, one) for one in TABLES if len(getattr(result, one))]


def test_every_method_and_all_that_is_not_felt_meet():
    assert {one[0] for one in CASES} == {*SCHEDULES, *SOLVERS, *PROGRAMS}
    assert {(one[0], one[2]) for one in CASES} == {*product({one[0] for one in CASES}, NOT_FELT)}
    assert {one[1] for one in CASES} == {*MODELS}


@together("method, model, what, kind", CASES)
def test_what_cannot_be_felt_moves_nothing(method, model, what, kind):
    tables, others = traced(method, model, kind), traced(method, model, kind, what)
    for one, other in zip(tables, others, strict=True):
        shared = [name for name in one if name in other and name != "cause"]
        assert one[shared].equals(other[shared])
        assert {*one} ^ {*other} <= {"lane"}
