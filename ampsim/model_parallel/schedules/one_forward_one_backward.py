"""1F1B, also called PipeDream-flush: GPipe's result with at most p activations a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.arguments import check_fields
from ampsim.ir import Direction
from ampsim.model_parallel.schedules.base import BACKWARD_FIRST, Plain
from ampsim.model_parallel.schedules.turns import (
    Ledger,
    OneForwardOneBackward,
    WorkerStages,
    one_stage_a_worker,
)
from ampsim.options import Count


@dataclass(frozen=True)
class OneFOneB(Plain):
    """Synchronous pipeline of m micro-batches; each stage alternates forward and backward.

    Stage s of p first serves p − s forwards, then one backward and one forward in turn, and holds
    at most p − s forwards whose backward has not run. A chain of p equal stages takes
    (m + p − 1)(f + b) seconds, as under GPipe. Nodes apply the mean gradient of the micro-batches.

    Source: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training (ICML 2021),
    Section 2.2; Efficient Large-Scale Language Model Training (SC 2021), Figure 4.

    Args:
        max_active_keys: m, the micro-batches of a mini-batch.

    Raises:
        OptionError: m is below 1.
    """

    max_active_keys: Count = 8
    name: ClassVar[str] = "1f1b"
    drains: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    order: ClassVar[tuple[Direction, ...]] = BACKWARD_FIRST
    holds_gradients: ClassVar[bool] = False
    needs_chain: ClassVar[bool] = True
    splits_backward: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the option."""
        check_fields(self)

    def update_interval(self, node: str, preferred: int) -> int | None:
        """The controller sends the updates when the mini-batch has drained."""
        return None

    def turns(self, placed: WorkerStages, ledger: Ledger) -> OneForwardOneBackward:
        """At most p − s forwards of stage s wait for their backward.

        Raises:
            OptionError: a worker has several stages.
        """
        stage = one_stage_a_worker(self.name, placed)
        return OneForwardOneBackward(stage, placed.stages - stage, ledger)

    def weights(self, stages: int, ledger: Ledger) -> None:
        """Every step reads the latest, which only change at the drain."""
