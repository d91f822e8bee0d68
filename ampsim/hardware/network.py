"""A network: places joined by edges, the edges of each shape, and the way that a message takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import networkx as nx

from ampsim.hardware.topology import HOST, Edge, EdgeCost, Junction, Topology


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
        """All places in their order; the host is one where an edge leads there."""
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
        told = f"edges: between = {_listed(edge)} must"
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
        reached = nx.node_connected_component(self._graph, 0)
        for place in self.places:
            if place not in reached:
                name = "the host" if place == HOST else f"{_kind(place)} {place}"
                raise ValueError(
                    f"edges: expected a way from worker 0 to every place, got none to {name}; "
                    "add an edge"
                )

    @cached_property
    def _graph(self) -> nx.Graph[Junction]:
        """The graph, the neighbours of each place in the order of places."""
        graph: nx.Graph[Junction] = nx.Graph()
        graph.add_nodes_from(self.places)
        order = {place: rank for rank, place in enumerate(self.places)}
        ranks = sorted(sorted(order[place] for place in edge.between) for edge in self.edges)
        graph.add_edges_from((self.places[one], self.places[other]) for one, other in ranks)
        return graph

    def _spread(self, source: Junction, target: Junction) -> list[Junction]:
        """One of the shortest ways, another one for the next target."""
        order = {place: rank for rank, place in enumerate(self.places)}
        ways = sorted(
            nx.all_shortest_paths(self._graph, source, target),
            key=lambda way: [order[place] for place in way],
        )
        return ways[order[target] % len(ways)]


def _listed(edge: Edge) -> str:
    return str(["host" if place == HOST else place for place in edge.between])


def _kind(place: Junction) -> str:
    return "switch" if isinstance(place, str) else "worker"


EDGES_MAX: Final = 100_000
"""Most edges that a topology may have; chosen: more take longer to build than a run does."""

Pair = tuple[int | str, int | str]


def edges_of(topology: Topology, workers: int) -> tuple[Edge, ...]:
    """The edges of a topology of so many workers.

    Raises:
        ValueError: it does not fit the workers; the text says why.
    """
    fault = _misfit(topology, workers)
    if fault:
        raise ValueError(fault)
    made = _hierarchy(topology, workers) if topology.levels else _alike(topology, workers)
    edges = tuple(itertools.islice(made, EDGES_MAX + 1))
    if len(edges) > EDGES_MAX:
        raise ValueError(
            f"expected at most {EDGES_MAX} edges, got more with {workers} workers; take fewer "
            "workers, or a star or hierarchy"
        )
    return edges


def _alike(topology: Topology, workers: int) -> Iterator[Edge]:
    cost = {key: getattr(topology, key) for key in EdgeCost.model_fields}
    for between in _PAIRS[topology.kind](topology, workers):
        yield Edge(between=between, **cost)


def _misfit(topology: Topology, workers: int) -> str | None:
    """Why so many workers do not fit a topology, if they do not."""
    kind, radix = topology.kind, topology.radix
    counts = topology.shape or tuple(level.members for level in topology.levels)
    if counts and math.prod(counts) != workers:
        what = "extents of shape" if topology.shape else "members of levels"
        product = " x ".join(map(str, counts))
        return (
            f"expected {what} whose product is {workers}, the count of workers, got {product} = "
            f"{math.prod(counts)}; change one of the two"
        )
    if radix is not None and workers > radix**3 // 4:
        return (
            f"expected at most {radix**3 // 4} workers in a {kind} of radix {radix}, got "
            f"{workers}; take a larger radix"
        )
    return None


def _fully_connected(_topology: Topology, workers: int) -> Iterator[Pair]:
    return itertools.combinations(range(workers), 2)


def _ring(_topology: Topology, workers: int) -> Iterator[Pair]:
    yield from itertools.pairwise(range(workers))
    if workers > 2:
        yield (0, workers - 1)


def _star(_topology: Topology, workers: int) -> Iterator[Pair]:
    return ((worker, "hub") for worker in range(workers))


def _mesh(topology: Topology, workers: int) -> Iterator[Pair]:
    """Workers are numbered row by row, the last dimension fastest."""
    for worker in range(workers):
        for stride, extent in zip(_strides(topology.shape), topology.shape, strict=True):
            place = worker // stride % extent
            if place + 1 < extent:
                yield (worker, worker + stride)
            elif topology.kind == "torus" and extent > 2:  # of two, the edge is there already
                yield (worker - place * stride, worker)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _fat_tree(topology: Topology, workers: int) -> Iterator[Pair]:
    """Three tiers of equal switches: half the ports of each lead down, half up.

    Source: Al-Fares, Loukissas and Vahdat, A scalable, commodity data center network architecture
    (SIGCOMM 2008).
    """
    half = (topology.radix or 0) // 2
    pods = -(-workers // half**2)
    for worker in range(workers):
        pod, place = divmod(worker, half**2)
        yield (worker, f"edge-{pod}-{place // half}")
    for pod, low, high in itertools.product(range(pods), range(half), range(half)):
        if pod * half**2 + low * half < workers:
            yield (f"edge-{pod}-{low}", f"aggregation-{pod}-{high}")
    for pod, high, core in itertools.product(range(pods), range(half), range(half)):
        if pods > 1:
            yield (f"aggregation-{pod}-{high}", f"core-{high * half + core}")


_PAIRS: Final[dict[str, Callable[[Topology, int], Iterator[Pair]]]] = {
    "fully-connected": _fully_connected,
    "ring": _ring,
    "star": _star,
    "mesh": _mesh,
    "torus": _mesh,
    "fat-tree": _fat_tree,
}


def _hierarchy(topology: Topology, workers: int) -> Iterator[Edge]:
    """A switch for so many workers, one for so many of these, up to one for all."""
    below: list[int | str] = list(range(workers))
    for number, level in enumerate(topology.levels):
        cost = {key: getattr(level, key) for key in EdgeCost.model_fields}
        for index, place in enumerate(below):
            switch = f"level-{number}-{index // level.members}"
            yield Edge(between=(place, switch), **cost)
        below = [f"level-{number}-{index}" for index in range(len(below) // level.members)]
