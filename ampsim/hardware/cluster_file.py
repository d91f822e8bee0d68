"""A cluster file: which devices, how many of each, and the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from ampsim import assets
from ampsim.errors import AmpsimError, FileFormatError
from ampsim.files import expanded
from ampsim.hardware.cluster import Cluster, MemoryRemedy
from ampsim.hardware.device import Device, device_of
from ampsim.hardware.events import Checkpoints, Event, Failures, Messages
from ampsim.hardware.record import HARDWARE, Rate, Seconds, Source
from ampsim.hardware.topology import (
    FREE_LINK,
    HOST,
    WORKERS_MAX,
    Edge,
    EdgeCost,
    HostPorts,
    Junction,
    Link,
    Place,
    Ports,
    Route,
    Sharing,
    Topology,
    pair_of,
)
from ampsim.toml_file import Record, Text, read_table, validate


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
        is_free = isinstance(part, Link | EdgeCost | HostPorts) and part.is_free
        if part is not None and part.source is None and not is_free:
            raise FileFormatError(
                f"{label}: {key} has no key 'source'; say where its numbers come from, "
                f'as in source = {{kind = "assumed", text = "..."}}'
            )
    alike = ("name", "description", "link", "failures", "checkpoints", "messages", "ports")
    content = {
        **{key: getattr(file, key) for key in (*alike, "topology", "sharing", "memory")},
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


class _RouteEntry(Record):
    """A link of its own for one direction between two places; it inherits nothing from `link`."""

    source_place: Annotated[_NamedPlace, Field(alias="from")]
    target_place: Annotated[_NamedPlace, Field(alias="to")]
    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    source: Source | None = None


def _pairs(value: Any) -> list[Any]:
    """One pair of places, or a list of pairs, as a list of pairs."""
    listed = cast("list[Any]", value) if isinstance(value, list) else []
    is_list = bool(listed) and isinstance(listed[0], list)
    pairs = listed if is_list else [cast("Any", value)]
    return [pair_of(pair) for pair in pairs]


class _EdgesEntry(EdgeCost):
    """Edges that cost the same: one, or as many as `between` has pairs."""

    between: Annotated[list[tuple[Junction, Junction]], BeforeValidator(_pairs)]

    def edges(self) -> list[Edge]:
        """Each of them."""
        cost = {key: getattr(self, key) for key in EdgeCost.model_fields}
        named = [
            tuple("host" if place == HOST else place for place in pair) for pair in self.between
        ]
        return [Edge.model_validate({"between": pair, **cost}) for pair in named]


class _HostEntry(Record):
    """The host's device: a shipped name, or a device file."""

    device: Text


class _ClusterFile(Record):
    """The keys of a cluster file."""

    name: Text
    description: str = ""
    device: list[_DeviceEntry]
    link: Link = FREE_LINK
    links: list[_RouteEntry] = Field(default_factory=list[_RouteEntry])
    events: list[Event] = Field(default_factory=list[Event])
    failures: Failures | None = None
    checkpoints: Checkpoints | None = None
    messages: Messages | None = None
    ports: Ports | None = None
    topology: Topology | None = None
    edges: list[_EdgesEntry] | None = None
    sharing: Sharing | None = None
    host: _HostEntry | None = None
    memory: MemoryRemedy | None = None


def _host(entry: _HostEntry, folder: Path, label: str) -> Device:
    is_file = entry.device.endswith(".toml")
    key = {"file" if is_file else "name": entry.device}
    return _device(_DeviceEntry.model_validate(key), folder, label)


def _device(entry: _DeviceEntry, folder: Path, label: str) -> Device:
    if (entry.name is None) == (entry.file is None):
        raise FileFormatError(f"{label} must have one of the keys 'name' and 'file'; give one")
    if entry.name is not None and entry.name.endswith(".toml"):
        raise FileFormatError(
            f"{label}.name must be a shipped device, got {entry.name!r}; a file beside this one is "
            f'file = "{entry.name}"'
        )
    try:
        if entry.name is not None:
            path = assets.named("devices", entry.name)
            return device_of(read_table(path, entry.name, HARDWARE), path, entry.name)
        path = assets.locate("devices", folder / expanded(entry.file or ""))
        table = read_table(path, str(path), HARDWARE)
        if is_cluster(table):
            raise FileFormatError(f"{path}: expected a device file, got a cluster file")
        return device_of(table, path, str(path))
    except AmpsimError as error:
        raise FileFormatError(f"{label}: {error}") from error


def _route(entry: _RouteEntry) -> Route:
    cost = {key: getattr(entry, key) for key in Link.model_fields}
    return Route(source=entry.source_place, target=entry.target_place, link=Link(**cost))
