"""What a loss is: the node where a message turns around and becomes a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import Node


@dataclass(frozen=True, slots=True)
class LossReport:
    """What a loss says of one step.

    Args:
        loss_sum: the loss, summed over rows.
        correct: rows that were right; None where right or wrong is not the question.
        rows: how many rows there were.
        absolute_error: of a regression, summed over rows.
    """

    loss_sum: float
    correct: int | None
    rows: int
    absolute_error: float | None = None


class LossNode(Node):
    """Computes a loss and metrics, and starts the backward pass (design, section 4).

    It has no output: in training, what `forward` returns goes to its *inputs*. Each completed step
    leaves a `LossReport` in `report`, for the controller to take (None in `sleep` mode), and the
    prediction in `completed`, which says that the step was no mere waiting and what it cost.
    """

    outputs = ()
    is_loss: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        """Name the node."""
        super().__init__(name)
        self.report: LossReport | None = None
        self.completed: Payload = None

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Nothing comes back to a loss."""
        raise AssertionError("a loss has no outputs")
