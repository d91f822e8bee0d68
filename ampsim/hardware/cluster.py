"""A cluster: one device for each worker, and the links between them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ampsim.arguments import checked
from ampsim.hardware.device import Device, Source
from ampsim.hardware.events import Event, Failures, Messages, fault_of_events, variations_of
from ampsim.hardware.link import FREE_LINK, Link
from ampsim.hardware.record import digest_of
from ampsim.html_table import html_table
from ampsim.toml_file import Record, Text
from ampsim.units import format_bytes, format_flop, format_seconds

HOST = -1
"""The place of the controller: a host outside the devices, linked to each of them."""

WORKERS_MAX = 1_000_000
"""Most workers that a cluster may have; chosen, to catch a slip before it fills the memory."""

Place = Annotated[int, Field(ge=HOST, lt=WORKERS_MAX)]


class Route(Record):
    """A link of its own from one place to another; the way back is another route.

    Args:
        source: index of the sending worker, or `HOST`.
        target: index of the receiving worker, or `HOST`.
        link: what a message on this way waits for.
    """

    source: Place
    target: Place
    link: Link


class Cluster(Record):
    """The hardware of one run.

    Args:
        name: as users type it, or what was made of it.
        description: what it is, in a sentence.
        devices: one for each worker; worker w computes on `devices[w]`.
        link: what a message between two workers, or between a worker and the host, waits for.
        links: the ways that differ from `link`, at most one for each directed pair.
        events: outages at set times.
        failures: outages by chance; None where there are none.
        messages: what befalls messages between two places; None where they all arrive in time.
    """

    name: Text
    description: str = ""
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=WORKERS_MAX)]
    link: Link = FREE_LINK
    links: tuple[Route, ...] = ()
    events: tuple[Event, ...] = ()
    failures: Failures | None = None
    messages: Messages | None = None

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        """Each route joins two different places of this cluster, and only once."""
        seen: dict[tuple[int, int], int] = {}
        for index, route in enumerate(self.links):
            pair = (route.source, route.target)
            fault = _fault(pair, len(self.devices), seen.get(pair))
            if fault:
                raise PydanticCustomError(
                    "links", "links[{index}]: {fault}", {"index": index, "fault": fault}
                )
            seen[pair] = index
        return self

    @model_validator(mode="after")
    def _check_events(self) -> Self:
        """Events name workers of this cluster, and do not contradict each other."""
        fault = fault_of_events(self.events, self.failures, len(self.devices))
        if fault:
            raise PydanticCustomError("events", "{fault}", {"fault": fault})
        return self

    @property
    def workers(self) -> int:
        """Count of workers."""
        return len(self.devices)

    @cached_property
    def _routes(self) -> Mapping[tuple[int, int], Link]:
        """The links of their own by directed pair."""
        return {(route.source, route.target): route.link for route in self.links}

    @checked
    def link_between(self, source: int, target: int) -> Link:
        """The link from one place to another, each a worker's index or `HOST`."""
        if source == target:
            return FREE_LINK
        return self._routes.get((source, target), self.link)

    @property
    def is_link_free(self) -> bool:
        """Whether no message of this cluster ever waits for a link."""
        return self.link.is_free and all(route.link.is_free for route in self.links)

    def __repr__(self) -> str:
        """Name the cluster, its devices and its links in one line."""
        kinds = Counter(device.name for device in self.devices)
        devices = ", ".join(f"{count} x {name}" for name, count in kinds.items())
        return f"Cluster({self.name!r}: {devices}; links {_links(self)})"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return cluster_html(self)

    @property
    def digest(self) -> str:
        """SHA-256 of what the cluster says, 64 hexadecimal digits; independent of its files."""
        groups = [(key, len(list(rows))) for key, rows in itertools.groupby(self.devices)]
        unset = {key for key in ("events", "failures", "messages") if not getattr(self, key)}
        content = self.model_dump(mode="json", exclude={"devices", *unset})
        return digest_of({**content, "devices": [(one.digest, count) for one, count in groups]})


def variations(cluster: Cluster) -> list[tuple[str, str, Source]]:
    """What varies on a cluster while a run goes on: of what, what, and on what authority."""
    return variations_of(cluster.events, cluster.failures, cluster.messages)


def cluster_html(cluster: Cluster) -> str:
    """A row for each kind of device, and below it what the links cost."""
    kinds = Counter(cluster.devices)
    rows = [
        [
            device.name,
            str(count),
            f"{format_flop(device.flop_per_s)}/s",
            _speed(device.memory_bandwidth_bytes_per_s),
            format_seconds(device.operation_overhead_s),
        ]
        for device, count in kinds.items()
    ]
    note = f"links: {_links(cluster)}"
    headings = ["device", "count", "compute", "memory", "overhead of an operation"]
    return html_table(f"cluster {cluster.name}", rows, headings=headings, note=note)


def _links(cluster: Cluster) -> str:
    """What the links cost, in a few words."""
    if cluster.is_link_free:
        return "free"
    link = cluster.link
    own = f", {len(cluster.links)} of their own" if cluster.links else ""
    return f"latency {format_seconds(link.latency_s)}, {_speed(link.bandwidth_bytes_per_s)}{own}"


def _speed(bytes_per_s: float | None) -> str:
    return "no limit of bandwidth" if bytes_per_s is None else f"{format_bytes(bytes_per_s)}/s"


def _fault(pair: tuple[int, int], workers: int, twin: int | None) -> str | None:
    """What is wrong with a route, if anything."""
    for key, place in zip(("from", "to"), pair, strict=True):
        if place >= workers:
            return f"{key} must be a worker below {workers} or 'host', got {place}"
    if pair[0] == pair[1]:
        return f"from and to must differ, got {pair[0]} twice; messages within a worker are free"
    if twin is not None:
        return f"repeats from and to of links[{twin}]; keep one of the two"
    return None
