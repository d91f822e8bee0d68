"""Devices and clusters by name or path, or in a word as users type them; and cluster files.

A cluster file says which devices there are, how many of each, and the links between them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from ampsim import assets
from ampsim.arguments import checked
from ampsim.errors import AmpsimError, FileFormatError, OptionError, one_of
from ampsim.files import expanded
from ampsim.hardware.cluster import Cluster, ClusterKeys
from ampsim.hardware.device import Device, device_of
from ampsim.hardware.events import Event
from ampsim.hardware.record import HARDWARE, UNSOURCED
from ampsim.hardware.topology import (
    DIMENSIONS_MAX,
    HOST,
    WORKERS_MAX,
    Edge,
    EdgeCost,
    HostPorts,
    Junction,
    Level,
    Link,
    Place,
    Route,
    Topology,
    pair_of,
)
from ampsim.text import sequence, short
from ampsim.toml_file import Record, Text, explain, read_table, validate

WORKERS_DEFAULT = 16
"""Workers of a cluster made from one device: the cores of AMPNet's machines (Appendix B)."""


@checked
def load_device(name_or_path: str | os.PathLike[str]) -> Device:
    """The device of a shipped name or of a device file.

    Raises:
        UnknownNameError: no such name or file.
        FileFormatError: the file does not describe a device.
    """
    return _device_at(assets.locate("devices", name_or_path), os.fspath(name_or_path))


def _device_at(path: Path, label: str) -> Device:
    table = read_table(path, label, HARDWARE)
    if is_cluster(table):
        raise FileFormatError(f"{label}: expected a device file, got a cluster file")
    return device_of(table, path, label)


@checked
def load_cluster(
    name_or_path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    latency_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    topology: str | None = None,
) -> Cluster:
    """The cluster of a cluster file, equal workers of one device, or groups of several.

    Args:
        name_or_path: a shipped name, the path of a device or cluster file, or groups of devices
            such as "p100:8,cpu-core:1".
        workers: count of workers; a device gives 16 unless told, a cluster has its own.
        latency_s: replaces the latency of the cluster's default link, and of each edge.
        bandwidth_bytes_per_s: replaces the bandwidth of the cluster's default link, and of each
            edge.
        topology: the edges between workers, each as the default link, such as "ring" or
            "torus:4x4"; None leaves it to the file, or each pair a link of its own.

    Raises:
        UnknownNameError: no such name or file.
        FileFormatError: the file describes neither a device nor a cluster.
        OptionError: a number is out of its range, or is not the cluster's count of workers.

    Example:
        >>> cluster = load_cluster("tflops-1", workers=4, latency_s=1e-6)
        >>> cluster.name, cluster.workers, cluster.link.latency_s
        ('4 x tflops-1', 4, 1e-06)
    """
    named, _says_links = _named(name_or_path, workers)
    return relinked(
        named,
        latency_s=latency_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        topology=topology,
        label=os.fspath(name_or_path),
    )


def relinked(
    cluster: Cluster,
    *,
    latency_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    topology: str | None = None,
    label: str = "",
) -> Cluster:
    """A cluster with other links, as `load_cluster` takes them; None for those that it has.

    Args:
        cluster: whose links to replace.
        latency_s: as of `load_cluster`.
        bandwidth_bytes_per_s: likewise.
        topology: likewise.
        label: what to call it in a message; its name where that is empty.

    Raises:
        OptionError: a number is out of its range, or has no effect.
    """
    given = {"latency_s": latency_s, "bandwidth_bytes_per_s": bandwidth_bytes_per_s}
    numbers = {key: value for key, value in given.items() if value is not None}
    if numbers:
        before = cluster.link.model_dump(exclude={"source"})
        try:
            link = Link.model_validate({**before, **numbers, "source": UNSOURCED})
        except ValidationError as error:
            raise OptionError(explain(error, Link)) from error
        cluster = cluster.model_copy(update={"link": link})
        cluster = _with_edges(cluster, numbers, label or cluster.name)
    return cluster if topology is None else _with_topology(cluster, topology)


def load_between(name: str, cluster: Cluster, workers: int | None = None) -> Cluster:
    """The cluster of a file; or devices by their name, between the links of a cluster.

    Args:
        name: as of `load_cluster`.
        cluster: whose links devices get.
        workers: how many; as the cluster has, or the file or groups say, unless given.

    Raises:
        UnknownNameError, FileFormatError, OptionError: as of `load_cluster`.
    """
    own, says_links = _named(name, workers, cluster.workers)
    if says_links:
        return own
    return replaced(cluster, name=own.name, description=own.description, devices=own.devices)


