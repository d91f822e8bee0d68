"""Lanes of a device beside its compute lane, and dispatch on its host.

A message that takes device time is issued first, in the order in which the worker would serve it:
the lane is busy for the device's `dispatch_s`, and the message then lies in the worker's inbox, or
waits for its turn. So a device whose steps are longer hides it, but for the first.
`docs/decisions/0014-lanes-and-the-host.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from ampsim.clock import Clock
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Direction, Node
from ampsim.machine import CopyLanes, Instant, Job, Lane, Memory, Processor
from ampsim.model_parallel.footprint import Footprint
from ampsim.model_parallel.offload import OffloadedFootprint
from ampsim.model_parallel.placed_node import Accept, Message, PlacedNode
from ampsim.model_parallel.recompute import RecomputingFootprint, keeps_more, require_same_weights
from ampsim.model_parallel.schedules.base import Schedule
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


class Lanes:
    """Dispatch and copy lanes, for each worker whose device has them.

    Args:
        cluster: whose devices say what is issued and copied, and how fast.
        schedule: says what is urgent.
        instant: shared by all processors.
        clock: whose time passes.
        recorder: takes a record of what they do.
        workers: those whose lanes they are.

    Attributes:
        all: the lanes, worker by worker.

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
            if device.message_overhead_s and schedule.order.max_group > 1:
                raise OptionError(
                    f"max_group = {schedule.order.max_group} merges messages, but {device.name} "
                    "names message_overhead_s, which each message costs by itself; take "
                    "max_group=1, or step_overhead_s in the device file"
                )
            if device.dispatch_s:
                processor = Processor(worker, clock, instant)
                kinds, seconds = schedule.order.kinds, device.dispatch_s
                lane = DispatchLane(processor, clock, kinds, seconds, recorder)
                self._dispatch[worker] = lane
                self.all.append(lane)
            if cluster.offloads and cluster.memory is not None:
                outward, inward = (Lane(Processor(worker, clock, instant), clock) for _ in range(2))
                above_bytes = cluster.memory.above_bytes
                self._copies[worker] = CopyLanes(device, outward, inward, recorder, above_bytes)
                self.all += [outward, inward]

    def recomputes(self, node: Node) -> bool:
        """Whether backward steps of a node compute again what its forward step did not keep."""
        return self._recomputes and keeps_more(node)

    def footprint(
        self, node: Node, place: int, worker: int, memory: Memory, *, frees: bool
    ) -> Footprint:
        """What a node holds of its worker's memory; `frees` as of `Footprint`."""
        if self.recomputes(node):
            return RecomputingFootprint(node, memory, frees=frees)
        lanes = self._copies.get(worker)
        if lanes is None or not node.is_parameterized:
            return Footprint(node, memory, frees=frees)
        return OffloadedFootprint(node, memory, place, lanes, frees=frees)

    def update_acceptor(self, processor: Processor, accept: Accept) -> Accept:
        """Who accepts the updates that a worker's own nodes ask for, past its dispatch lane."""
        dispatch = self._dispatch.get(processor.index)
        if dispatch is None:
            return accept
        return dispatch.acceptor(accept, Direction.UPDATE, processor)

    def issued(
        self, placed: PlacedNode, accept: Accept, wakes: Processor | None, direction: Direction
    ) -> tuple[Accept, Processor | None]:
        """Who accepts a message that takes device time, and whom to wake: past all lanes.

        Args:
            placed: the node that it is for.
            accept: takes it in the end.
            wakes: the processor to be woken then; None where `accept` sees to that.
            direction: of the message.
        """
        dispatch, footprint = self._dispatch.get(placed.worker), placed.footprint
        if dispatch is not None:
            accept, wakes = dispatch.acceptor(accept, direction, wakes), None
        if direction is Direction.BACKWARD and isinstance(footprint, OffloadedFootprint):
            accept, wakes = footprint.acceptor(accept, wakes), None
        return accept, wakes
