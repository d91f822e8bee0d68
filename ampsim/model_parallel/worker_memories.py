"""The memories of all workers, and what the parts of an engine hold of them."""

from __future__ import annotations

from ampsim.clock import Clock
from ampsim.hardware import Cluster
from ampsim.machine import Memory
from ampsim.model_parallel.footprint import STASHES, Footprint
from ampsim.model_parallel.placed_node import Memories, PlacedNode
from ampsim.trace import MEMORY_CATEGORIES


class WorkerMemories:
    """A memory for each worker, where somebody counts; the host's is not counted.

    Args:
        cluster: whose devices may name their capacity.
        clock: whose time passes.
        is_counting: whether anything is counted at all.

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
        """Where a message between two workers lies; None where nobody counts."""
        return (self.of(source), self.of(target)) if self.all else None

    def stash_of(self, worker: int) -> HeldStash | None:
        """A stash of weights on a worker; None where nobody counts."""
        memory = self.of(worker)
        return None if memory is None else HeldStash(memory)


class HeldStash:
    """What one node's stash of weights holds of its worker's memory.

    Args:
        memory: that of its worker.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._bytes = 0

    def hold(self, size_bytes: int) -> None:
        """Hold so many bytes from now on.

        Raises:
            OutOfMemoryError: there is no room.
        """
        before, self._bytes = self._bytes, size_bytes
        if size_bytes > before:
            self._memory.take(STASHES, size_bytes - before)
        else:
            self._memory.give(STASHES, before - size_bytes)


def split_footprint(first: PlacedNode, second: PlacedNode) -> None:
    """Let the second half of a backward step free what the forward step kept, where it counts."""
    if first.footprint is not None:
        first.footprint.frees = False
        second.footprint = Footprint(first.node, first.footprint.memory, first=first.footprint)
