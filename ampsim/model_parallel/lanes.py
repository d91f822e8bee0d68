"""Lanes of a device beside its compute lane, dispatch on its host, and the host itself at work.

A message that takes device time is issued first, in the order in which the worker would serve it:
the lane is busy for the device's `dispatch_s`, and the message then lies in the worker's inbox, or
waits for its turn. So a device whose steps are longer hides it, but for the first.

Taking back a message, letting in an instance and sending an update are a step of the host each. It
lasts the host's `step_overhead_s`, and its `message_overhead_s` for each message that it takes or
sends. What the controller decides, it decides when the message that it waited for has been taken;
what it sends leaves when the host has come to it. `docs/decisions/0014-lanes-and-the-host.md` has
the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ampsim.clock import Clock
from ampsim.errors import OptionError
from ampsim.hardware import HOST, Cluster, Device
from ampsim.ir import Direction, Node, Sends, State
from ampsim.machine import CopyLanes, Instant, Lane, LaneTask, Memory, Processor, RecordedLane
from ampsim.model_parallel.controller import BY_CONTROLLER
from ampsim.model_parallel.footprint import Footprint
from ampsim.model_parallel.placed_node import Accept, Message, PlacedNode, Routes, send
from ampsim.model_parallel.remedies import (
    OffloadedFootprint,
    RecomputingFootprint,
    keeps_more,
    require_same_weights,
)
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.trace import DISPATCH_LANE, Cause, Recorder

_CONTROLLER = 0  # the controller's place among the nodes of a graph


class DispatchLane(RecordedLane):
    """The lane that issues a worker's steps: each passes it before it is in the inbox."""

    __slots__ = ("_dispatch_s",)

    def __init__(
        self,
        processor: Processor,
        clock: Clock,
        recorder: Recorder,
        kinds: Sequence[Direction],
        dispatch_s: float,
    ) -> None:
        super().__init__(processor, clock, recorder, kinds)
        self._dispatch_s = dispatch_s

    def acceptor(self, accept: Accept, direction: Direction, wakes: Processor | None) -> Accept:
        """Return who issues the messages of `direction` that `accept` takes afterwards."""

        def issue(message: Message) -> None:
            placed, port, state, payload, cause = message

            def done(start_s: float) -> None:
                key = (self.processor.index, placed.index, direction, 0, 0, 0)
                kind = self.recorder.kinds.number(key, DISPATCH_LANE)
                issued = self.record(kind, start_s, state, cause)
                accept((placed, port, state, payload, issued))
                if wakes is not None:
                    wakes.wake()

            self.add(LaneTask(self._dispatch_s, done), direction)

        return issue


class HostLane(RecordedLane):
    """The steps of the host, on which the controller is; first come, first served."""

    __slots__ = ("_device", "_kinds")

    def __init__(
        self, processor: Processor, clock: Clock, recorder: Recorder, device: Device
    ) -> None:
        super().__init__(processor, clock, recorder)
        self._device = device
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

            self._step(direction, state, cause, 1, taken)

        return accept

    def send(self, routes: Routes, source: int, sends: Sends, cause: Cause) -> None:
        """Send messages of one instance, or updates, when the host has come to it."""
        state = sends[0][1]
        direction = Direction.UPDATE if state is BY_CONTROLLER else Direction.FORWARD
        self._step(direction, state, cause, len(sends), partial(send, routes, source, sends))

    def _step(
        self,
        direction: Direction,
        state: State,
        cause: Cause,
        messages: int,
        then: Callable[[Cause], None],
    ) -> None:
        device, kind = self._device, self._kinds[direction]

        def done(start_s: float) -> None:
            number = self.record(kind, start_s, state, cause)
            self.recorder.note_messages(number, messages)
            then(number)

        self.add(LaneTask(device.step_overhead_s + messages * device.message_overhead_s, done))


class Lanes:
    """Dispatch and copy lanes, for each worker whose device has them.

    Raises:
        OptionError: the schedule merges messages, which a device charges for one by one; or it may
            update a node whose activations are to be computed again.
    """

    def __init__(
        self,
        cluster: Cluster,
        schedule: Schedule,
        instant: Instant,
        clock: Clock,
        recorder: Recorder,
        *,
        workers: range,
    ) -> None:
        self._dispatch: dict[int, DispatchLane] = {}
        self._copies: dict[int, CopyLanes] = {}
        self.all: list[Lane] = []
        self._recomputes = cluster.memory is not None and cluster.memory.remedy == "recompute"
        if self._recomputes:
            require_same_weights(schedule)
        for worker in workers:
            device = cluster.devices[worker]
            for key in device.message_numbers if schedule.order.max_group > 1 else ():
                raise OptionError(
                    f"max_group = {schedule.order.max_group} merges messages, but {device.name} "
                    f"names {key}, which each message costs by itself; take "
                    "max_group=1, or step_overhead_s in the device file"
                )
            if device.dispatch_s:
                processor = Processor(worker, clock, instant)
                kinds, seconds = schedule.order.kinds, device.dispatch_s
                lane = DispatchLane(processor, clock, recorder, kinds, seconds)
                self._dispatch[worker] = lane
                self.all.append(lane)
            if cluster.offloads and cluster.memory is not None:
                copies = self._copies[worker] = CopyLanes(
                    worker, device, clock, instant=instant, recorder=recorder,
                    above_bytes=cluster.memory.above_bytes,
                )  # fmt: skip
                self.all += [copies.outward, copies.inward]

    def recomputes(self, node: Node) -> bool:
        """Tell if backward steps of a node compute again what its forward step did not keep."""
        return self._recomputes and keeps_more(node)

    def footprint(
        self, node: Node, place: int, worker: int, memory: Memory, *, frees: bool
    ) -> Footprint:
        """Build the account of a node's bytes in its worker's memory; `frees` as of `Footprint`."""
        if self.recomputes(node):
            return RecomputingFootprint(node, memory, frees=frees)
        lanes = self._copies.get(worker)
        if lanes is None or not node.is_parameterized:
            return Footprint(node, memory, frees=frees)
        return OffloadedFootprint(node, memory, place, lanes, frees=frees)

    def update_acceptor(self, processor: Processor, accept: Accept) -> Accept:
        """Return the acceptor of updates that a worker's own nodes ask for, past its dispatch."""
        dispatch = self._dispatch.get(processor.index)
        if dispatch is None:
            return accept
        return dispatch.acceptor(accept, Direction.UPDATE, processor)

    def issued(
        self, placed: PlacedNode, accept: Accept, wakes: Processor | None, direction: Direction
    ) -> tuple[Accept, Processor | None]:
        """Return the acceptor of a message that takes device time, and whom it wakes."""
        dispatch, footprint = self._dispatch.get(placed.worker), placed.footprint
        if dispatch is not None:
            accept, wakes = dispatch.acceptor(accept, direction, wakes), None
        if direction is Direction.BACKWARD and isinstance(footprint, OffloadedFootprint):
            accept, wakes = footprint.acceptor(accept, wakes), None
        return accept, wakes
