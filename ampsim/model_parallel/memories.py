"""Memories of workers, shared by the models on them, and their peaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ampsim.clock import Clock
from ampsim.hardware import Cluster
from ampsim.ir import ParameterizedNode, Work
from ampsim.machine import Fabric, Instant, Memory
from ampsim.model_parallel.job import RunSettings
from ampsim.model_parallel.placed_node import Accept, Memories, PlacedNode
from ampsim.model_parallel.price import Charge, WorkOf
from ampsim.model_parallel.update import Applies
from ampsim.trace import MEMORY_CATEGORIES, Recorder


class WorkerMemories:
    """A memory for each worker, where somebody counts; the host's is not counted.

    Attributes:
        all: the memories, by worker; none where nobody counts.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, is_counting: bool) -> None:
        self.all = [
            Memory(f"worker {index} ({device.name})", MEMORY_CATEGORIES, clock, device.memory_bytes)
            for index, device in enumerate(cluster.devices if is_counting else ())
        ]

    def of(self, worker: int) -> Memory | None:
        """The memory of a worker; None for the host's, or where nobody counts."""
        return self.all[worker] if self.all and worker >= 0 else None

    def between(self, source: int, target: int) -> Memories | None:
        """Return the memories of a message's two ends; None where nobody counts."""
        return (self.of(source), self.of(target)) if self.all else None


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """The machine that an assembly shares with others, and its own part of it.

    Args:
        instant: what is done at once.
        fabric, memories: the links, and the memories of all workers.
        workers, updater: those that are its own, and what applies gradients there.
        work_of: what an update does that has a `Charge`, by the node, what its steps do otherwise,
            and the charge; None where none has.
        accept_update: takes the update messages that nodes send themselves; None to serve them.
        is_stoppable: whether a pass may be called off.
        updates_by_itself: whether no order of the host's has to come before an update.
    """

    instant: Instant
    fabric: Fabric
    memories: WorkerMemories
    workers: range
    updater: Applies
    work_of: Callable[[ParameterizedNode, WorkOf, Charge], Work] | None = None
    accept_update: Accept | None = None
    is_stoppable: bool = False
    updates_by_itself: bool = False


def own_machine(
    cluster: Cluster, settings: RunSettings, recorder: Recorder, updater: Applies
) -> SharedMachine:
    """The machine of what has a cluster to itself; gradients are applied by `updater`."""
    clock = settings.clock
    instant = Instant(clock)
    fabric = Fabric(cluster, clock, recorder, instant.settle, seed=settings.seed)
    is_counting = settings.counts_memory or cluster.offloads
    memories = WorkerMemories(cluster, clock, is_counting=is_counting)
    return SharedMachine(instant, fabric, memories, range(cluster.workers), updater)


def note_peaks(
    recorder: Recorder, memories: Sequence[Memory], placed_nodes: Iterable[PlacedNode]
) -> None:
    """Record the memories' history so far, and the most that each node held."""
    recorder.memory = [(worker, memory.timeline) for worker, memory in enumerate(memories)]
    held, stashed = recorder.summary.in_flight_max, recorder.summary.stashed_bytes_max
    for placed in placed_nodes:
        activations, stash = placed.steps.keeps, placed.steps.stash
        if activations is not None:
            place, kept = placed.index, 0 if stash is None else stash.bytes_max
            held[place] = max(held.get(place, 0), activations.held_max)
            stashed[place] = max(stashed.get(place, 0), kept)
