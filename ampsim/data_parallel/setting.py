"""The record that the ranks of one solver, and what they exchange with, have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.clock import Clock
from ampsim.data_parallel.batch_queue import BatchQueue, GroupQueue
from ampsim.data_parallel.parameters import Parameters
from ampsim.data_parallel.solver import Decisions, Solver
from ampsim.data_parallel.top_k import addition_of_entries, entry_bytes, kept_count, selection_work
from ampsim.hardware import Cluster
from ampsim.ir import Direction, ParameterizedNode, Work
from ampsim.machine import Fabric, Instant
from ampsim.model_parallel import RunSettings
from ampsim.model_parallel.memories import WorkerMemories
from ampsim.model_parallel.price import Charge, WorkOf
from ampsim.trace import Recorder

CENTRE: Final = "centre"
"""The name of the weights that ranks share, in records of merges and exchanges."""

ELASTIC: Final = Charge("elastic")
"""An update that also pulls towards the centre."""

PULL: Final = Charge("pull")
"""An update that pulls towards the centre alone: the rank has no gradient to step along."""

NOTHING: Final = Charge("nothing")
"""An update of a node that holds no gradients, and has none to wait for."""

SELECTION: Final = "selection"
"""Kind of a `Charge` with the count k: an update that only chooses k entries of a gradient."""

ADDITION: Final = "addition"
"""Kind of a `Charge` with counts P and k: an update that only adds up k entries of each of P ranks.
"""

ELASTIC_FLOP: Final = 3
"""A subtraction, a product and an addition for each parameter."""

ELASTIC_ARRAYS: Final = 3
"""Arrays of the parameters' size that a pull reads or writes: both weights, and the new ones."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The machine, the solver and the centre that ranks and exchanges have in common.

    Args:
        solver: the functions, and the schedule inside.
        decisions: what the solver decides.
        pull: alpha of elastic averaging.
        cluster, recorder, instant, fabric, memories: the machine.
        run: settings of the run.
        centre: the weights that ranks share.
        nodes: those that learn, in the order of `centre`.
        places: of these nodes in the graph.
        centre_place: of the centre, in records.
        batches: assigns batches to ranks.
        rate: learning rate at a time, in epochs.
        clock: whose time passes.
        is_abstract: whether no numbers are computed, as in `sleep` mode.
        steps_at_server: whether a server makes the steps, of gradients, here or around a group.
        level: how many solvers are around this one.
    """

    solver: Solver
    decisions: Decisions
    pull: float
    cluster: Cluster
    run: RunSettings
    recorder: Recorder
    instant: Instant
    fabric: Fabric
    memories: WorkerMemories
    centre: Parameters
    nodes: Sequence[ParameterizedNode]
    places: Sequence[int]
    centre_place: int
    batches: BatchQueue | GroupQueue
    rate: Callable[[float], float]
    clock: Clock
    is_abstract: bool
    steps_at_server: bool
    level: int = 0

    def bytes_of(self, place: int) -> int:
        """Size of the vector of one node."""
        node = self.nodes[place]
        return node.parameter_count * node.theta.itemsize

    def kept_count(self, place: int) -> int:
        """Count of the entries of one node's gradient that a rank sends, where it sends a share."""
        assert self.decisions.compression is not None
        return kept_count(self.decisions.compression, self.nodes[place].parameter_count)

    def sent_bytes_of(self, place: int) -> int:
        """Size of what a rank sends of one node."""
        if self.decisions.compression is None:
            return self.bytes_of(place)
        return self.kept_count(place) * entry_bytes(self.nodes[place])


def elastic_work(node: ParameterizedNode) -> Work:
    """The work of pulling the parameters of a node towards others."""
    size_bytes = node.parameter_count * node.theta.itemsize
    flop, moved = ELASTIC_FLOP * node.parameter_count, ELASTIC_ARRAYS * size_bytes
    return Work(flop, moved, ELASTIC_FLOP, pass_bytes=moved)


def addition_work(node: ParameterizedNode) -> Work:
    """The work of adding a vector to the parameters of a node."""
    size_bytes = node.parameter_count * node.theta.itemsize
    moved = ELASTIC_ARRAYS * size_bytes
    return Work(node.parameter_count, moved, 1, pass_bytes=moved)


def work_in_rank(node: ParameterizedNode, own: WorkOf, charge: Charge) -> Work:
    """The work of an update of a node in a rank, by what an update does alone and its charge."""
    if charge == ELASTIC:
        return own(Direction.UPDATE, None) + elastic_work(node)
    if charge == PULL:
        return elastic_work(node)
    if charge.kind == SELECTION:
        return selection_work(node, *charge.counts)
    if charge.kind == ADDITION:
        return addition_of_entries(node, *charge.counts)
    assert charge == NOTHING, f"no update is charged for {charge}"
    return Work()
