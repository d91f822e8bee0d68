"""Losses end the forward pass, report what they measured, and start the backward pass."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ampsim.ir.message import Payload, Sends, State
from ampsim.ir.node import CachingNode


@dataclass(frozen=True, slots=True)
class LossReport:
    """A loss reports this of one step.

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


class Evaluated(NamedTuple):
    """A step of a loss that had all it needed.

    Args:
        prediction: what it was computed from; the step is charged for its shape.
        gradients: messages to the loss's *inputs*, in training.
        report: what the loss says; None in `sleep` mode.
    """

    prediction: Payload
    gradients: Sends
    report: LossReport | None


class LossNode(CachingNode):
    """Computes a loss and metrics, and starts the backward pass (design, section 4).

    It has no output: in training, what `forward` returns goes to its *inputs*. A loss of one's own
    has `evaluate`, of which `forward` is made.
    """

    outputs = ()
    is_loss: ClassVar[bool] = True

    @abstractmethod
    def evaluate(self, port: int, state: State, payload: Payload) -> Evaluated | None:
        """Serve a forward message; None where the state waits for another input."""

    def forward(self, port: int, state: State, payload: Payload) -> Sends:
        """Return the gradients, in training; nothing otherwise, or while the state waits."""
        evaluated = self.evaluate(port, state, payload)
        return () if evaluated is None or not self.is_training else evaluated.gradients

    def backward(self, port: int, state: State, gradient: Payload) -> Sends:
        """Nothing comes back to a loss."""
        raise AssertionError("a loss has no outputs")