def _named(
    name_or_path: str | os.PathLike[str], workers: int | None, usual: int = WORKERS_DEFAULT
) -> tuple[Cluster, bool]:
    """A cluster by name, and whether it says workers and links, as a cluster file does."""
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise OptionError(f"workers must be 1 to {WORKERS_MAX}, got {short(workers)}")
    label = os.fspath(name_or_path)
    has_groups = isinstance(name_or_path, str) and is_groups(name_or_path)
    if has_groups:
        cluster, what = _groups(label), label
    else:
        path = assets.locate("devices", name_or_path)
        table = read_table(path, label, HARDWARE)
        if not is_cluster(table):
            return _equal_workers(device_of(table, path, label), workers or usual), False
        cluster, what = cluster_of(table, path, label), f"the cluster file {label}"
    if workers not in (None, cluster.workers):
        raise OptionError(
            f"workers must be {cluster.workers}, as in {what}, got {short(workers)}; leave it out "
            f"or edit the {'groups' if has_groups else 'file'}"
        )
    return cluster, not has_groups


def _groups(text: str) -> Cluster:
    """A cluster of groups of equal devices, in the order in which they are named."""
    groups = [(load_device(group.device), group.workers) for group in groups_of(text)]
    if len(groups) == 1:
        return _equal_workers(*groups[0])
    if sum(count for _device, count in groups) > WORKERS_MAX:
        raise OptionError(f"devices must count 1 to {WORKERS_MAX} in all, got more in {text!r}")
    return Cluster(
        name=", ".join(f"{count} x {device.name}" for device, count in groups),
        devices=tuple(device for device, count in groups for _ in range(count)),
    )


def _equal_workers(device: Device, workers: int) -> Cluster:
    return Cluster(
        name=f"{workers} x {device.name}",
        description=device.description,
        devices=(device,) * workers,
    )


def _with_topology(cluster: Cluster, text: str) -> Cluster:
    if cluster.network is not None:
        raise OptionError(
            f"topology {text} has no effect on {cluster.name}, whose file says what the edges are; "
            "leave it out or edit the file"
        )
    return replaced(cluster, topology=topology_of(text, cluster.link))


def _with_edges(cluster: Cluster, numbers: dict[str, Any], label: str) -> Cluster:
    if cluster.network is None:
        return cluster
    if cluster.topology is None or cluster.topology.levels:
        raise OptionError(
            f"{next(iter(numbers))} has no effect on {label}, which says what each edge costs; "
            "leave it out or edit the file"
        )
    topology = cluster.topology.model_copy(update={**numbers, "source": UNSOURCED})
    return replaced(cluster, topology=topology)


def replaced(cluster: Cluster, **parts: Any) -> Cluster:
    """A cluster with other parts, checked as one that is read.

    Delays of messages stay where the latencies around which they lie become 0, and mean nothing.

    Raises:
        OptionError: the parts do not fit.
    """
    every = {**{key: getattr(cluster, key) for key in Cluster.model_fields}, **parts}
    made = Cluster(**{**every, "messages": None})
    return made.model_copy(update={"messages": every["messages"]})


def with_links(cluster: Cluster, changed: Callable[[Any], Any]) -> Cluster:
    """A cluster with all that messages cross changed: links, edges and ports; None stays None."""
    topology, ports = cluster.topology, cluster.ports
    if topology is not None:
        levels = tuple(map(changed, topology.levels))
        topology = changed(topology).model_copy(update={"levels": levels})
    if ports is not None:
        host = None if ports.host is None else changed(ports.host)
        ports = changed(ports).model_copy(update={"host": host})
    routes = (one.model_copy(update={"link": changed(one.link)}) for one in cluster.links)
    return replaced(
        cluster, link=changed(cluster.link), links=tuple(routes), topology=topology, ports=ports,
        edges=tuple(map(changed, cluster.edges)),
    )  # fmt: skip


TOPOLOGIES: Final = (
    "fully-connected", "ring", "mesh:4x4", "torus:4x4", "star", "fat-tree:4", "hierarchy:8x2",
)  # fmt: skip
"""Each kind as users type it, with numbers of an example."""

_GROUPS: Final = re.compile(r",|:[^/\\]*$")


class DeviceGroup(NamedTuple):
    """A number of equal devices."""

    device: str  # a shipped name, or a path
    workers: int  # how many


def nearest(key: str, value: float) -> tuple[str | None, str | None]:
    """The shipped devices whose number is nearest below a value, and at it or above."""
    room, _dot, number = key.partition(".")
    if room != "device":
        return None, None
    devices = [load_device(name) for name in assets.names("devices")]
    known = [(getattr(one, number), one.name) for one in devices if getattr(one, number)]
    below = max((one for one in known if one[0] < value), default=(0, None))
    above = min((one for one in known if one[0] >= value), default=(0, None))
    return below[1], above[1]


