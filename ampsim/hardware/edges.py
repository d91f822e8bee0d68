"""The edges of each shape that a topology may have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ampsim.hardware.topology import Edge, EdgeCost, Topology

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
    """Edges that all cost the same."""
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
