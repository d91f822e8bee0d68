"""The paper's placement (Section 3.1): heavy nodes take turns, light nodes go where nobody is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ampsim.ir import Graph
from ampsim.model_parallel.placements.base import Situation, share_with_producers


@dataclass(frozen=True)
class Paper:
    """The h-th heavy node on worker h mod W, light nodes at random over the rest."""

    name: ClassVar[str] = "paper"

    @property
    def origin(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}

    def place(self, situation: Situation) -> list[int]:
        """Place by order of being added, and by chance."""
        return paper_placement(situation.graph, situation.cluster.workers, situation.generator)


def paper_placement(graph: Graph, workers: int, generator: np.random.Generator) -> list[int]:
    """Place the h-th heavy node on worker h mod W, light nodes at random over the rest.

    Heavy are the nodes with parameters ("all parameterized operations are affinitized on
    individual workers", Appendix B.2). Where heavy nodes take every worker there is no rest; each
    light node then shares the worker of the node that feeds it, as a stage of a pipeline would.

    Returns:
        A worker for each node, in the order of ``graph.nodes``; -1 for the controller, which lives
        on the host.
    """
    placement = [-1] * len(graph.nodes)
    for h, node in enumerate(graph.parameterized):
        placement[graph.index(node)] = h % workers
    rest = range(len(graph.parameterized), workers)
    if rest:
        for index in range(1, len(placement)):
            if placement[index] < 0:
                placement[index] = int(generator.integers(rest.start, rest.stop))
    else:
        share_with_producers(graph, placement)
    return placement
