"""The host at work: what the controller takes and sends, where that takes the host time.

Taking back a message, letting in an instance and sending an update are a step of the host each. It
lasts the host's `step_overhead_s`, and its `message_overhead_s` for each message that it takes or
sends. What the controller decides, it decides when the message that it waited for has been taken;
what it sends leaves when the host has come to it. `docs/decisions/0014-lanes-and-the-host.md` has
the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ampsim.clock import Clock
from ampsim.hardware import HOST, Device
from ampsim.ir import Direction, Sends, State
from ampsim.machine import Job, Lane, Processor
from ampsim.model_parallel.controller import BY_CONTROLLER
from ampsim.model_parallel.placed_node import Accept, Message, Routes, send
from ampsim.model_parallel.step import NO_STALENESS
from ampsim.trace import Cause, Recorder

_CONTROLLER = 0  # the controller's place among the nodes of a graph


class HostLane(Lane):
    """The steps of the host, first come, first served.

    Args:
        processor: the host's own.
        clock: whose time passes.
        device: what the host is.
        recorder: takes a record of each step.
    """

    __slots__ = ("_device", "_kinds", "_recorder")

    def __init__(
        self, processor: Processor, clock: Clock, device: Device, recorder: Recorder
    ) -> None:
        super().__init__(processor, clock)
        self._device, self._recorder = device, recorder
        self._kinds = {
            direction: recorder.kinds.number((HOST, _CONTROLLER, direction, 0, 0, 0))
            for direction in Direction
        }

    def acceptor(self, take: Callable[[Message], None], direction: Direction) -> Accept:
        """Return who accepts messages of `direction` that `take`, of the controller, waits for."""

        def accept(message: Message) -> None:
            placed, port, state, payload, cause = message

            def taken(number: Cause) -> None:
                take((placed, port, state, payload, number))

            self._add(direction, state, cause, 1, taken)

        return accept

    def send(self, routes: Routes, source: int, sends: Sends, cause: Cause) -> None:
        """Send messages of one instance, or updates, when the host has come to it."""
        state = sends[0][1]
        direction = Direction.UPDATE if state is BY_CONTROLLER else Direction.FORWARD
        self._add(direction, state, cause, len(sends), partial(send, routes, source, sends))

    def _add(
        self,
        direction: Direction,
        state: State,
        cause: Cause,
        messages: int,
        then: Callable[[Cause], None],
    ) -> None:
        device, kind = self._device, self._kinds[direction]
        recorder, clock = self._recorder, self._clock

        def done(start_s: float) -> None:
            recorder.spans.append((kind, start_s, clock.now, NO_STALENESS, state, cause))
            then(recorder.span_number())

        self.add(Job(device.step_overhead_s + messages * device.message_overhead_s, done))
