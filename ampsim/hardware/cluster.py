"""A cluster: devices, links, events and checkpoints, and a sentence on it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, ValidationError, WrapValidator

from ampsim.arguments import checked
from ampsim.hardware.cost import Charge
from ampsim.hardware.device import HOST_NUMBERS, Device
from ampsim.hardware.events import (
    Checkpoints,
    Event,
    Failures,
    Messages,
    checkpoints_in_words,
    faults_of_checkpoints,
    faults_of_events,
    variations_of,
)
from ampsim.hardware.record import BYTES_MAX, UNSOURCED, Consistent, Source, digest_of
from ampsim.hardware.topology import (
    FREE_LINK,
    HOST,
    WORKERS_MAX,
    Edge,
    HostPorts,
    Link,
    Network,
    Ports,
    Route,
    Share,
    Sharing,
    Topology,
    Way,
    as_tuple,
    edges_of,
    faults_of_route,
)
from ampsim.text import distinct, html_table
from ampsim.toml_file import Text
from ampsim.units import format_bytes, format_flop, format_seconds


class MemoryRemedy(Consistent):
    """A remedy makes activations fit into the workers' memories.

    Args:
        remedy: "offload" moves the activations of heavy nodes to the host and back over the lanes
            of their device; "recompute" lets LSTM and GRU cells keep their inputs alone, and
            compute the rest again.
        above_bytes: an activation is moved only where more than this lies in its device's memory.
    """

    remedy: Literal["offload", "recompute"]
    above_bytes: Annotated[int, Field(ge=0, le=BYTES_MAX)] = 0

    def _faults(self) -> Iterator[str]:
        if self.above_bytes and self.remedy != "offload":
            yield f"above_bytes has no effect on remedy {self.remedy!r}; leave it out"


class ClusterKeys(Consistent):
    """The keys that mean the same in a cluster and in its file; see `Cluster`."""

    name: Text
    description: str = ""
    link: Link = FREE_LINK
    failures: Failures | None = None
    checkpoints: Checkpoints | None = None
    messages: Messages | None = None
    ports: Ports | None = None
    topology: Topology | None = None
    sharing: Sharing | None = None
    memory: MemoryRemedy | None = None


def _each_once(given: Any, check: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Check devices, each once however many workers it has: a million equal ones take a moment."""
    devices = cast("tuple[Any, ...]", given)
    if not isinstance(given, tuple) or not 0 < len(devices) <= WORKERS_MAX:
        return check(given)
    kinds = {id(one): one for one in devices}
    try:
        made = dict(zip(kinds, check(tuple(kinds.values())), strict=True))
    except ValidationError:
        return check(given)  # which says of the first worker that has it
    return tuple(made[id(one)] for one in devices)


