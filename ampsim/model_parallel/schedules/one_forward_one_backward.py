"""1F1B, also called PipeDream-flush: GPipe's result with at most p activations a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.model_parallel.schedules.pipeline import Draining
from ampsim.model_parallel.schedules.turns import one_forward_one_backward
from ampsim.model_parallel.schedules.values import Order


@dataclass(frozen=True)
class OneFOneB(Draining):
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

    name: ClassVar[str] = "1f1b"

    @property
    def order(self) -> Order:
        """Fixed turns: at most p − s forwards of stage s wait for their backward."""
        return Order(turns=one_forward_one_backward(self.name))
