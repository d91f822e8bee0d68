"""Links, routes and topologies: what a file says of the ways between workers.

`ampsim.hardware.network` makes edges of them, and
`ampsim.hardware.network` finds the ways over the edges.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from ampsim.hardware.record import Rate, Seconds, Source, wrong
from ampsim.text import short
from ampsim.toml_file import Record


class Link(Record):
    """One direction between two workers; the default costs nothing.

    Args:
        latency_s: from the last byte sent to the message's arrival; it occupies nothing.
        bandwidth_bytes_per_s: rate at which bytes enter, one message after the other; None where
            it is infinite.
        source: where the numbers come from; a file must say.
    """

    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Tell whether every message arrives at the moment it is sent."""
        return self.latency_s == 0 and self.bandwidth_bytes_per_s is None


FREE_LINK = Link()
"""The link of a message that stays within its worker."""


HOST: Final = -1
"""The place of the controller: a host outside the devices, linked to each of them."""

WORKERS_MAX: Final = 1_000_000
"""Most workers that a cluster may have; chosen, to catch a slip before it fills the memory."""

RADIX_MAX: Final = 128
"""Most ports of a switch of a fat tree; chosen, to catch a slip."""

SWITCH_NAME_MAX: Final = 100
"""Longest name of a switch; chosen, to catch a slip."""

Kind = Literal["fully-connected", "ring", "mesh", "torus", "star", "fat-tree", "hierarchy"]
Duplex = Literal["full", "half"]
Sharing = Literal["fair", "first-come"]
"""How those who want the same bandwidth at the same time divide it: in max-min fair shares, or
one message after the other."""

DIMENSIONS_MAX: Final = 20
"""Most dimensions of a mesh and most levels of a hierarchy; chosen: of two members each, they have
`WORKERS_MAX` workers."""

_Extent = Annotated[int, Field(ge=1, le=WORKERS_MAX)]


Junction = int | str
"""Where edges meet: a worker's index, `HOST`, or the name of a switch."""


def pair_of(value: Any) -> tuple[Junction, Junction]:
    """The two places of an edge, as files and callers name them; "host" becomes `HOST`."""
    places = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    if len(places) != 2 or not all(map(_is_place, places)):
        text = (
            "expected two places, each a worker's index, 'host' or the name of a switch, as in "
            f"between = [0, 1], got {short(value)}"
        )
        raise wrong(text)
    one, other = (HOST if place == "host" else place for place in places)
    return one, other


def _is_place(value: Any) -> bool:
    is_index = type(value) is int and 0 <= value < WORKERS_MAX
    return is_index or (isinstance(value, str) and 1 <= len(value) <= SWITCH_NAME_MAX)


def _tuple(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


class EdgeCost(Record):
    """The cost of crossing an edge; the default costs nothing.

    Args:
        latency_s: from the last byte sent to its arrival; it occupies nothing.
        bandwidth_bytes_per_s: rate that all messages which cross the edge share; None where it is
            infinite.
        duplex: whether each direction has this rate for itself, or both share it.
        source: where the numbers come from; a file must say.
    """

    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Rate | None = None
    duplex: Duplex = "full"
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Tell whether crossing it takes no time."""
        return self.latency_s == 0 and self.bandwidth_bytes_per_s is None


class Edge(EdgeCost):
    """An edge between two places.

    Args:
        between: the two places, in either order.
    """

    between: Annotated[tuple[Junction, Junction], BeforeValidator(pair_of)]


class Level(EdgeCost):
    """A level of a hierarchy: a switch for each so many members of the level below.

    Args:
        members: how many of them a switch joins.
    """

    members: _Extent


class Topology(EdgeCost):
    """The edges between all workers, by the name of their shape.

    Args:
        kind: the shape.
        shape: workers along each dimension of a mesh or torus; their product is all workers.
        radix: ports of each switch of a fat tree, an even number.
        levels: of a hierarchy, from the devices up; the product of their members is all workers.
    """

    kind: Kind
    shape: Annotated[
        tuple[_Extent, ...], Field(max_length=DIMENSIONS_MAX), BeforeValidator(_tuple)
    ] = ()
    radix: Annotated[int, Field(ge=2, le=RADIX_MAX)] | None = None
    levels: Annotated[
        tuple[Level, ...], Field(max_length=DIMENSIONS_MAX), BeforeValidator(_tuple)
    ] = ()

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        """Each shape has the keys that it needs, and no other."""
        needs = _NEEDS.get(self.kind)
        if needs is not None and not getattr(self, needs):
            raise wrong(f"missing key {needs!r} of a {self.kind}; add {_EXAMPLES[needs]}")
        for key in _EXAMPLES:
            if key != needs and getattr(self, key):
                raise wrong(f"{key} has no effect on kind {self.kind!r}; leave it out")
        if self.radix is not None and self.radix % 2:
            raise wrong(f"expected an even radix, half up and half down, got {self.radix}")
        if self.kind == "hierarchy":
            for key in EdgeCost.model_fields:
                if key in self.model_fields_set:
                    raise wrong(f"{key} has no effect on a hierarchy; give it in each level")
        return self


_NEEDS: Final = {"mesh": "shape", "torus": "shape", "fat-tree": "radix", "hierarchy": "levels"}
_EXAMPLES: Final = {
    "shape": "shape = [4, 4]",
    "radix": "radix = 4",
    "levels": "a table [[topology.levels]] with members = 8 for each level",
}


class HostPorts(Record):
    """Ports of the host limit all of its traffic.

    Args:
        egress_bytes_per_s: rate of all that it sends; None where it is infinite.
        ingress_bytes_per_s: rate of all that it receives; None where it is infinite.
        source: where the numbers come from; a file must say.
    """

    egress_bytes_per_s: Rate | None = None
    ingress_bytes_per_s: Rate | None = None
    source: Source | None = None

    @property
    def is_free(self) -> bool:
        """Tell whether it limits nothing."""
        return self.egress_bytes_per_s is None and self.ingress_bytes_per_s is None

    @model_validator(mode="after")
    def _check_rates(self) -> Self:
        if self.is_free and getattr(self, "host", None) is None:
            raise wrong("expected egress_bytes_per_s or ingress_bytes_per_s, got neither; add one")
        return self


class Ports(HostPorts):
    """Ports of a place limit all of its traffic, whichever ways it takes.

    Args:
        egress_bytes_per_s, ingress_bytes_per_s: of each worker.
        source: where these two come from; a file must say.
        host: the host's own; None where they are infinite.
    """

    host: HostPorts | None = None

    def rates(self, place: int) -> tuple[float | None, float | None]:
        """Bytes that a place may send and receive in a second."""
        own = self.host if place == HOST else self
        return (None, None) if own is None else (own.egress_bytes_per_s, own.ingress_bytes_per_s)


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


def fault_of_route(pair: tuple[int, int], workers: int, twin: int | None) -> str | None:
    """Say what is wrong with a route, if anything is."""
    for key, place in zip(("from", "to"), pair, strict=True):
        if place >= workers:
            return f"{key} must be a worker below {workers} or 'host', got {place}"
    if pair[0] == pair[1]:
        return f"from and to must differ, got {pair[0]} twice; messages within a worker are free"
    if twin is not None:
        return f"repeats from and to of links[{twin}]; keep one of the two"
    return None
