"""What a run held of each worker's memory and of each node's activations, for the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ampsim.machine import Memory
from ampsim.model_parallel.placed_node import PlacedNode
from ampsim.trace import Recorder


def note_peaks(
    recorder: Recorder, memories: Sequence[Memory], placed_nodes: Iterable[PlacedNode]
) -> None:
    """Record the memories' history so far, and the most that each node held.

    Args:
        recorder: who writes it down.
        memories: of the workers, in their order; none where nobody counts.
        placed_nodes: of a graph, or of several copies of it, of which the largest counts.
    """
    recorder.memory = [
        (worker, *sample.bytes, sample.time_s)
        for worker, memory in enumerate(memories)
        for sample in memory.timeline
    ]
    held, stashed = recorder.summary.in_flight_max, recorder.summary.stashed_bytes_max
    for placed in placed_nodes:
        activations, stash = placed.steps.activations, placed.steps.stash
        if activations is not None:
            place, kept = placed.index, 0 if stash is None else stash.bytes_max
            held[place] = max(held.get(place, 0), activations.held_max)
            stashed[place] = max(stashed.get(place, 0), kept)
