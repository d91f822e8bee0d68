"""What a placement decides, what it may look at, and where it puts steps that cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ampsim.hardware import HOST, Cluster
from ampsim.ir import Graph
from ampsim.model_parallel.placements.probe import Probe

Trial: TypeAlias = Callable[[Sequence[int], float], float]
"""``trial(placement, enough_s)`` gives the seconds of an instance in steady training, in time alone
and by the schedule that is to be run; infinity where that cannot train so. It ends early, at a
value above `enough_s`, once that is clearly missed."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a placement may look at.

    Args:
        graph: verified; its first node is the controller.
        cluster: whose workers there are.
        generator: for what is left to chance.
        probe: what a few hundred instances cost and send, found out when first asked for; the same
            for every seed of a run.
        trial: how fast training is with a placement, tried; None where nothing can be tried.
    """

    graph: Graph
    cluster: Cluster
    generator: np.random.Generator
    probe: Callable[[], Probe]
    trial: Trial | None = None


class Placement(Protocol):
    """Decides which worker hosts which node (affinitization; paper, Section 3.1)."""

    @property
    def origin(self) -> dict[str, Any]:
        """Name and options, for a manifest."""
        ...

    def place(self, situation: Situation) -> list[int]:
        """Return a worker for each node, in the order of ``graph.nodes``.

        The controller's is -1: it lives on the host.
        """
        ...


@dataclass(frozen=True)
class Settled:
    """A placement that was found once, for runs with any seed.

    Args:
        workers: by node, all but the controller.
        origin: of the placement that found it.
    """

    workers: Mapping[str, int] = field(repr=False)
    origin: dict[str, Any]

    def place(self, situation: Situation) -> list[int]:
        """Place each node where it was found to go."""
        return [HOST, *(self.workers[node.name] for node in situation.graph.nodes[1:])]


def place_rest(graph: Graph, placement: list[int], workers: int) -> None:
    """Place the nodes that have no worker yet (-1), all of which cost nothing.

    They take turns on the workers that have no node. Where each has one, they share the worker of
    the node that feeds them.
    """
    idle = [worker for worker in range(workers) if worker not in set(placement)]
    if not idle:
        share_with_producers(graph, placement)
        return
    rest = [index for index in range(1, len(placement)) if placement[index] == HOST]
    for turn, index in enumerate(rest):
        placement[index] = idle[turn % len(idle)]


def share_with_producers(graph: Graph, placement: list[int]) -> None:
    """Walk along the wires from placed nodes; what none of them feeds goes to worker 0."""
    frontier = [index for index, worker in enumerate(placement) if worker >= 0]
    while frontier:
        following: list[int] = []
        for index in frontier:
            for target, _port in graph.targets[index]:
                if placement[target] < 0:
                    placement[target] = placement[index]
                    following.append(target)
        frontier = following
    for index in range(1, len(placement)):
        placement[index] = max(placement[index], 0)
