"""A worker whose pass can be called off: what is left of it then takes no time.

The step that occupies the device is cut short. All other steps of the pass are still served, so
that every node is as it was before and the controller learns that nothing is in flight any more,
but they cost nothing and are in no record, and what they send crosses no link
(`PlacedNode.leave_links`). What is on its way over a link arrives when it does.
"""

from __future__ import annotations

from collections import deque

from ampsim.ir import Direction, Sends
from ampsim.machine import Begun, StoppableProcessor
from ampsim.model_parallel.placed_node import Message
from ampsim.model_parallel.worker import Inbox, Shared, Worker
from ampsim.trace import NO_STALENESS

UPDATE, BACKWARD, FORWARD = Direction


class StoppableWorker(Worker):
    """A worker that can let go of a pass."""

    def __init__(self, processor: StoppableProcessor, inbox: Inbox, shared: Shared) -> None:
        super().__init__(processor, inbox, shared)
        self._device = processor
        self._is_off = False

    def call_off(self) -> None:
        """Cut its step short, and let all steps cost nothing until `resume`."""
        self._is_off = True
        self._device.cut_short()

    def resume(self) -> None:
        """Serve another pass, as any worker does."""
        self._is_off = False

    def begin(self, kind: Direction, queue: deque[Message]) -> Begun:
        """See `Worker`; a step of a pass that was called off takes no time."""
        seconds, task = super().begin(kind, queue)
        return (0.0 if self._is_off else seconds), task

    def end(self, task: Begun) -> None:
        """See `Worker`; of a pass that was called off, only the step that was cut short."""
        if not self._is_off:
            super().end(task)
            return
        seconds, (direction, message, served, start_s, kind) = task
        if seconds:
            dropped = (*served[:2], NO_STALENESS, *served[3:])
            super().end((seconds, (direction, message, dropped, start_s, kind)))
            return
        placed, sends, ended = message[0], served[0], served[4]
        if ended is not None and placed.footprint is not None:
            placed.footprint.settle(ended)
        self._pass_on(direction, message, sends)

    def do_free(self, now_s: float) -> None:
        """See `Worker`; without a record where the pass was called off."""
        if not self._is_off:
            super().do_free(now_s)
            return
        while self.free_backward or self.free_forward:
            direction = BACKWARD if self.free_backward else FORWARD
            message = (self.free_backward or self.free_forward).popleft()
            self._pass_on(direction, message, self.sends_of_free(direction, message))

    def _pass_on(self, direction: Direction, message: Message, sends: Sends) -> None:
        """Send on what a step returned that is in no record."""
        placed, _port, state, _payload, cause = message
        assert direction is not UPDATE, f"{placed.node.name} updates itself in a pass called off"
        self.send_on(placed, direction, state, sends, cause)
