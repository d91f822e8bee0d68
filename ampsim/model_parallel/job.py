"""What an engine runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ampsim.ir import Graph
from ampsim.model_parallel.pump import Pump
from ampsim.optim import Optimizer


@dataclass(frozen=True, slots=True)
class Job:
    """What an engine runs.

    Args:
        graph: verified, its parameters initialised.
        pump: brings an instance into the graph.
        optimizer: for all parameterized nodes.
        min_update_interval: per parameterized node, what the model prefers.
    """

    graph: Graph
    pump: Pump
    optimizer: Optimizer
    min_update_interval: Callable[[str], int]
