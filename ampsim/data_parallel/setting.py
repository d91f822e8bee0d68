"""What the ranks, servers and meetings of one engine have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ampsim.clock import Clock
from ampsim.data_parallel.dealer import Deal, Deals
from ampsim.data_parallel.parameters import Parameters
from ampsim.data_parallel.solver import Solver
from ampsim.data_parallel.top_k import (
    addition_of_entries,
    entry_bytes,
    kept_count,
    selection_work,
)
from ampsim.hardware import Cluster
from ampsim.ir import Direction, ParameterizedNode, Work
from ampsim.machine import Fabric, Instant
from ampsim.model_parallel import RunSettings
from ampsim.model_parallel.price import Extents, WorkOf
from ampsim.model_parallel.worker_memories import WorkerMemories
from ampsim.trace import Cause, Recorder

CENTRE: Final = "centre"
"""What records call the weights that ranks share: merges and exchanges are of it."""

ELASTIC: Final = (-2,)
"""In place of a shape: an update that also pulls towards the centre."""

PULL: Final = (-3,)
"""The same, of an update that does nothing else: the rank has made its steps before."""

NOTHING: Final = (-4,)
"""In place of a shape: an update of a node that holds no gradients, and has none to wait for."""

SELECTION: Final = -5
"""First of a shape, before k: an update that only chooses k entries of a gradient."""

ADDITION: Final = -6
"""The same, before P and k: one that only adds up k entries of each of P ranks."""

ELASTIC_FLOP: Final = 3
"""A subtraction, a product and an addition for each parameter."""

ELASTIC_ARRAYS: Final = 3
"""Arrays of the parameters' size that a pull reads or writes: both weights, and the new ones."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all have in common.

    Args:
        solver: the decisions.
        pull: alpha of elastic averaging.
        cluster, recorder, instant, fabric, memories: the machine.
        run: settings of the run.
        centre: the weights that ranks share.
        nodes: those that learn, in the order of `centre`.
        places: of these nodes in the graph.
        centre_place: of the centre, in records.
        dealer: hands out batches.
        rate: learning rate at a time, in epochs.
        around: what a group has in common with others, where these are the ranks of a group.
    """

    solver: Solver
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
    dealer: Deals
    rate: Callable[[float], float]
    around: Setting | None = None

    @property
    def level(self) -> int:
        """How many solvers are around this one."""
        return 0 if self.around is None else 1 + self.around.level

    @property
    def is_pulled(self) -> bool:
        """Whether a step of a copy may pull it towards a centre."""
        return self.solver.is_elastic or (self.around is not None and self.around.is_pulled)

    @property
    def steps_at_server(self) -> bool:
        """Whether a server makes the steps, of gradients."""
        if self.around is not None:
            return self.around.steps_at_server
        return self.solver.meets == "server" and self.solver.sends == "gradient"

    @property
    def clock(self) -> Clock:
        """Whose time passes."""
        return self.run.clock

    @property
    def is_abstract(self) -> bool:
        """`sleep` mode."""
        return self.run.is_abstract

    def rate_of(self, deal: Deal) -> float:
        """The learning rate of a step with the gradient of a deal."""
        return self.rate(deal.at)

    def bytes_of(self, place: int) -> int:
        """Size of the vector of one node."""
        node = self.nodes[place]
        return node.parameter_count * node.theta.itemsize

    @property
    def share(self) -> float | None:
        """Of a gradient's entries, what a rank sends; None where all are sent as they are."""
        return self.solver.sent_share

    def kept_count(self, place: int) -> int:
        """How many entries of one node's gradient a rank sends, where it sends a share."""
        assert self.share is not None
        return kept_count(self.share, self.nodes[place].parameter_count)

    def sent_bytes_of(self, place: int) -> int:
        """Size of what a rank sends of one node."""
        if self.share is None:
            return self.bytes_of(place)
        return self.kept_count(place) * entry_bytes(self.nodes[place])

    def send(
        self, workers: tuple[int, int], size_bytes: int, cause: Cause, arrive: Callable[..., None]
    ) -> None:
        """Send so many bytes from one worker to another; at once, where the way is free."""
        channel = self.fabric.channel(*workers)
        if channel is None:
            arrive(cause)
        else:
            places = (self.centre_place, self.centre_place)
            channel.send(size_bytes, places, cause, arrive)


def elastic_work(node: ParameterizedNode) -> Work:
    """What pulling the parameters of a node towards others takes."""
    size_bytes = node.parameter_count * node.theta.itemsize
    flop, moved = ELASTIC_FLOP * node.parameter_count, ELASTIC_ARRAYS * size_bytes
    return Work(flop, moved, ELASTIC_FLOP, pass_bytes=moved)


def addition_work(node: ParameterizedNode) -> Work:
    """What adding a vector to the parameters of a node takes."""
    size_bytes = node.parameter_count * node.theta.itemsize
    moved = ELASTIC_ARRAYS * size_bytes
    return Work(node.parameter_count, moved, 1, pass_bytes=moved)


def work_in_rank(node: ParameterizedNode, own: WorkOf) -> WorkOf:
    """What steps of a node cost, by what they cost alone and what an update's shape says."""

    def work(direction: Direction, shape: Extents) -> Work:
        if direction is not Direction.UPDATE or shape is None:
            return own(direction, shape)
        if shape == ELASTIC:
            return own(direction, None) + elastic_work(node)
        if shape == PULL:
            return elastic_work(node)
        if shape[0] == SELECTION:
            return selection_work(node, *shape[1:])
        if shape[0] == ADDITION:
            return addition_of_entries(node, *shape[1:])
        return Work() if shape == NOTHING else own(direction, shape)

    return work
