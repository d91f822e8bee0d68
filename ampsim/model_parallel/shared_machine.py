"""A machine on which several copies of a network run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ampsim.ir import ParameterizedNode
from ampsim.machine import Fabric, Instant
from ampsim.model_parallel.placed_node import Accept
from ampsim.model_parallel.price import WorkOf
from ampsim.model_parallel.update import Applies
from ampsim.model_parallel.worker_memories import WorkerMemories


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """What an assembly has in common with others on the same machine, and what is its own there.

    Args:
        instant: what is done at once.
        fabric, memories: the links, and the memories of all workers.
        workers, updater: those that are its own, and what applies gradients there.
        work_of: what steps of a node with parameters cost, as of `Asked`.
        accept_update: takes the update messages that nodes send themselves; None to serve them.
        is_stoppable: whether a pass may be called off.
    """

    instant: Instant
    fabric: Fabric
    memories: WorkerMemories
    workers: range
    updater: Applies
    work_of: Callable[[ParameterizedNode, WorkOf], WorkOf] | None = None
    accept_update: Accept | None = None
    is_stoppable: bool = False