class Cluster(ClusterKeys):
    """The hardware of one run.

    Args:
        name: as users type it, or what was made of it.
        description: what it is, in a sentence.
        devices: one for each worker; worker w computes on `devices[w]`.
        link: what a message between two workers, or between a worker and the host, waits for.
        links: the ways that differ from `link`, at most one for each directed pair.
        events: outages at set times.
        failures: outages by chance; None where there are none.
        checkpoints: copies of weights that a stop may go back to; None where there are none.
        messages: what befalls messages between two places; None where they all arrive in time.
        ports: what all traffic of a place shares; None where that is infinite.
        topology: the edges that messages between workers cross; None where each pair has a link.
        edges: the same, listed one by one; they may lead to the host and to switches.
        sharing: how those who want the same bandwidth divide it; "fair" where it is None.
        host: what the controller runs on: each of its messages takes the host's
            `message_overhead_s`, and each of its steps its `step_overhead_s`; None where it acts at
            once.
        memory: what is done so that activations fit into memory; None where all stay.

    With a topology or edges, `link` and `links` are the ways to and from the host alone; and where
    an edge leads to the host, nobody's.
    """

    devices: Annotated[
        tuple[Device, ...],
        Field(min_length=1, max_length=WORKERS_MAX),
        WrapValidator(_each_once),
        BeforeValidator(as_tuple),
    ]
    links: Annotated[tuple[Route, ...], BeforeValidator(as_tuple)] = ()
    events: Annotated[tuple[Event, ...], BeforeValidator(as_tuple)] = ()
    edges: Annotated[tuple[Edge, ...], BeforeValidator(as_tuple)] = ()
    host: Device | None = None

    def _faults(self) -> Iterator[str]:
        """Its parts fit each other, and no key is without effect."""
        for index, device in enumerate(self.devices if self.offloads else ()):
            if device.copy_bandwidth_bytes_per_s is None:
                yield (
                    "memory.remedy 'offload' needs copy_bandwidth_bytes_per_s of every device, "
                    f"{device.name} of worker {index} has none; add it to the device"
                )
        seen: dict[tuple[int, int], int] = {}
        for index, route in enumerate(self.links):
            pair = (route.source, route.target)
            for fault in faults_of_route(pair, len(self.devices), seen.get(pair)):
                yield f"links[{index}]: {fault}"
            seen[pair] = index
        yield from faults_of_events(self.events, self.failures, len(self.devices))
        yield from faults_of_checkpoints(self.checkpoints, self.events, self.failures)
        try:
            network = self.network
        except ValueError as error:
            yield f"{'' if self.topology is None else 'topology: '}{error}"
        else:
            yield from _without_effect(self, network)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, which are not checked; its ways are those of these values."""
        copied, given = super().model_copy(update=update, deep=deep), {*(update or ())}
        if not given <= {"devices", "host"} or copied.workers != self.workers:
            for known in ("network", "_routes"):
                vars(copied).pop(known, None)
        return copied

    @property
    def workers(self) -> int:
        """Count of workers."""
        return len(self.devices)

    @property
    def offloads(self) -> bool:
        """Tell whether activations move to the host and back."""
        return self.memory is not None and self.memory.remedy == "offload"

    @property
    def has_lanes(self) -> bool:
        """Tell whether a device does something beside computing, in a run on this cluster."""
        return self.offloads or any(device.dispatch_s for device in self.devices)

    @property
    def limits_memory(self) -> bool:
        """Tell whether a device may be out of memory."""
        return any(one.memory_bytes is not None for one in self.devices)

    @property
    def has_outages(self) -> bool:
        """Tell whether some device is slow, down or taken up by a checkpoint for a while."""
        return bool(self.events or self.failures or self.checkpoints)

    @property
    def epochs_differ(self) -> bool:
        """Tell whether something comes to one epoch and not to another, and makes it longer."""
        return self.has_outages or bool(self.messages and self.messages.loss_probability)

    @property
    def steps_vary(self) -> bool:
        """Tell whether steps may take longer than their price."""
        return bool(self.events or self.failures or any(one.jitter_cv for one in self.devices))

    @property
    def varies(self) -> bool:
        """Tell whether one pass may take another time than the next: steps, messages or outages."""
        parts = self.devices if self.host is None else (*self.devices, self.host)
        return self.has_outages or bool(self.messages or any(one.jitter_cv for one in parts))

    @property
    def is_host_free(self) -> bool:
        """Tell whether nothing that the host does takes time."""
        host = self.host
        return host is None or not any(getattr(host, key) for key in HOST_NUMBERS)

    @property
    def has_shared_bandwidth(self) -> bool:
        """Tell whether messages of different pairs may share bandwidth."""
        return self.ports is not None or self.topology is not None or bool(self.edges)

    @property
    def shares_fairly(self) -> bool:
        """Tell whether messages that meet have fair shares of bandwidth, one beside the other."""
        return self.has_shared_bandwidth and self.sharing != "first-come"

    @cached_property
    def network(self) -> Network | None:
        """The edges and the ways over them; None where each pair has a link of its own."""
        if self.topology is None and not self.edges:
            return None
        edges = self.edges
        if self.topology is not None and not edges:
            edges = edges_of(self.topology, self.workers)
        return Network(self.workers, edges, self.topology)

    @cached_property
    def _routes(self) -> Mapping[tuple[int, int], Link]:
        return {(route.source, route.target): route.link for route in self.links}

    @checked
    def link_between(self, source: int, target: int) -> Link:
        """The link from one place to another, each a worker's index or `HOST`.

        Over edges and ports it is that of a message which meets no other: the sum of their
        latencies, and the narrowest bandwidth.
        """
        if source == target:
            return FREE_LINK
        if not self.has_shared_bandwidth:
            return self._routes.get((source, target), self.link)
        way = self.way_between(source, target)
        return Link(latency_s=way.latency_s, bandwidth_bytes_per_s=way.narrowest_bytes_per_s)

    @checked
    def way_between(self, source: int, target: int, *, by_lane: bool = False) -> Way:
        """Find what a message from one place to another crosses: its edges or link, and both ports.

        Ports are those of the two ends; what a worker only passes on does not enter its ports. With
        `by_lane` it goes over the lane to the host, or from there, that the worker's device may
        name: in place of the link, beside edges.
        """
        if source == target:
            return Way(0.0, ())
        network, link = self.network, self._routes.get((source, target), self.link)
        way, latency_s, rate = Way(0.0, ()), link.latency_s, link.bandwidth_bytes_per_s
        if network is not None and (network.has_host or HOST not in (source, target)):
            way, latency_s, rate = network.way(source, target), 0.0, None
        device = self.devices[max(source, target)] if HOST in (source, target) else None
        if by_lane and device is not None and device.copy_bandwidth_bytes_per_s is not None:
            latency_s, rate = device.copy_latency_s, device.copy_bandwidth_bytes_per_s
        rates: dict[tuple[int | str, ...], float | None] = {(source, target, "link"): rate}
        if self.ports is not None:
            rates[source, "egress"] = self.ports.rates(source)[0]
            rates[target, "ingress"] = self.ports.rates(target)[1]
        shares = (Share(of, one) for of, one in rates.items() if one is not None)
        return Way(way.latency_s + latency_s, (*way.shares, *shares))

    @property
    def is_link_free(self) -> bool:
        """Tell whether no message of this cluster ever waits for a link."""
        is_free = self.link.is_free and all(route.link.is_free for route in self.links)
        return is_free and self.ports is None and (self.network is None or self.network.is_free)

    @property
    def kinds(self) -> dict[Device, str]:
        """The name of each kind of device; unlike ones of one name are numbered."""
        kinds = list(dict.fromkeys(self.devices))
        return dict(zip(kinds, distinct(one.name for one in kinds), strict=True))

    @property
    def device_text(self) -> str:
        """How many devices there are of each kind."""
        counts, names = Counter(self.devices), self.kinds
        return ", ".join(f"{count} x {names[device]}" for device, count in counts.items())

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}: {self.device_text}; links {_links(self)})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Give a row for each kind of device, and below it what the links cost."""
        names = self.kinds
        rows = [
            [
                names[device],
                str(count),
                f"{format_flop(device.flop_per_s)}/s",
                _speed(device.memory_bandwidth_bytes_per_s),
                format_seconds(device.operation_overhead_s),
            ]
            for device, count in Counter(self.devices).items()
        ]
        note = f"links: {_links(self)}"
        headings = ["device", "count", "compute", "memory", "overhead of an operation"]
        return html_table(f"cluster {self.name}", rows, headings=headings, note=note)

    @property
    def digest(self) -> str:
        """SHA-256 of what the cluster says, 64 hexadecimal digits; independent of its files."""
        groups = [(key, len(list(rows))) for key, rows in itertools.groupby(self.devices)]
        content = self.model_dump(mode="json", exclude={"devices"})
        for key in _LATER_KEYS:
            if not content[key]:
                del content[key]
        if self.host is not None:
            content["host"] = self.host.digest
        return digest_of({**content, "devices": [(one.digest, count) for one, count in groups]})