def is_groups(text: str) -> bool:
    """Tell whether a text names groups of devices, and not one device or a file that is there.

    >>> is_groups("p100:8,cpu-core:1"), is_groups("p100"), is_groups("mine/p100.toml")
    (True, False, False)
    """
    return _GROUPS.search(text) is not None and not os.path.exists(expanded(text))


def says_links(text: str) -> bool:
    """Tell whether a text leads to a cluster file, which says workers and links, not to devices.

    Raises:
        UnknownNameError: no such name or file.
        FileFormatError: the file cannot be read.
    """
    path = None if is_groups(text) else assets.locate("devices", text)
    return path is not None and is_cluster(read_table(path, text, HARDWARE))


def groups_of(text: str) -> list[DeviceGroup]:
    """The groups of a text such as "p100:8,cpu-core:1"; one device where no count stands.

    Raises:
        OptionError: a group is none; the message shows one.
    """
    groups: list[DeviceGroup] = []
    for part in text.split(","):
        name, colon, count = part.strip().rpartition(":")
        if not colon:
            name, count = count, "1"
        is_count = re.fullmatch("[0-9]{1,7}", count) and 1 <= int(count) <= WORKERS_MAX
        if not name or not is_count:
            raise OptionError(
                f"a group of devices must be NAME:COUNT with a count of 1 to {WORKERS_MAX}, such "
                f"as p100:8, got {short(part)}"
            )
        groups.append(DeviceGroup(name, int(count)))
    return groups


def topology_of(text: str, link: Link) -> Topology:
    """The topology of a text such as "ring" or "torus:4x4", each edge as `link`.

    After the colon stand the extents of a mesh or torus, the radix of a fat tree, or the members of
    a hierarchy's levels from the devices up.

    Raises:
        OptionError: there is no such kind, or it needs other numbers.
    """
    kind, colon, tail = text.partition(":")
    kinds = [one.partition(":")[0] for one in TOPOLOGIES]
    if kind not in kinds:
        raise OptionError(one_of("topology", kind, kinds, label="there are"))
    example = TOPOLOGIES[kinds.index(kind)]
    numbers = tuple(int(one) for one in re.findall("[0-9]{1,7}", tail))
    is_like_example = bool(colon) == (":" in example) and tail == "x".join(map(str, numbers))
    if not is_like_example or (kind == "fat-tree" and len(numbers) != 1):
        raise OptionError(f"topology {kind} must be given as {example}, got {short(text)}")
    if len(numbers) > DIMENSIONS_MAX:
        raise OptionError(
            f"topology {kind} must have at most {DIMENSIONS_MAX} numbers, got {len(numbers)}"
        )
    cost = link.model_dump(exclude={"source"})
    try:
        if kind == "hierarchy":
            levels = tuple(
                Level.model_validate({"members": count, **cost, "source": link.source})
                for count in numbers
            )
            return Topology.model_validate({"kind": kind, "levels": levels})
        own = {"fat-tree": {"radix": numbers[0] if numbers else None}}
        keys = own.get(kind, {"shape": numbers} if numbers else {})
        return Topology.model_validate({"kind": kind, **keys, **cost, "source": link.source})
    except ValidationError as error:
        raise OptionError(f"topology {text}: {explain(error, Topology)}") from error


def is_cluster(table: Mapping[str, Any]) -> bool:
    """Tell whether a table is meant as a cluster: it has its keys, or a list no device has."""
    foreign = table.keys() - Device.model_fields.keys()
    has_list = any(isinstance(table[key], list) for key in foreign)
    return has_list or "link" in table or "device" in table


def cluster_of(table: Mapping[str, Any], path: Path, label: str) -> Cluster:
    """The cluster that a file's table describes; its name is the file's where none is given.

    Raises:
        FileFormatError: a key or value is wrong, here or in a device's file that it names.
    """
    file = validate(_ClusterFile, {"name": path.stem, **table}, label)
    count = sum(entry.count for entry in file.device)
    if not 1 <= count <= WORKERS_MAX:
        raise FileFormatError(f"{label}: device must count 1 to {WORKERS_MAX} in all, got {count}")
    devices: list[Device] = []
    for index, entry in enumerate(file.device):
        devices += [_device(entry, path.parent, f"{label}: device[{index}]")] * entry.count
    routes = [_route(entry) for entry in file.links]
    for key, part in _sourced(file, routes, label):
        is_free = isinstance(part, Link | HostPorts) and part.is_free
        if part is not None and part.source is None and not is_free:
            raise FileFormatError(
                f"{label}: {key} has no key 'source'; say where its numbers come from, "
                f'as in source = {{kind = "assumed", text = "..."}}'
            )
        if part is not None and part.source is not None and part.source.low is not None:
            raise FileFormatError(
                f"{label}: {key}.source: low and high have an effect on numbers of devices alone; "
                "leave them out"
            )
    content = {
        **{key: getattr(file, key) for key in ClusterKeys.model_fields},
        "devices": tuple(devices),
        "links": tuple(routes),
        "events": tuple(file.events),
        "edges": tuple(edge for entry in file.edges or [] for edge in entry.edges()),
        "host": None if file.host is None else _host(file.host, path.parent, f"{label}: host"),
    }
    return validate(Cluster, content, label)


