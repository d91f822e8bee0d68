"""Copies between a device and its host: two lanes, one a direction, beside what it computes."""

from __future__ import annotations

from typing import Any, Final

from ampsim.hardware import Device
from ampsim.ir import Direction
from ampsim.machine.lane import Lane
from ampsim.trace import COPY_IN_LANE, COPY_OUT_LANE, Cause, Recorder

NO_STALENESS: Final = -1
"""A copy applies no update."""

_DIRECTIONS: Final = {COPY_OUT_LANE: Direction.FORWARD, COPY_IN_LANE: Direction.BACKWARD}


class CopyLanes:
    """The two lanes of one device, and what is recorded of them.

    Args:
        device: says what a copy costs.
        outward: the lane to the host.
        inward: the lane from it.
        recorder: takes a record of each copy.
        above_bytes: what may leave does where more than this lies in memory.
    """

    def __init__(
        self, device: Device, outward: Lane, inward: Lane, recorder: Recorder, above_bytes: int
    ) -> None:
        self.device, self.outward, self.inward = device, outward, inward
        self.recorder, self.above_bytes = recorder, above_bytes

    def record(
        self, lane: int, place: int, size_bytes: int, start_s: float, of: tuple[Any, Cause]
    ) -> Cause:
        """Record a copy that ends now, of the node at `place`; return its number."""
        recorder, (state, cause) = self.recorder, of
        owner = self.outward if lane == COPY_OUT_LANE else self.inward
        key = (owner.processor.index, place, _DIRECTIONS[lane], 0, size_bytes, 0)
        kind = recorder.kinds.number(key, lane)
        recorder.spans.append((kind, start_s, owner.now_s, NO_STALENESS, state, cause))
        return recorder.span_number()
