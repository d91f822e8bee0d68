"""The record that the ranks of one solver, and what they exchange with, have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Final

from ampsim.clock import Clock
from ampsim.data_parallel.batch_queue import BatchQueue, GroupQueue
from ampsim.data_parallel.decisions import Decisions
from ampsim.data_parallel.parameters import Parameters
from ampsim.data_parallel.solver import Solver
from ampsim.data_parallel.top_k import addition_of_entries, entry_bytes, kept_count, selection_work
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Direction, ParameterizedNode, Work
from ampsim.machine import Fabric, Instant
from ampsim.model_parallel import RunSettings
from ampsim.model_parallel.memories import WorkerMemories
from ampsim.model_parallel.price import Charge, WorkOf, required_work
from ampsim.trace import Recorder

CENTRE: Final = "centre"
"""The name of the weights that ranks share, in records of merges and exchanges."""

ELASTIC: Final = "elastic"
"""Kind of a `Charge` with counts: an update that steps, or has no gradient to step along (1 or 0),
and that pulls so many vectors towards others: the rank's, and the centre's where each rank has it.
"""

OUTER: Final = "outer"
"""Kind of a `Charge` with an optimizer's arrays and `Calls`: an update that is an outer step."""

SUM: Final = Charge("sum")
"""An update that only sums up the gradients which a server is sent: its step is the server's."""

NOTHING: Final = Charge("nothing")
"""An update of a node that holds no gradients, and has none to wait for."""

SELECTION: Final = "selection"
"""Kind of a `Charge` with the count k, and 1 where it also sums up, as `SUM`, else 0: an update
that only chooses k entries of a gradient."""

ADDITION: Final = "addition"
"""Kind of a `Charge` with counts P and k: an update that only adds up k entries of each of P ranks.
"""

ELASTIC_FLOP: Final = 3
"""A subtraction, a product and an addition for each parameter."""

ELASTIC_ARRAYS: Final = 3
"""Arrays of the parameters' size that a pull reads or writes: both weights, and the new ones."""

ELASTIC_PASSES: Final = 8
"""The same where each of its three operations does so for itself."""


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
        at_end: called with the time at which the run ends, to record what it cuts.
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
    at_end: list[Callable[[float], None]] = field(default_factory=list[Callable[[float], None]])

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

    def merge_work(self, place: int) -> Work:
        """The work of a server that merges what it was sent of one node."""
        node = self.nodes[place]
        if self.decisions.asks_first:
            return addition_work(node)
        if self.decisions.is_elastic:
            return elastic_work(node)
        own = required_work(node, Direction.UPDATE, None, node.work(Direction.UPDATE, None))
        work = sum_and_step(node, own)[1]
        if self.decisions.compression is not None:
            work += addition_of_entries(node, 1, self.kept_count(place))
        return work

    def shards(self, servers: int) -> list[list[int]]:
        """The vectors of each server: the largest first, to who has the fewest parameters.

        Raises:
            OptionError: there are more servers than nodes that learn.
        """
        count = len(self.nodes)
        if servers > count:
            raise OptionError(
                f"{self.solver.name}: each server needs a node that learns, got servers={servers} "
                f"and {count} node{'s' * (count != 1)}; take fewer servers"
            )
        sizes = [self.bytes_of(place) for place in range(count)]
        shards: list[list[int]] = [[] for _ in range(servers)]
        for place in sorted(range(count), key=lambda one: (-sizes[one], one)):
            least = min(range(servers), key=lambda one: (sum(sizes[p] for p in shards[one]), one))
            shards[least].append(place)
        return [sorted(shard) for shard in shards]


def elastic_work(node: ParameterizedNode) -> Work:
    """The work of pulling the parameters of a node towards others."""
    size_bytes = node.parameter_count * node.theta.itemsize
    flop, passed = ELASTIC_FLOP * node.parameter_count, ELASTIC_PASSES * size_bytes
    return Work(flop, ELASTIC_ARRAYS * size_bytes, ELASTIC_FLOP, pass_bytes=passed)


def addition_work(node: ParameterizedNode) -> Work:
    """The work of adding a vector to the parameters of a node."""
    size_bytes = node.parameter_count * node.theta.itemsize
    moved = ELASTIC_ARRAYS * size_bytes
    return Work(node.parameter_count, moved, 1, pass_bytes=moved)


def outer_work(node: ParameterizedNode, counts: tuple[int, ...]) -> Work:
    """The work of a step from the centre along its difference to the mean of all ranks' weights.

    Args:
        node: whose parameters they are; of its own update, in which nothing is predicted, it has
            the FLOP beside those of the difference.
        counts: of an `OUTER` charge.
    """
    arrays, operations, passes, functions = counts
    count = node.parameter_count
    size_bytes = count * node.theta.itemsize
    moved, passed = (3 + 2 * arrays) * size_bytes, (3 + passes) * size_bytes
    flop = node.work(Direction.UPDATE, None).flop
    return Work(flop + count, moved, 1 + operations, 0, passed, functions * count)


def sum_and_step(node: ParameterizedNode, own: Work) -> tuple[Work, Work]:
    """The work of an update in two: summing up the gradients of messages, and a step along the sum.

    The sum is written where it arrives; so all bytes are the step's.
    """
    operations = min(own.operations, node.step_calls.operations)
    return Work(operations=own.operations - operations), replace(own, operations=operations)


def work_in_rank(node: ParameterizedNode, of: WorkOf, charge: Charge) -> Work:
    """The work of an update of a node in a rank, by what an update does alone and its charge."""
    own, counts = of(Direction.UPDATE, None), charge.counts
    if charge.kind == ELASTIC:
        steps, pulls = counts
        return reduce(add, [elastic_work(node)] * pulls, own if steps else Work(operations=0))
    if charge.kind == OUTER:
        return outer_work(node, counts)
    if charge == SUM:
        return sum_and_step(node, own)[0]
    if charge.kind == SELECTION:
        count, sums = counts
        selected = selection_work(node, count)
        return selected + sum_and_step(node, own)[0] if sums else selected
    if charge.kind == ADDITION:
        return addition_of_entries(node, *counts)
    assert charge == NOTHING, f"no update is charged for {charge}"
    return Work()
