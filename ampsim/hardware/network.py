"""A network: places joined by edges, and the way that a message takes over them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import networkx as nx

from ampsim.hardware.topology import HOST, Edge, Junction, Topology


class Share(NamedTuple):
    """Bandwidth that a way takes a share of.

    Args:
        of: whose it is: equal for all ways that share it.
        bytes_per_s: the rate that all of them have together.
    """

    of: tuple[int | str, ...]
    bytes_per_s: float


class Way(NamedTuple):
    """What a message from one place to another crosses.

    Args:
        latency_s: the sum over its edges.
        shares: the bandwidths that it needs, all at once; none where they are infinite.
    """

    latency_s: float
    shares: tuple[Share, ...]

    @property
    def is_free(self) -> bool:
        """Whether every message arrives at the moment it is sent."""
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
        """Whether an edge leads to the host."""
        return HOST in self.places

    @property
    def is_free(self) -> bool:
        """Whether no edge takes time."""
        return all(edge.is_free for edge in self.edges)

    def route(self, source: Junction, target: Junction) -> list[Junction]:
        """The places on the way from one to another, both included."""
        if self._spreads:
            return self._spread(source, target)
        if source not in self._ways:
            self._ways[source] = nx.single_source_shortest_path(self._graph, source)
        return self._ways[source][target]

    def way(self, source: int, target: int) -> Way:
        """What a message from one place to another crosses."""
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
        """Note an edge, or say what is wrong with it."""
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
    """The two places as a file names them."""
    return str(["host" if place == HOST else place for place in edge.between])


def _kind(place: Junction) -> str:
    return "switch" if isinstance(place, str) else "worker"
