"""Interleaved 1F1B: several stages a worker, and a bubble smaller by their number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from ampsim.errors import OptionError
from ampsim.ir import Direction
from ampsim.model_parallel.schedules.pipeline import Draining
from ampsim.model_parallel.schedules.turns import Admitted, Script, Turn, WorkerStages
from ampsim.model_parallel.schedules.values import Order


@dataclass(frozen=True)
class InterleavedOneFOneB(Draining):
    """Synchronous pipeline of m micro-batches over W workers with v stages each.

    Worker w has stages w, W + w, 2W + w and so on. It serves a stage for W micro-batches, then the
    next for the same, so that a worker idles W − 1 times for one stage's forward and backward
    instead of all of its stages': (W − 1)/v of what it would under `1f1b` with v stages in one.
    The price is a longer warm-up, with more activations, and more messages.

    m is best a multiple of W, as the source demands; other sizes run in the same order with gaps.
    With v = 1 it is `1f1b`, as in the published code.

    Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM (SC 2021), Section 2.2.2; the order is that of its published code.

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    name: ClassVar[str] = "1f1b-interleaved"

    @property
    def order(self) -> Order:
        """Fixed turns."""
        return Order(turns=self._turns)

    def _turns(self, placed: WorkerStages, admitted: Admitted) -> Script:
        """Write down the order for each mini-batch.

        Raises:
            OptionError: the stages cannot be dealt out evenly, or have not been.
        """
        workers = min(placed.workers, placed.stages)
        if (
            placed.own != tuple(range(placed.own[0], placed.stages, workers))
            or placed.stages % workers
        ):
            raise OptionError(
                f"{self.name} deals stages out in turn, equally many to each worker, got "
                f"{placed.stages} stages on {placed.workers} workers, one of them with stages "
                f"{placed.own_in_words}; {_remedy(placed.stages, workers)}"
            )
        return Script(lambda size: _order(placed.own, workers, size), admitted)


def _remedy(stages: int, workers: int) -> str:
    """Say how the stages are dealt out, whatever placement and workers there are."""
    if stages % workers:
        return f"take workers={stages} or a divisor of that, with the placement 'paper'"
    return (
        "take the placement 'paper', or, where nodes were added in another order than they follow "
        f"each other, a placement file in which stage s is on worker (s - 1) mod {workers}"
    )


def _order(own: tuple[int, ...], workers: int, size: int) -> list[Turn]:
    """Warm up with forwards, then alternate, then end with backwards."""
    forwards = [
        (Direction.FORWARD, micro, stage)
        for first in range(0, size, workers)
        for stage in own
        for micro in range(first, first + workers)
    ]
    backwards = [
        (Direction.BACKWARD, micro, stage)
        for first in range(0, size, workers)
        for stage in reversed(own)
        for micro in range(first, first + workers)
    ]
    behind = workers - own[0] - 1
    warm = behind if len(own) == 1 else 2 * behind + (len(own) - 1) * workers
    alternating = chain.from_iterable(zip(forwards[warm:], backwards, strict=False))
    rest = backwards[max(len(forwards) - warm, 0) :]
    steps = [*forwards[:warm], *alternating, *rest]
    return [(direction, stage) for direction, micro, stage in steps if micro < size]
