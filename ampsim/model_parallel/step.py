"""A step of a node, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from ampsim.ir import LossReport, Payload, Sends, State
from ampsim.model_parallel.price import Charged, Needed
from ampsim.trace import NO_STALENESS

Ended: TypeAlias = "tuple[int, int, State]"
"""What the end of a step changes in memory: (bytes of messages that go, bytes of activations that
come, or go where negative, the state under which they are kept)."""

Step: TypeAlias = Callable[[int, State, Payload], Sends]
"""``step(port, state, payload)`` serves a message and returns what is to be sent."""


class StepResult(NamedTuple):
    """Messages and records that one step returns.

    Args:
        sends: what the step returned.
        charged: what it is charged for, as of `Prices`.
        staleness: of its gradient, in updates; `NO_STALENESS` where it brought none.
        report: what a loss says.
        ended: what its end changes in memory; None where nobody counts.
        needed: where it was to send gradients, as of `Prices`.
    """

    sends: Sends
    charged: Charged
    staleness: int = NO_STALENESS
    report: LossReport | None = None
    ended: Ended | None = None
    needed: Needed | None = None


PlainStepResult: TypeAlias = (
    "tuple[Sends, Charged, int, LossReport | None, Ended | None, Needed | None]"
)
"""A `StepResult` as a plain tuple: made and taken apart in a third of the time, once a step."""
