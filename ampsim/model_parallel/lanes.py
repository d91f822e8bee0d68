"""The lanes of all devices beside the one that computes, and what passes through them."""

from __future__ import annotations

from ampsim.clock import Clock
from ampsim.errors import OptionError
from ampsim.hardware import Cluster
from ampsim.ir import Direction, Node
from ampsim.machine import Instant, Lane, Memory, Processor
from ampsim.model_parallel.dispatch import DispatchLane
from ampsim.model_parallel.footprint import Footprint
from ampsim.model_parallel.offload import CopyLanes, OffloadedFootprint
from ampsim.model_parallel.placed_node import Accept, PlacedNode
from ampsim.model_parallel.recompute import (
    RecomputingFootprint,
    keeps_more,
    require_same_weights,
)
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.worker import Worker
from ampsim.trace import Recorder


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
        self, node: Node, place: int, worker: int, memory: Memory | None
    ) -> Footprint | None:
        """What a node holds of its worker's memory; None where nobody counts."""
        if memory is None:
            return None
        if self.recomputes(node):
            return RecomputingFootprint(node, memory)
        lanes = self._copies.get(worker)
        if lanes is None or not node.is_parameterized:
            return Footprint(node, memory)
        return OffloadedFootprint(node, memory, place, lanes)

    def update_acceptor(self, worker: Worker) -> Accept:
        """Who accepts the updates that a worker's own nodes ask for."""
        dispatch = self._dispatch.get(worker.index)
        if dispatch is None:
            return worker.accept_update
        return dispatch.acceptor(worker.accept_update, Direction.UPDATE, worker.processor)

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
