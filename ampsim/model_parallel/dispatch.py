"""The dispatch lane: steps are issued beside the device, which so never waits if it has work.

A message that takes device time is issued first, in the order in which the worker would serve it:
the lane is busy for the device's `dispatch_s`, and the message then lies in the worker's inbox, or
waits for its turn. So a device whose steps are longer hides it, but for the first.
`docs/decisions/0014-lanes-and-the-host.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from ampsim.clock import Clock
from ampsim.ir import Direction
from ampsim.machine import Job, Lane, Processor
from ampsim.model_parallel.placed_node import Accept, Message
from ampsim.model_parallel.step import NO_STALENESS
from ampsim.trace import DISPATCH_LANE, Recorder


class DispatchLane(Lane):
    """What a worker's steps wait for before they are in its inbox.

    Args:
        processor: the lane's own.
        clock: whose time passes.
        kinds: directions, the most urgent first.
        dispatch_s: what it takes to issue a step.
        recorder: takes a record of each.
    """

    __slots__ = ("_dispatch_s", "_recorder")

    def __init__(
        self,
        processor: Processor,
        clock: Clock,
        kinds: Sequence[Direction],
        dispatch_s: float,
        recorder: Recorder,
    ) -> None:
        super().__init__(processor, clock, kinds)
        self._dispatch_s, self._recorder = dispatch_s, recorder

    def acceptor(self, accept: Accept, direction: Direction, wakes: Processor | None) -> Accept:
        """Return who issues the messages of `direction` that `accept` takes afterwards.

        Args:
            accept: the inbox.
            direction: of the messages.
            wakes: the processor that is told of them; None where `accept` sees to that.
        """

        def issue(message: Message) -> None:
            def done(start_s: float) -> None:
                accept(self._issued(message, direction, start_s))
                if wakes is not None:
                    wakes.wake()

            self.add(Job(self._dispatch_s, done), direction)

        return issue

    def _issued(self, message: Message, direction: Direction, start_s: float) -> Message:
        """Record that a message was issued, which is from then on its cause."""
        placed, port, state, payload, cause = message
        recorder = self._recorder
        key = (self.processor.index, placed.index, direction, 0, 0, 0)
        kind = recorder.kinds.number(key, DISPATCH_LANE)
        recorder.spans.append((kind, start_s, self._clock.now, NO_STALENESS, state, cause))
        return (placed, port, state, payload, recorder.span_number())
