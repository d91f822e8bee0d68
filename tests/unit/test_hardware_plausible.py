"""What is beyond anything known gets a note, and is right all the same."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ampsim import assets
from ampsim.hardware import (
    Checkpoints,
    Cluster,
    Device,
    Edge,
    Failures,
    Link,
    Ports,
    Topology,
    implausible,
    load_device,
)
from ampsim.hardware.plausible import (
    FLOP_PER_J_MAX,
    FLOP_PER_S_MAX,
    MEMORY_BANDWIDTH_BYTES_PER_S_MAX,
    RIDGE_FLOP_PER_BYTE_MAX,
    RIDGE_FLOP_PER_BYTE_MIN,
)
from ampsim.hardware.topology import HOST, Route

NAMES = assets.names("devices")


@pytest.mark.parametrize("name", NAMES)
def test_no_shipped_device_is_implausible(name):
    assert implausible(load_device(name)) == []


def test_the_limit_of_flop_per_watt_is_four_times_the_best_device_shipped():
    best = max(
        device.flop_per_s / device.busy_power_w
        for device in map(load_device, NAMES)
        if device.busy_power_w is not None
    )
    assert pytest.approx(4 * best, rel=0.02) == FLOP_PER_J_MAX


RATE = {"name": "d", "flop_per_s": 1e12}


@pytest.mark.parametrize(
    ("at", "beyond", "said"),
    [
        ({"flop_per_s": FLOP_PER_S_MAX}, {"flop_per_s": 1.1e16}, "flop_per_s is 1.1e+16, above"),
        (
            {"idle_power_w": 0.0, "busy_power_w": 1e12 / FLOP_PER_J_MAX * (1 + 1e-12)},
            {"idle_power_w": 0.0, "busy_power_w": 0.4},
            "flop_per_s of 1e+12 at busy_power_w of 0.4 are above 2.2e+12 FLOP/s per watt, four",
        ),
        (
            {
                "flop_per_s": 1e15,
                "memory_bandwidth_bytes_per_s": MEMORY_BANDWIDTH_BYTES_PER_S_MAX,
            },
            {"flop_per_s": 1e15, "memory_bandwidth_bytes_per_s": 1.1e14},
            "memory_bandwidth_bytes_per_s is 1.1e+14, above 1e+14; is it in bytes/s?",
        ),
        (
            {"memory_bandwidth_bytes_per_s": 1e11, "light_bandwidth_bytes_per_s": 1e14},
            {"memory_bandwidth_bytes_per_s": 1e11, "light_bandwidth_bytes_per_s": 2e14},
            "light_bandwidth_bytes_per_s is 2e+14, above 1e+14; is it in bytes/s?",
        ),
        (
            {"memory_bandwidth_bytes_per_s": 1e12 / RIDGE_FLOP_PER_BYTE_MAX},
            {"memory_bandwidth_bytes_per_s": 1e8},
            "flop_per_s over memory_bandwidth_bytes_per_s is 10000 FLOP per byte, above 5000",
        ),
        (
            {"memory_bandwidth_bytes_per_s": 1e12 / RIDGE_FLOP_PER_BYTE_MIN},
            {"memory_bandwidth_bytes_per_s": 2e13},
            "flop_per_s over memory_bandwidth_bytes_per_s is 0.05 FLOP per byte, below 0.1",
        ),
        (
            {"flop_per_s": 1e6},
            {"flop_per_s": 15.7},
            "flop_per_s is 15.7, below 1e+06; is it in FLOP/s",
        ),
        (
            {"memory_bytes": 100_000},
            {"memory_bytes": 16},
            "memory_bytes is 16, below 10000; is it in",
        ),
        (
            {"operation_overhead_s": 0.01},
            {"operation_overhead_s": 2.5},
            "operation_overhead_s is 2.5, above 0.01; is it in seconds?",
        ),
        ({"step_overhead_s": 0.01}, {"step_overhead_s": 0.011}, "step_overhead_s is 0.011, above"),
        (
            {"message_overhead_s": 0.01},
            {"message_overhead_s": 5.0},
            "message_overhead_s is 5, above",
        ),
        (
            {"dispatch_s": 0.01},
            {"dispatch_s": 5.0},
            "dispatch_s is 5, above 0.01; is it in seconds?",
        ),
        ({"jitter_cv": 1.0}, {"jitter_cv": 5.0}, "jitter_cv is 5, above 1; it is a fraction of"),
    ],
)
def test_each_limit_is_told_beyond_it_and_not_at_it(at, beyond, said):
    assert implausible(Device(**RATE | at)) == []
    (told,) = implausible(Device(**RATE | beyond))
    assert told.startswith(said)


def test_links_in_other_units_are_noted_once_each():
    """A latency of 2 was meant in microseconds, a bandwidth of 25 in GB/s."""
    slip: Any = {"latency_s": 2.0, "bandwidth_bytes_per_s": 25.0}
    right: Any = {"latency_s": 1.0, "bandwidth_bytes_per_s": 1e3}
    two = (Device(**RATE),) * 2

    def clusters(cost: Any) -> dict[str, Cluster]:
        routes = tuple(Route(source=at, target=1 - at, link=Link(**cost)) for at in (0, 1))
        edges = (Edge(between=(0, 1), **cost), Edge(between=(1, "host"), **cost))
        return {
            "link": Cluster(name="c", devices=two[:1], link=Link(**cost)),
            "links[0]": Cluster(name="c", devices=two, links=routes),
            "topology": Cluster(name="c", devices=two, topology=Topology(kind="ring", **cost)),
            "edge 0-1": Cluster(name="c", devices=two, edges=edges),
        }

    assert [one for made in clusters(right).values() for one in implausible(made)] == []
    for key, made in clusters(slip).items():
        assert implausible(made) == [
            f"{key}.latency_s is 2, above 1; is it in seconds?",
            f"{key}.bandwidth_bytes_per_s is 25, below 1000; is it in bytes/s?",
        ]


FAILS = {"mean_time_between_s": 10.0, "mean_time_to_repair_s": 10.0, "weights": "checkpoint"}


@pytest.mark.parametrize(
    ("failures", "checkpoints", "said"),
    [
        ({"mean_time_to_repair_s": 10.1}, {}, "failures.mean_time_to_repair_s is 10.1, above mean"),
        ({}, {"every_s": 10.1}, "checkpoints.every_s is 10.1, above failures.mean_time_between_s"),
        ({}, {"takes_s": 10.1}, "checkpoints.takes_s is 10.1, above every_s of 10: the next is"),
    ],
)
def test_failures_and_checkpoints_are_noted_beyond_each_limit_and_not_at_it(
    failures, checkpoints, said
):
    def told(failing: Any, kept: Any) -> list[str]:
        return implausible(
            Cluster(
                name="c",
                devices=(Device(**RATE),),
                failures=Failures(**FAILS | failing),
                checkpoints=Checkpoints(**{"every_s": 10.0, "takes_s": 10.0} | kept),
            )
        )

    assert told({}, {}) == []
    (note,) = told(failures, checkpoints)
    assert note.startswith(said)


FAST = Device(name="fast", flop_per_s=1e12, memory_bandwidth_bytes_per_s=1e11)
SLOW = Device(name="slow", flop_per_s=1e12, memory_bandwidth_bytes_per_s=1e10)
FREE = Device(name="free", flop_per_s=1e12)


def cluster(devices, link=None, links=()):
    return Cluster(name="c", devices=devices, link=link or Link(), links=links)


def test_a_link_faster_than_the_memory_at_an_end_of_it_is_told():
    default = Link(bandwidth_bytes_per_s=2e10)
    (told,) = implausible(cluster((FAST, SLOW), default))
    assert told == (
        "link.bandwidth_bytes_per_s is 2e+10, above the 1e+10 of the memory of slow at an end of "
        "it; check both"
    )
    assert implausible(cluster((FAST, FAST), default)) == []
    assert implausible(cluster((FREE, FREE), default)) == []
    assert implausible(cluster((SLOW,), default)) == []
    assert implausible(cluster((SLOW, SLOW))) == []


def test_a_way_of_its_own_is_measured_at_its_own_ends():
    quick = Link(bandwidth_bytes_per_s=2e10)
    between_fast, to_slow = (
        Route(source=0, target=1, link=quick),
        Route(source=1, target=2, link=quick),
    )
    from_host = Route(source=HOST, target=2, link=quick)
    told = implausible(cluster((FAST, FAST, SLOW), links=(between_fast, to_slow, from_host)))
    assert [one.split(".")[0] for one in told] == ["links[1]", "links[2]"]


WIRES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "topology.bandwidth_bytes_per_s": ({"kind": "ring"}, {}),
    "topology.levels[0].bandwidth_bytes_per_s": (
        {"kind": "hierarchy", "levels": ({"members": 2}, {"members": 1})},
        {"bandwidth_bytes_per_s": 1e12},
    ),
}


@pytest.mark.parametrize("key", WIRES)
def test_an_edge_of_a_topology_faster_than_a_memory_is_told(key):
    shape, above = WIRES[key]

    def told(rate: float) -> list[str]:
        content = copy.deepcopy(shape)
        where = content["levels"][0] if "levels" in content else content
        where["bandwidth_bytes_per_s"] = rate
        if above:
            content["levels"][1].update(above)
        made = Topology(**content)
        return implausible(Cluster(name="c", devices=(FAST, SLOW), topology=made))

    assert told(1e10) == []
    (note,) = told(1.1e10)
    assert note.startswith(f"{key} is 1.1e+10, above the 1e+10 of the memory of slow at an end")


def test_an_edge_or_a_port_of_a_worker_faster_than_its_memory_is_told():
    def edge(first: Any, second: Any) -> Edge:
        return Edge(between=(first, second), bandwidth_bytes_per_s=2e10)

    edges = (edge(0, "switch"), edge(1, "switch"), edge("switch", "host"), edge(2, "switch"))
    (told,) = implausible(Cluster(name="c", devices=(FAST, SLOW, SLOW), edges=edges))
    assert told.startswith("edge 1-switch.bandwidth_bytes_per_s is 2e+10, above the 1e+10 of")
    ports = Ports(egress_bytes_per_s=2e10, ingress_bytes_per_s=1e10)
    (told,) = implausible(Cluster(name="c", devices=(FAST, SLOW), ports=ports))
    assert told.startswith("ports.egress_bytes_per_s is 2e+10, above the 1e+10 of the memory of sl")


def test_devices_of_a_cluster_are_told_once_each_by_name():
    odd = Device(name="odd", flop_per_s=2e16)
    (told,) = implausible(cluster((odd, odd, FREE)))
    assert told.startswith("device odd: flop_per_s is 2e+16, above 1e+16")


def test_check_says_a_line_for_each_note_and_ends_well(call):
    source = '{ kind = "assumed", text = "for tests" }'
    Path("odd.toml").write_text(
        "flop_per_s = 2e16\nmemory_bandwidth_bytes_per_s = 2e10\n"
        f"[sources]\nflop_per_s = {source}\nmemory_bandwidth_bytes_per_s = {source}\n"
    )
    ended = call("check", "odd.toml")
    assert (ended.code, ended.out) == (0, "ok: odd.toml: device odd, 20.0 PFLOP/s\n")
    first, second = ended.err.splitlines()
    assert first.startswith("ampsim: note: odd.toml: flop_per_s is 2e+16, above 1e+16; ")
    assert second.startswith("ampsim: note: odd.toml: flop_per_s over memory_bandwidth_bytes_per_s")
    (row,) = json.loads(call("check", "odd.toml", "--json", "-").out)["files"]
    assert row["is_right"]
    assert len(row["notes"]) == 2
