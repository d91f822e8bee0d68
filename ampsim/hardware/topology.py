"""Links, routes and topologies: what a file says of the ways between workers, and the ways.

A topology has edges, by its shape; they make a network, in which messages take the shortest ways.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, cast

from pydantic import BeforeValidator, Field

from ampsim.hardware.record import Consistent, Rate, Seconds, Source, wrong
from ampsim.text import sequence, short
from ampsim.toml_file import Record

if TYPE_CHECKING:
    import networkx as nx


class Link(Record):
    """One direction between two workers; the default costs nothing.

    Args:
        latency_s: from the last byte sent to the message's arrival; it occupies nothing.
        bandwidth_bytes_per_s: rate at which bytes enter, one message after the other; None where
            it is infinite.
        source: where the numbers come from; a file must say.
    """

    IN_PYTHON: ClassVar = "an ampsim.Link, such as ampsim.Link(latency_s=1e-6)"

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


def place_name(place: int | str) -> str:
    """The name of a place: a worker's number, or "host"."""
    return "host" if place == HOST else str(place)


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
    places = sequence(value)
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


def as_tuple(value: Any) -> Any:
    """A list as a tuple; anything else as it is, which is checked then."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


class EdgeCost(Link):
    """The cost of crossing an edge; all messages that cross it share its bandwidth.

    Args:
        latency_s, bandwidth_bytes_per_s, source: as of `Link`.
        duplex: whether each direction has this bandwidth for itself, or both share it.
    """

    duplex: Duplex = "full"


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


class Topology(EdgeCost, Consistent):
    """The edges between all workers, by the name of their shape.

    Args:
        kind: the shape.
        shape: workers along each dimension of a mesh or torus; their product is all workers.
        radix: ports of each switch of a fat tree, an even number.
        levels: of a hierarchy, from the devices up; the product of their members is all workers.
    """

    kind: Kind
    shape: Annotated[
        tuple[_Extent, ...], Field(max_length=DIMENSIONS_MAX), BeforeValidator(as_tuple)
    ] = ()
    radix: Annotated[int, Field(ge=2, le=RADIX_MAX)] | None = None
    levels: Annotated[
        tuple[Level, ...], Field(max_length=DIMENSIONS_MAX), BeforeValidator(as_tuple)
    ] = ()

    def _faults(self) -> Iterator[str]:
        """Each shape has the keys that it needs, and no other."""
        needs = _NEEDS.get(self.kind)
        if needs is not None and not getattr(self, needs):
            yield f"missing key {needs!r} of a {self.kind}; add {_EXAMPLES[needs]}"
        for key in _EXAMPLES:
            if key != needs and getattr(self, key):
                yield f"{key} has no effect on kind {self.kind!r}; leave it out"
        if self.radix is not None and self.radix % 2:
            yield f"expected an even radix, half up and half down, got {self.radix}"
        for key in EdgeCost.model_fields if self.kind == "hierarchy" else ():
            if key in self.model_fields_set:
                yield f"{key} has no effect on a hierarchy; give it in each level"


_NEEDS: Final = {"mesh": "shape", "torus": "shape", "fat-tree": "radix", "hierarchy": "levels"}
_EXAMPLES: Final = {
    "shape": "shape = [4, 4]",
    "radix": "radix = 4",
    "levels": "a table [[topology.levels]] with members = 8 for each level",
}


class HostPorts(Consistent):
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

    def _faults(self) -> Iterator[str]:
        if self.is_free and getattr(self, "host", None) is None:
            yield "expected egress_bytes_per_s or ingress_bytes_per_s, got neither; add one"


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


def faults_of_route(pair: tuple[int, int], workers: int, twin: int | None) -> Iterator[str]:
    """Say what is wrong with a route, if anything is."""
    for key, place in zip(("from", "to"), pair, strict=True):
        if place >= workers:
            yield f"{key} must be a worker below {workers} or 'host', got {place}"
    if pair[0] == pair[1]:
        name = place_name(pair[0])
        yield f"from and to must differ, got {name} twice; messages within a worker are free"
    if twin is not None:
        yield f"repeats from and to of links[{twin}]; keep one of the two"


class Share(NamedTuple):
    """Bandwidth that a way takes a share of.

    Args:
        of: whose it is: equal for all ways that share it.
        bytes_per_s: the rate that all of them have together.
    """

    of: tuple[int | str, ...]
    bytes_per_s: float


class Way(NamedTuple):
    """A way that a message takes from one place to another.

    Args:
        latency_s: the sum over its edges.
        shares: the bandwidths that it needs, all at once; none where they are infinite.
    """

    latency_s: float
    shares: tuple[Share, ...]

    @property
    def is_free(self) -> bool:
        """Tell whether every message arrives at the moment it is sent."""
        return self.latency_s == 0 and not self.shares

    @property
    def narrowest_bytes_per_s(self) -> float | None:
        """The rate of a message that meets no other; None where it is infinite."""
        return min((share.bytes_per_s for share in self.shares), default=None)


class Network:
    """The edges of a cluster.

    A message takes a way of fewest edges; of several, the first in the order of places: workers by
    index, the host, switches as the edges name them. In a fat tree they are taken in turn instead,
    by the target's index, so that all its switches carry traffic.

    Args:
        workers: count of workers.
        edges: at most one between any two places.
        topology: whose shape the edges have; None where they are listed one by one.

    Raises:
        ValueError: an edge leads nowhere or is there twice, or a place cannot be reached; the text
            says which.
    """

    def __init__(self, workers: int, edges: Sequence[Edge], topology: Topology | None) -> None:
        self.workers, self.edges = workers, tuple(edges)
        self._spreads = topology is not None and topology.kind == "fat-tree"
        self._number: dict[frozenset[Junction], int] = {}
        for number, edge in enumerate(self.edges):
            self._add(number, edge)
        self._ways: dict[Junction, dict[Junction, list[Junction]]] = {}
        self._check_connected()

    @cached_property
    def places(self) -> tuple[Junction, ...]:
        """The places in their order; the host is one where an edge leads there."""
        named = dict.fromkeys(place for edge in self.edges for place in edge.between)
        host = [HOST] if HOST in named else []
        return (*range(self.workers), *host, *(one for one in named if isinstance(one, str)))

    @property
    def has_host(self) -> bool:
        """Tell whether an edge leads to the host."""
        return HOST in self.places

    @property
    def is_free(self) -> bool:
        """Tell whether no edge takes time."""
        return all(edge.is_free for edge in self.edges)

    def route(self, source: Junction, target: Junction) -> list[Junction]:
        """The places on the way from one to another, both included."""
        if self._spreads:
            return self._spread(source, target)
        if source not in self._ways:
            import networkx as nx

            self._ways[source] = nx.single_source_shortest_path(self._graph, source)
        return self._ways[source][target]

    def way(self, source: int, target: int) -> Way:
        """Find the way of a message from one place to another."""
        places = self.route(source, target)
        latency_s, shares = 0.0, list[Share]()
        for here, there in pairwise(places):
            number = self._number[frozenset((here, there))]
            edge = self.edges[number]
            latency_s += edge.latency_s
            if edge.bandwidth_bytes_per_s is not None:
                is_back = edge.duplex == "full" and edge.between[0] != here
                of = (*edge.between[::-1], "edge") if is_back else (*edge.between, "edge")
                shares.append(Share(of, edge.bandwidth_bytes_per_s))
        return Way(latency_s, tuple(shares))

    def _add(self, number: int, edge: Edge) -> None:
        named = ["host" if place == HOST else place for place in edge.between]
        told = f"edges: between = {named} must"
        for place in edge.between:
            if isinstance(place, int) and place >= self.workers:
                raise ValueError(
                    f"{told} name workers below {self.workers}, 'host' or switches; got {place}"
                )
        if edge.between[0] == edge.between[1]:
            raise ValueError(f"{told} name two places; got one of them twice")
        if self._number.setdefault(frozenset(edge.between), number) != number:
            raise ValueError(f"{told} be there once; an edge joins these two already")

    def _check_connected(self) -> None:
        """Every place can be reached from worker 0."""
        import networkx as nx

        reached = nx.node_connected_component(self._graph, 0)
        for place in self.places:
            if place not in reached:
                kind = "switch" if isinstance(place, str) else "worker"
                name = "the host" if place == HOST else f"{kind} {place}"
                raise ValueError(
                    f"edges: expected a way from worker 0 to every place, got none to {name}; "
                    "add an edge"
                )

    @cached_property
    def _graph(self) -> nx.Graph[Junction]:
        """The graph, the neighbours of each place in the order of places."""
        import networkx as nx

        graph: nx.Graph[Junction] = nx.Graph()
        graph.add_nodes_from(self.places)
        order = {place: rank for rank, place in enumerate(self.places)}
        ranks = sorted(sorted(order[place] for place in edge.between) for edge in self.edges)
        graph.add_edges_from((self.places[one], self.places[other]) for one, other in ranks)
        return graph

    def _spread(self, source: Junction, target: Junction) -> list[Junction]:
        """One of the shortest ways, another one for the next target."""
        import networkx as nx

        order = {place: rank for rank, place in enumerate(self.places)}
        ways = sorted(
            nx.all_shortest_paths(self._graph, source, target),
            key=lambda way: [order[place] for place in way],
        )
        return ways[order[target] % len(ways)]


EDGES_MAX: Final = 100_000
"""Most edges that a topology may have; chosen: more take longer to build than a run does."""

_Pairs = Iterator[tuple[Junction, Junction, EdgeCost]]
"""Two places each, and what crossing from one to the other costs."""


def edges_of(topology: Topology, workers: int) -> tuple[Edge, ...]:
    """The edges of a topology of so many workers.

    Raises:
        ValueError: it does not fit the workers; the text says why.
    """
    for fault in _misfits(topology, workers):
        raise ValueError(fault)
    made = itertools.islice(_PAIRS[topology.kind](topology, workers), EDGES_MAX + 1)
    edges = tuple(
        Edge(between=(one, other), **{key: getattr(wire, key) for key in EdgeCost.model_fields})
        for one, other, wire in made
    )
    if len(edges) > EDGES_MAX:
        raise ValueError(
            f"expected at most {EDGES_MAX} edges, got more with {workers} workers; take fewer "
            "workers, or a star or hierarchy"
        )
    return edges


def _misfits(topology: Topology, workers: int) -> Iterator[str]:
    """Say why so many workers do not fit a topology, if they do not."""
    kind, radix = topology.kind, topology.radix
    counts = topology.shape or tuple(level.members for level in topology.levels)
    if counts and math.prod(counts) != workers:
        what = "extents of shape" if topology.shape else "members of levels"
        product = " x ".join(map(str, counts))
        yield (
            f"expected {what} whose product is {workers}, the count of workers, got {product} = "
            f"{math.prod(counts)}; change one of the two"
        )
    if radix is not None and workers > radix**3 // 4:
        yield (
            f"expected at most {radix**3 // 4} workers in a {kind} of radix {radix}, got "
            f"{workers}; take a larger radix"
        )


def _fully_connected(topology: Topology, workers: int) -> _Pairs:
    return ((*pair, topology) for pair in itertools.combinations(range(workers), 2))


def _ring(topology: Topology, workers: int) -> _Pairs:
    for pair in itertools.pairwise(range(workers)):
        yield (*pair, topology)
    if workers > 2:
        yield (0, workers - 1, topology)


def _star(topology: Topology, workers: int) -> _Pairs:
    return ((worker, "hub", topology) for worker in range(workers))


def _mesh(topology: Topology, workers: int) -> _Pairs:
    """Workers are numbered row by row, the last dimension fastest."""
    shape = topology.shape
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for worker in range(workers):
        for stride, extent in zip(strides, shape, strict=True):
            place = worker // stride % extent
            if place + 1 < extent:
                yield (worker, worker + stride, topology)
            elif topology.kind == "torus" and extent > 2:  # of two, the edge is there already
                yield (worker - place * stride, worker, topology)


def _fat_tree(topology: Topology, workers: int) -> _Pairs:
    """Three tiers of equal switches: half the ports of each lead down, half up.

    Source: Al-Fares, Loukissas and Vahdat, A scalable, commodity data center network architecture
    (SIGCOMM 2008).
    """
    half = (topology.radix or 0) // 2
    pods = -(-workers // half**2)
    for worker in range(workers):
        pod, place = divmod(worker, half**2)
        yield (worker, f"edge-{pod}-{place // half}", topology)
    for pod, low, high in itertools.product(range(pods), range(half), range(half)):
        if pod * half**2 + low * half < workers:
            yield (f"edge-{pod}-{low}", f"aggregation-{pod}-{high}", topology)
    for pod, high, core in itertools.product(range(pods), range(half), range(half)):
        if pods > 1:
            yield (f"aggregation-{pod}-{high}", f"core-{high * half + core}", topology)


def _hierarchy(topology: Topology, workers: int) -> _Pairs:
    """A switch for so many workers, one for so many of these, up to one for all."""
    below: list[int | str] = list(range(workers))
    for number, level in enumerate(topology.levels):
        for index, place in enumerate(below):
            yield (place, f"level-{number}-{index // level.members}", level)
        below = [f"level-{number}-{index}" for index in range(len(below) // level.members)]


_PAIRS: Final[dict[str, Callable[[Topology, int], _Pairs]]] = {
    "fully-connected": _fully_connected,
    "ring": _ring,
    "star": _star,
    "mesh": _mesh,
    "torus": _mesh,
    "fat-tree": _fat_tree,
    "hierarchy": _hierarchy,
}
