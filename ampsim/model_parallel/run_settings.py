"""How a run is made, whatever method trains in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ampsim.clock import Clock, SimClock
from ampsim.ir import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What all parts of one run know of it beside the model, the cluster and the method.

    Args:
        clock: whose time passes; a new virtual clock unless given.
        is_abstract: `sleep` mode: shapes instead of numbers.
        counts_memory: whether what lies in the workers' memories is counted.
        seed: of what varies on the cluster; None for a run in which nothing does.
        times_validation: whether validation takes its time on the cluster; under a solver it never
            does.
        spans_kept: how many records of each kind to keep, from the first; None for all.
    """

    clock: Clock = field(default_factory=SimClock)
    is_abstract: bool = False
    counts_memory: bool = False
    seed: int | None = None
    times_validation: bool = True
    spans_kept: int | None = None

    @classmethod
    def of_trial(cls, graph: Graph, spans_kept: int | None = None) -> RunSettings:
        """Those of a trial: in `sleep` mode, unless control flow reads values."""
        is_abstract = not any(node.reads_values for node in graph.nodes)
        return cls(is_abstract=is_abstract, spans_kept=spans_kept)
