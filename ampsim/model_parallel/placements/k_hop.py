"""k-hop colouring: heavy nodes near each other on different workers (paper, Section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ampsim.hardware import HOST
from ampsim.ir import Graph
from ampsim.model_parallel.placements.base import Situation, place_rest
from ampsim.options import require_count


@dataclass(frozen=True)
class KHop:
    """Greedy colouring of the heavy nodes, so that subsequent ones are on different workers.

    A hop leads from one heavy node to the next along the wires, in either direction, through any
    number of light nodes but not through the controller. Each heavy node, in the order of being
    added, takes the worker with the fewest heavy nodes within `hops`, of these the one with the
    fewest heavy nodes at all. Light nodes go to workers without heavy ones, or share with the node
    that feeds them.

    Args:
        hops: k (chosen: 2, so that both neighbours of a node differ from each other too).

    Raises:
        OptionError: k is below 1.

    Source: AMPNet, Section 3.1, which names the heuristic; it gives neither k nor an order.
    """

    hops: int = 2
    name: ClassVar[str] = "k-hop"

    def __post_init__(self) -> None:
        """Check the option."""
        require_count("hops of a k-hop placement", self.hops)

    @property
    def origin(self) -> dict[str, Any]:
        """The name, and k."""
        return {"name": self.name, "hops": self.hops}

    def place(self, situation: Situation) -> list[int]:
        """Place by distance; nothing is left to chance."""
        graph, workers = situation.graph, situation.cluster.workers
        placement = [HOST] * len(graph.nodes)
        counts = [0] * workers
        for node, near in heavy_within(graph, self.hops).items():
            rivals = [placement[other] for other in near]
            worker = min(range(workers), key=lambda w: (rivals.count(w), counts[w], w))
            placement[node] = worker
            counts[worker] += 1
        place_rest(graph, placement, workers)
        return placement


def heavy_within(graph: Graph, hops: int) -> dict[int, set[int]]:
    """Return, for each heavy node, the other heavy nodes at most `hops` away."""
    heavy = [graph.index(node) for node in graph.parameterized]
    direct = {node: _next_heavy(graph, node) for node in heavy}
    found: dict[int, set[int]] = {}
    for node in heavy:
        reached = {node}
        for _hop in range(hops):
            reached |= {other for one in reached for other in direct[one]}
        found[node] = reached - {node}
    return found


def _next_heavy(graph: Graph, start: int) -> set[int]:
    found: set[int] = set()
    seen, frontier = {start, 0}, [start]
    while frontier:
        index = frontier.pop()
        for neighbour, _port in [*graph.targets[index], *graph.sources[index]]:
            if neighbour in seen:
                continue
            seen.add(neighbour)
            if graph.nodes[neighbour].is_parameterized:
                found.add(neighbour)
            else:
                frontier.append(neighbour)
    return found
