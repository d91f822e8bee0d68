"""Memory swapping: what lies on stacks goes to the host, and comes back before it is popped.

Copies have two lanes of their own, one a direction, beside what the device computes. What is on a
stack is copied to the host, the oldest first, one copy after the other, while more bytes are used
than the threshold; its bytes go when the copy has ended and no kernel reads it any more. Once the
device has come to the first pop of a stack, nothing of it leaves, and what has left is brought
back in the order of the pops, the last pushed first, as long as that stays below the threshold.
What the next kernel reads comes first, and needs no more than room.

Source: Yu et al. (2018), Section 5.3; the least size and the default threshold are TensorFlow's
(`core/kernels/stack.cc`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ampsim.dataflow.memory import Buffer, Maker, Saved
from ampsim.machine import CopyLanes, Job, Memory
from ampsim.trace import COPY_IN_LANE, COPY_OUT_LANE, Cause

SWAPPED_BYTES_MIN: Final = 2049
"""Bytes of a tensor at least that is swapped: TensorFlow leaves 2048 and less where they are."""

SWAP_THRESHOLD: Final = 0.7
"""The share of the memory above which tensors are swapped out, unless somebody says otherwise."""


class Swapper:
    """What moves between a device and its host.

    The threshold is `above_bytes` of the lanes; `after` is called with the number of each copy that
    has ended.

    Attributes:
        out_bytes, in_bytes: what has been copied to the host, and back.
    """

    def __init__(
        self,
        memory: Memory,
        capacity_bytes: int,
        lanes: CopyLanes,
        after: Callable[[Cause], None],
    ) -> None:
        self._memory, self._capacity_bytes = memory, capacity_bytes
        self._lanes, self._after = lanes, after
        self._above_bytes = lanes.above_bytes
        self._candidates: deque[Saved] = deque()
        self._away: list[tuple[int, Saved]] = []
        self._is_leaving = self._is_coming = False
        self.out_bytes = self.in_bytes = 0

    @property
    def is_busy(self) -> bool:
        """Whether a copy is under way."""
        return self._is_leaving or self._is_coming

    def add(self, saved: Saved) -> None:
        """Let what is on a stack, and has been computed, leave when its turn comes."""
        if saved.buffer.size_bytes >= SWAPPED_BYTES_MIN:
            self._candidates.append(saved)

    def bring(self, saved: Saved) -> None:
        """Bring back what is away, of a stack whose pops have begun."""
        heapq.heappush(self._away, (-saved.number, saved))

    def copy(self, cause: Cause, away: Callable[[], Sequence[Buffer]] | None = None) -> None:
        """Begin the copies for which it is time.

        Args:
            cause: what has ended just now.
            away: gives what the next kernel reads and is away; None while the device computes.
        """
        if (
            self._candidates
            and not self._is_leaving
            and self._memory.total_bytes > self._above_bytes
        ):
            self._begin_out(cause)
        if self.out_bytes > self.in_bytes and not self._is_coming:
            wanted = () if away is None else away()
            if wanted or self._away:
                self._begin_in(cause, wanted)

    def _begin_out(self, cause: Cause) -> None:
        while self._candidates:
            saved = self._candidates.popleft()
            buffer = saved.buffer
            if buffer.can_leave:
                self._is_leaving = True
                buffer.leave()
                self._submit(COPY_OUT_LANE, buffer, saved.maker, cause)
                return

    def _begin_in(self, cause: Cause, wanted: Sequence[Buffer]) -> None:
        for buffer in wanted:
            if self._memory.total_bytes + buffer.size_bytes <= self._capacity_bytes:
                self._bring(buffer, buffer.saved[-1].maker, cause)
            return
        while self._away:
            saved = self._away[0][1]
            buffer = saved.buffer
            if not buffer.lies_there and buffer.saved:
                if self._memory.total_bytes + buffer.size_bytes > self._above_bytes:
                    return
                self._bring(buffer, saved.maker, cause)
                return
            heapq.heappop(self._away)

    def _bring(self, buffer: Buffer, maker: Maker, cause: Cause) -> None:
        self._is_coming = True
        buffer.come_back()
        self._submit(COPY_IN_LANE, buffer, maker, cause)

    def _submit(self, lane: int, buffer: Buffer, maker: Maker, cause: Cause) -> None:
        """Hand a copy to its lane."""
        lanes, size_bytes = self._lanes, buffer.size_bytes

        def done(start_s: float) -> None:
            if lane == COPY_OUT_LANE:
                self._is_leaving, self.out_bytes = False, self.out_bytes + size_bytes
            else:
                self._is_coming, self.in_bytes = False, self.in_bytes + size_bytes
            of = maker.state, cause
            number = lanes.record(lane, maker.node.index, size_bytes, start_s, of)
            buffer.end_copy()
            self._after(number)

        job = Job(lanes.device.copy_s(size_bytes), done)
        (lanes.outward if lane == COPY_OUT_LANE else lanes.inward).add(job)
