"""Notes on numbers of devices and clusters that are implausible, though nothing forbids them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ampsim.hardware.cluster import Cluster
from ampsim.hardware.device import Device, sign_of
from ampsim.hardware.topology import HOST, Edge, Level, Link, Topology, place_name

FLOP_PER_J_MAX: Final = 2.2e12
"""FLOP/s per watt: four times the best shipped file, `tpu-v3`, 123 TFLOP/s at 220 W."""

FLOP_PER_S_MAX: Final = 1e16
"""FLOP/s of one device; chosen: 80 times the fastest shipped file, so more is a slip of units."""

MEMORY_BANDWIDTH_BYTES_PER_S_MAX: Final = 1e14
"""Of one device; chosen: 20 times the fastest shipped file, so more is a slip of units."""

BANDWIDTHS: Final = (
    "memory_bandwidth_bytes_per_s", "light_bandwidth_bytes_per_s", "pass_bandwidth_bytes_per_s"
)  # fmt: skip
"""The keys of a device that are held against it."""

FLOP_PER_S_MIN: Final = 1e6
"""Of one device; chosen: a ten-thousandth of the slowest shipped file, so less is a slip of units,
as of TFLOP/s."""

BYTES_MIN: Final = 1e4
"""Of a memory or a cache of a device; chosen: no layer fits, so less is a slip of units, as of
GB."""

OVERHEAD_S_MAX: Final = 0.01
"""Of what a device takes beside its work; chosen: 400 times the longest of a shipped file, so more
is a slip of units, as of microseconds."""

CV_MAX: Final = 1.0
"""Of a step's time; chosen: it varies by as much as it takes, so more is a slip, as of per cent."""

LATENCY_S_MAX: Final = 1.0
"""Of a link; chosen: ten times around the earth in a fibre, so more is a slip of units."""

BANDWIDTH_BYTES_PER_S_MIN: Final = 1e3
"""Of a link; chosen: a modem of 1990, so less is a slip of units, as of Gbit/s."""

RIDGE_FLOP_PER_BYTE_MAX: Final = 5000.0
"""FLOP/s over bytes/s; chosen: 37 times the most of a shipped file, `tpu-v3`."""

RIDGE_FLOP_PER_BYTE_MIN: Final = 0.1
"""The same; chosen: a hundredth of the least of a shipped file, `cpu-core`."""


def implausible(hardware: Device | Cluster) -> list[str]:
    """Sentences on what is beyond anything known: key, value, limit, and what to look at."""
    if isinstance(hardware, Device):
        return list(_of_device(hardware))
    devices = dict.fromkeys(hardware.devices)
    told = [f"device {device.name}: {text}" for device in devices for text in _of_device(device)]
    return [*told, *_of_links(hardware), *_of_host(hardware), *_of_failures(hardware)]


def _of_device(device: Device) -> Iterator[str]:
    rate, power = device.flop_per_s, device.busy_power_w
    if rate > FLOP_PER_S_MAX:
        yield _above("flop_per_s", rate, FLOP_PER_S_MAX, "is it in FLOP/s?")
    if power is not None and rate > power * FLOP_PER_J_MAX:
        yield (
            f"flop_per_s of {rate:g} at busy_power_w of {power:g} are above {FLOP_PER_J_MAX:g} "
            "FLOP/s per watt, four times the best device shipped; check both"
        )
    for key in BANDWIDTHS:
        bandwidth = getattr(device, key)
        if bandwidth is not None and bandwidth > MEMORY_BANDWIDTH_BYTES_PER_S_MAX:
            yield _above(key, bandwidth, MEMORY_BANDWIDTH_BYTES_PER_S_MAX, "is it in bytes/s?")
    yield from _of_units(device)
    memory = device.memory_bandwidth_bytes_per_s
    if memory is not None:
        ridge = rate / memory
        what = f"flop_per_s over memory_bandwidth_bytes_per_s is {ridge:g} FLOP per byte"
        if ridge > RIDGE_FLOP_PER_BYTE_MAX:
            yield f"{what}, above {RIDGE_FLOP_PER_BYTE_MAX:g}; check the units of both"
        elif ridge < RIDGE_FLOP_PER_BYTE_MIN:
            yield f"{what}, below {RIDGE_FLOP_PER_BYTE_MIN:g}; check the units of both"
    copies = device.copy_bandwidth_bytes_per_s
    if copies is not None and copies > _memory(device):
        yield (
            f"copy_bandwidth_bytes_per_s is {copies:g}, above the {memory:g} of the device's own "
            "memory; check both"
        )


def _of_units(device: Device) -> Iterator[str]:
    """Find numbers that seem to be in another unit than their keys name."""
    if device.flop_per_s < FLOP_PER_S_MIN:
        yield _below("flop_per_s", device.flop_per_s, FLOP_PER_S_MIN, "is it in FLOP/s?")
    for key, value in device.numbers.items():
        if key.endswith("_bytes") and value < BYTES_MIN:
            yield _below(key, value, BYTES_MIN, "is it in bytes?")
        if sign_of(key) < 0 and value > OVERHEAD_S_MAX:
            yield _above(key, value, OVERHEAD_S_MAX, "is it in seconds?")
        if key.endswith("_cv") and value > CV_MAX:
            yield _above(key, value, CV_MAX, "it is a fraction of a step's time, not per cent")


