"""ZB-H1: 1F1B whose backward steps are split, so that weight gradients fill the bubble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.ir import Direction
from ampsim.model_parallel.schedules.pipeline import Draining
from ampsim.model_parallel.schedules.turns import (
    Admitted,
    Script,
    Turn,
    WorkerStages,
    one_stage_a_worker,
)
from ampsim.model_parallel.schedules.values import Order


@dataclass(frozen=True)
class ZeroBubbleH1(Draining):
    """Synchronous pipeline of m micro-batches; a `Linear` forms its weight gradient later.

    The stage before needs only the gradient of the input. Stage s of p forms a weight gradient s
    micro-batches after that, so that every stage stashes at most p activations, as the first does
    under `1f1b`, and the bubble is (p − 1)(f + b − w) instead of (p − 1)(f + b + w) for steps of f,
    b (input) and w (weight) seconds, w at most f, and m of at least p.

    Source: Qi et al., Zero Bubble Pipeline Parallelism (ICLR 2024), Section 2.2 and Table 1.

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    name: ClassVar[str] = "zb-h1"

    @property
    def order(self) -> Order:
        """Fixed turns."""
        return Order(turns=self._turns, splits_backward=True)

    def _turns(self, placed: WorkerStages, admitted: Admitted) -> Script:
        """Write down the order for each mini-batch.

        Raises:
            OptionError: a worker has several stages.
        """
        stage = one_stage_a_worker(self.name, placed)
        return Script(lambda size: _order(stage, placed.stages, size), admitted)


def _order(stage: int, stages: int, size: int) -> list[Turn]:
    """1F1B, with the weight gradient of each micro-batch `stage` backward steps later."""
    forward, backward = (Direction.FORWARD, stage), (Direction.BACKWARD, stage)
    weight = (Direction.BACKWARD, stages + stage)
    warm = min(stages - stage, size)
    steps: list[Turn] = [forward] * warm
    for micro in range(size):
        steps.append(backward)
        if micro >= stage:
            steps.append(weight)
        if micro + warm < size:
            steps.append(forward)
    return steps + [weight] * min(stage, size)