def _sourced(file: _ClusterFile, routes: list[Route], label: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts that need a source: they cost something, or vary while a run goes on."""
    yield "link", file.link
    yield from ((f"links[{index}]", route.link) for index, route in enumerate(routes))
    yield from ((f"events[{index}]", one) for index, one in enumerate(file.events))
    yield from ((key, getattr(file, key)) for key in ("failures", "checkpoints", "messages"))
    if file.edges == []:
        raise FileFormatError(f"{label}: edges must be a list of at least one, got []")
    yield from (("topology", file.topology), ("ports", file.ports))
    levels = () if file.topology is None else file.topology.levels
    yield from ((f"topology.levels[{index}]", level) for index, level in enumerate(levels))
    yield "ports.host", None if file.ports is None else file.ports.host
    yield from ((f"edges[{index}]", entry) for index, entry in enumerate(file.edges or []))


def _place(value: Any) -> Any:
    """A place as a file names it: a worker's index, or "host"."""
    if value == "host":
        return HOST
    if type(value) is not int or value < 0:
        raise PydanticCustomError("place", "no worker and not the host")
    return value


_NamedPlace = Annotated[Place, BeforeValidator(_place)]


class _DeviceEntry(Record):
    """Equal devices in a row, by a shipped name or by a file beside this one."""

    name: Text | None = None
    file: Text | None = None
    count: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 1


class _RouteEntry(Link):
    """A link of its own for one direction between two places; it inherits nothing from `link`."""

    source_place: Annotated[_NamedPlace, Field(alias="from")]
    target_place: Annotated[_NamedPlace, Field(alias="to")]


def _pairs(value: Any) -> list[Any]:
    """One pair of places, or a list of pairs, as a list of pairs."""
    listed = sequence(value)
    pairs = listed if listed and isinstance(listed[0], list) else [value]
    return [pair_of(pair) for pair in pairs]


class _EdgesEntry(EdgeCost):
    """Edges that cost the same: one, or as many as `between` has pairs."""

    between: Annotated[list[tuple[Junction, Junction]], BeforeValidator(_pairs)]

    def edges(self) -> list[Edge]:
        """Make an edge for each pair."""
        cost = {key: getattr(self, key) for key in EdgeCost.model_fields}
        named = [
            tuple("host" if place == HOST else place for place in pair) for pair in self.between
        ]
        return [Edge.model_validate({"between": pair, **cost}) for pair in named]


class _HostEntry(Record):
    """The host's device: a shipped name, or a device file."""

    device: Text


class _ClusterFile(ClusterKeys):
    """The keys of a cluster file."""

    device: list[_DeviceEntry]
    links: list[_RouteEntry] = Field(default_factory=list[_RouteEntry])
    events: list[Event] = Field(default_factory=list[Event])
    edges: list[_EdgesEntry] | None = None
    host: _HostEntry | None = None


def _host(entry: _HostEntry, folder: Path, label: str) -> Device:
    is_file = entry.device.endswith(".toml")
    key = {"file" if is_file else "name": entry.device}
    return _device(_DeviceEntry.model_validate(key), folder, label, "device")


def _device(entry: _DeviceEntry, folder: Path, label: str, key: str = "file") -> Device:
    if (entry.name is None) == (entry.file is None):
        raise FileFormatError(f"{label} must have one of the keys 'name' and 'file'; give one")
    if entry.name is not None and entry.name.endswith(".toml"):
        raise FileFormatError(
            f"{label}.name must be a shipped device, got {entry.name!r}; a file beside this one is "
            f'file = "{entry.name}"'
        )
    is_unknown = entry.name is not None and entry.name not in assets.names("devices")
    if is_unknown and os.path.isfile(folder / f"{entry.name}.toml"):
        raise FileFormatError(
            f"{label}: no device named {entry.name!r} is shipped; the file beside this one is "
            f'{key} = "{entry.name}.toml"'
        )
    try:
        if entry.name is not None:
            return _device_at(assets.named("devices", entry.name), entry.name)
        path = assets.locate("devices", folder / expanded(entry.file or ""))
        return _device_at(path, str(path))
    except AmpsimError as error:
        raise FileFormatError(f"{label}: {error}") from error


def _route(entry: _RouteEntry) -> Route:
    cost = {key: getattr(entry, key) for key in Link.model_fields}
    return Route(source=entry.source_place, target=entry.target_place, link=Link(**cost))