_LATER_KEYS = (
    "ports", "topology", "edges", "sharing", "events", "failures", "checkpoints", "messages",
    "host", "memory",
)  # fmt: skip
"""Keys that count in a digest only where they are set, so that those of earlier files stay."""


def _links(cluster: Cluster) -> str:
    if cluster.is_link_free:
        return "free"
    if cluster.has_shared_bandwidth:
        return network_text(cluster)
    link = cluster.link
    own = f", {len(cluster.links)} of their own" if cluster.links else ""
    return f"latency {format_seconds(link.latency_s)}, {_speed(link.bandwidth_bytes_per_s)}{own}"


def network_text(cluster: Cluster) -> str:
    """Say in a few words what edges and ports cost, and how they are shared."""
    parts: list[str] = []
    if cluster.topology is not None:
        parts.append(f"{cluster.topology.kind} of {len(cluster.network.edges)} edges")  # pyright: ignore[reportOptionalMemberAccess]  # there is a topology
    elif cluster.edges:
        parts.append(f"{len(cluster.edges)} edges")
    else:
        parts.append("one for each pair")
    if cluster.ports is not None:
        parts.append("ports")
    sharing = "first come first served" if cluster.sharing == "first-come" else "fair shares"
    return f"{', '.join(parts)}, {sharing}"