def _of_host(cluster: Cluster) -> Iterator[str]:
    if cluster.host is not None and cluster.is_host_free:
        yield (
            f"host: {cluster.host.name} names neither message_overhead_s nor step_overhead_s, so "
            "the host acts at once"
        )


def _of_failures(cluster: Cluster) -> Iterator[str]:
    failures, checkpoints = cluster.failures, cluster.checkpoints
    if failures is not None and failures.kind != "slow":
        between_s, repair_s = failures.mean_time_between_s, failures.mean_time_to_repair_s
        if repair_s > between_s:
            yield (
                f"failures.mean_time_to_repair_s is {repair_s:g}, above mean_time_between_s of "
                f"{between_s:g}: a device is down more than up; check both"
            )
        if failures.loses_weights and checkpoints and checkpoints.every_s > between_s:
            yield (
                f"checkpoints.every_s is {checkpoints.every_s:g}, above "
                f"failures.mean_time_between_s of {between_s:g}: most failures come before the "
                "next checkpoint, and learning may never get ahead; check both"
            )
    if checkpoints is not None and checkpoints.takes_s > checkpoints.every_s:
        yield (
            f"checkpoints.takes_s is {checkpoints.takes_s:g}, above every_s of "
            f"{checkpoints.every_s:g}: the next is due before the last has ended; check both"
        )


def _costs(cluster: Cluster) -> Iterator[tuple[str, Link | Level | Topology | Edge]]:
    """Return all that messages cross but ports, each with the key that says what it costs."""
    yield "link", cluster.link
    yield from ((f"links[{place}]", route.link) for place, route in enumerate(cluster.links))
    if cluster.topology is not None:
        levels = cluster.topology.levels
        yield from ((f"topology.levels[{place}]", one) for place, one in enumerate(levels))
        if not levels:
            yield "topology", cluster.topology
    yield from ((f"edge {_ends(edge)}", edge) for edge in cluster.edges)


def _ends(edge: Edge) -> str:
    return "-".join(map(place_name, edge.between))


def _of_costs(cluster: Cluster) -> Iterator[str]:
    """The first latency and the first bandwidth that seem to be in another unit."""
    costs = list(_costs(cluster))
    for key, cost in costs:
        if cost.latency_s > LATENCY_S_MAX:
            yield _above(f"{key}.latency_s", cost.latency_s, LATENCY_S_MAX, "is it in seconds?")
            break
    for key, cost in costs:
        rate = cost.bandwidth_bytes_per_s
        if rate is not None and rate < BANDWIDTH_BYTES_PER_S_MIN:
            key = f"{key}.bandwidth_bytes_per_s"
            yield _below(key, rate, BANDWIDTH_BYTES_PER_S_MIN, "is it in bytes/s?")
            break


def _of_links(cluster: Cluster) -> Iterator[str]:
    yield from _of_costs(cluster)
    slowest = min(cluster.devices, key=_memory)
    if cluster.workers > 1:
        yield from _of_link("link", cluster.link.bandwidth_bytes_per_s, slowest)
        yield from _of_network(cluster, slowest)
    for index, route in enumerate(cluster.links):
        ends = [cluster.devices[end] for end in (route.source, route.target) if end != HOST]
        slower = min(ends, key=_memory)
        yield from _of_link(f"links[{index}]", route.link.bandwidth_bytes_per_s, slower)


def _of_network(cluster: Cluster, slowest: Device) -> Iterator[str]:
    topology, ports = cluster.topology, cluster.ports
    if topology is not None:
        level = topology.levels[0] if topology.levels else topology
        key = "topology.levels[0]" if topology.levels else "topology"
        yield from _of_link(key, level.bandwidth_bytes_per_s, slowest)
    told: set[str] = set()
    for edge in cluster.edges:
        ends = [cluster.devices[end] for end in edge.between if isinstance(end, int) and end >= 0]
        slower = min(ends, key=_memory, default=None)
        if slower is not None and slower.name not in told:
            for note in _of_link(f"edge {_ends(edge)}", edge.bandwidth_bytes_per_s, slower):
                told.add(slower.name)
                yield note
    for way in ("egress", "ingress") if ports is not None else ():
        rate = getattr(ports, f"{way}_bytes_per_s")
        yield from _of_link("ports", rate, slowest, f"{way}_bytes_per_s")


def _of_link(
    key: str, bandwidth: float | None, device: Device, number: str = "bandwidth_bytes_per_s"
) -> Iterator[str]:
    if bandwidth is not None and bandwidth > _memory(device):
        yield (
            f"{key}.{number} is {bandwidth:g}, above the {_memory(device):g} of the "
            f"memory of {device.name} at an end of it; check both"
        )


def _memory(device: Device) -> float:
    bandwidth = device.memory_bandwidth_bytes_per_s
    return float("inf") if bandwidth is None else bandwidth


def _below(key: str, value: float, limit: float, hint: str) -> str:
    return f"{key} is {value:g}, below {limit:g}; {hint}"


def _above(key: str, value: float, limit: float, hint: str) -> str:
    return f"{key} is {value:g}, above {limit:g}; {hint}"
