"""Interleaved 1F1B: several stages a worker, and a bubble smaller by their number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from ampsim.errors import OptionError
from ampsim.ir import Direction
from ampsim.options import require_count
from ampsim.runtime.schedules.base import BACKWARD_FIRST, Plain
from ampsim.runtime.schedules.turns import Ledger, Post, Script, Turn


@dataclass(frozen=True)
class InterleavedOneFOneB(Plain):
    """Synchronous pipeline of m micro-batches over W workers with v stages each.

    Worker w has stages w, W + w, 2W + w and so on. It serves a stage for W micro-batches, then the
    next for the same, so that a worker idles W − 1 times for one stage's forward and backward
    instead of all of its stages': (W − 1)/v of what it would under `1f1b` with v stages in one.
    The price is a longer warm-up, with more activations, and more messages.

    m is best a multiple of W, as the source demands; other sizes run in the same order with gaps.

    Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM (SC 2021), Section 2.2.2; the order is that of its published code.

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    max_active_keys: int = 8
    name: ClassVar[str] = "1f1b-interleaved"
    drains: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    order: ClassVar[tuple[Direction, ...]] = BACKWARD_FIRST
    holds_gradients: ClassVar[bool] = False
    needs_chain: ClassVar[bool] = True
    splits_backward: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the option."""
        require_count("max_active_keys", self.max_active_keys)

    def update_interval(self, node: str, preferred: int) -> int | None:
        """The controller sends the updates when the mini-batch has drained."""
        return None

    def turns(self, post: Post, ledger: Ledger) -> Script:
        """Write down the order for each mini-batch.

        Raises:
            OptionError: the stages cannot be dealt out evenly, or have not been.
        """
        workers = min(post.workers, post.stages)
        if post.own != tuple(range(post.own[0], post.stages, workers)) or post.stages % workers:
            raise OptionError(
                f"{self.name} deals stages out in turn, equally many to each worker, got "
                f"{post.stages} stages on {post.workers} workers, one of them with stages "
                f"{', '.join(str(stage + 1) for stage in post.own)}; "
                f"take workers={post.stages} or a divisor of that"
            )
        return Script(lambda size: _order(post.own, workers, size), ledger)

    def weights(self, stages: int, ledger: Ledger) -> None:
        """Every step reads the latest, which only change at the drain."""


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
    warm = 2 * (workers - own[0] - 1) + (len(own) - 1) * workers
    alternating = chain.from_iterable(zip(forwards[warm:], backwards, strict=False))
    rest = backwards[max(len(forwards) - warm, 0) :]
    steps = [*forwards[:warm], *alternating, *rest]
    return [(direction, stage) for direction, micro, stage in steps if micro < size]