def _speed(bytes_per_s: float | None) -> str:
    return "no limit of bandwidth" if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def _without_effect(cluster: Cluster, network: Network | None) -> Iterator[str]:
    """Name the keys that have no effect beside the others."""
    if cluster.topology is not None and cluster.edges:
        yield "edges and topology both say what the edges are; leave one of the two out"
    if cluster.sharing is not None and not cluster.has_shared_bandwidth:
        yield "sharing has no effect without ports, topology or edges; leave it out"
    if cluster.messages is not None and not cluster.messages.loss_probability:
        links = (cluster.link, *(route.link for route in cluster.links))
        edges = () if network is None else network.edges
        if not any(one.latency_s for one in (*links, *edges)) and not any(
            one.copy_latency_s for one in cluster.devices
        ):
            yield (
                "messages have no effect: none is lost, and no way has a latency that varies; "
                "leave them out, or add one of the two"
            )
    if network is None:
        return
    if network.has_host and not cluster.link.is_free:
        yield "link has no effect where edges lead to the host and all workers; leave it out"
    for index, route in enumerate(cluster.links):
        if network.has_host or HOST not in (route.source, route.target):
            yield f"links[{index}] has no effect where edges join its places; leave it out"


def host_text(cluster: Cluster) -> str:
    """Say in a few words what the host's steps take."""
    host = cluster.host
    if host is None or cluster.is_host_free:
        return "acts at once"
    return (
        f"{format_seconds(host.step_overhead_s)} a step and "
        f"{format_seconds(host.message_overhead_s)} a message"
    )


def charges_between(cluster: Cluster) -> Iterator[tuple[str, Charge]]:
    """List what links and the host charge: of what, and a charge for each kind of source.

    One that is not assumed says where its numbers come from.
    """
    link, topology, ports, host = cluster.link, cluster.topology, cluster.ports, cluster.host
    parts: list[Link | HostPorts] = [link, *(one.link for one in cluster.links), *cluster.edges]
    if topology is not None:
        parts += [topology, *topology.levels]
    if ports is not None:
        parts += [ports, ports.host or FREE_LINK]
    sources = [one.source or UNSOURCED for one in parts if not one.is_free] or [UNSOURCED]
    bandwidth = link.bandwidth_bytes_per_s
    rate = "infinite" if bandwidth is None else f"{bandwidth:g} bytes/s"
    text = f"latency {link.latency_s:g} s, bandwidth {rate}"
    if cluster.links:
        text += f", {len(cluster.links)} ways of their own"
    text += "; first come first served, never shared"
    if cluster.is_link_free:
        text = "free between any two workers, as in the paper"
    if cluster.has_shared_bandwidth:
        text = network_text(cluster)
    told = [("links", "messages between workers", text, sources)]
    if host is not None and not cluster.is_host_free:
        sources = [host.source(key) for key in HOST_NUMBERS if getattr(host, key)]
        told.append(("host", "controller", f"{host.name}: {host_text(cluster)}", sources))
    for of, what, text, sources in told:
        for kind in dict.fromkeys(one.kind for one in sources):
            texts = dict.fromkeys(one.text for one in sources if one.kind == kind)
            yield of, Charge(what, kind, text + f" ({'; '.join(texts)})" * (kind != "assumed"))


def variations(cluster: Cluster) -> list[tuple[str, str, Source]]:
    """List what varies on a cluster while a run goes on: of what, what, and on what authority."""
    found = variations_of(cluster.events, cluster.failures, cluster.messages)
    kept = cluster.checkpoints
    return found if kept is None else [*found, checkpoints_in_words(kept)]
