"""A device's memory while a graph runs: each tensor lies there once, as long as it is needed.

A device tensor is a value with its owner, which has a number of holders: inputs of steps that have
not run, kernels that the device has not computed, stacks, arrays, the caller. Bytes are taken when
the kernel that computes them starts and are given back when nobody holds them any more, both in
the time of the device, however far ahead the host is.

Swapping: what lies on stacks goes to the host, and comes back before it is popped. Copies have two
lanes of their own, one a direction, beside what the device computes. What is on a stack is copied
to the host, the oldest first, one copy after the other, while more bytes are used than the
threshold; its bytes go when the copy has ended and no kernel reads it any more. Once the device has
come to the first pop of a stack, nothing of it leaves, and what has left is brought back in the
order of the pops, the last pushed first, as long as that stays below the threshold. What the next
kernel reads comes first, and needs no more than room.

Source: Yu et al. (2018), Section 5.3; the least size and the default threshold are TensorFlow's
(`core/kernels/stack.cc`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ampsim.dataflow.graph import Node
from ampsim.dataflow.plan import Tag
from ampsim.machine import CopyLanes, LaneTask, Memory
from ampsim.trace import COPY_IN_LANE, COPY_OUT_LANE, Cause

CATEGORIES: Final = ("stacks", "activations", "arrays", "inputs")
"""What bytes are counted as: saved for a gradient, in use, written to a `TensorArray`, fed."""

STACKS, ACTIVATIONS, ARRAYS, INPUTS = range(len(CATEGORIES))


@dataclass(slots=True, eq=False)
class Maker:
    """A step, and the iteration in which it asks for bytes."""

    node: Node
    state: Tag


@dataclass(slots=True, eq=False)
class DeviceTensor:
    """A value on the device, or a handle, with its owner."""

    value: Any
    owner: Owner


def hold(value: Any) -> Any:
    """Hold a value, if it lies on the device; the value without its owner."""
    if value.__class__ is not DeviceTensor:
        return value
    value.owner.holders += 1
    return value.value


def release(value: Any) -> None:
    """Have a value one holder fewer, if it lies on the device."""
    if value.__class__ is DeviceTensor:
        value.owner.release()


def bare(value: Any) -> Any:
    """The value without its owner."""
    return value.value if value.__class__ is DeviceTensor else value


class Buffer:
    """The bytes of one tensor; the caller holds those of an input for the whole run."""

    __slots__ = (
        "_arrays", "_category", "_copy", "_is_input", "_memory", "holders", "is_computed",
        "is_readable", "maker", "saved", "size_bytes",
    )  # fmt: skip

    def __init__(
        self, memory: Memory, size_bytes: int, maker: Maker, *, is_input: bool = False
    ) -> None:
        self._memory, self.size_bytes, self.maker = memory, size_bytes, maker
        self._is_input = self.is_computed = is_input  # whether its kernel has ended
        self.holders = 1  # how many hold it, the kernel that computes it among them
        self._arrays = 0
        self._category: int | None = None
        self.is_readable = False  # whether a kernel can read it now, which must have been computed
        self._copy: Literal["none", "leaving", "away", "coming", "back"] = "none"
        self.saved: Sequence[Saved] = ()  # what stands for it on stacks

    @property
    def lies_there(self) -> bool:
        """Whether its bytes are taken."""
        return self._category is not None

    @property
    def can_leave(self) -> bool:
        """Whether only stacks keep it, none of which is being popped, and it was never copied.

        What a kernel still reads may be copied meanwhile; its bytes stay as long.
        """
        return self._copy == "none" and self._category == STACKS and not self._is_wanted

    @property
    def _is_wanted(self) -> bool:
        """Whether a stack that has it is being popped."""
        return any(one.stack.is_popped for one in self.saved)

    @property
    def buffer(self) -> Buffer:
        """Itself."""
        return self

    def release(self) -> None:
        """Have one holder fewer; with the last its bytes go."""
        self.holders -= 1
        if not self.holders:
            self.settle()

    def keep(self, change: int) -> None:
        """Be in so many more places of arrays, or fewer."""
        self._arrays += change
        self.settle()

    def begin(self) -> None:
        """Take its bytes: the kernel that computes it starts."""
        assert self._category is None, "a buffer takes its bytes once"
        self._category = category = self._due
        self.is_readable = self._copy != "coming"
        self._memory.take(category, self.size_bytes)

    def end(self) -> None:
        """Note that its kernel has ended, which lets go of it."""
        self.is_computed = True
        self.release()

    def leave(self) -> None:
        """Note that its copy to the host begins."""
        self._copy = "leaving"

    def come_back(self) -> None:
        """Take its bytes again: the copy from the host begins."""
        self._copy = "coming"
        self.begin()

    def end_copy(self) -> None:
        """Note that its copy has ended: in vain, where a stack is being popped by now."""
        has_come = self._copy == "coming" or self._is_wanted
        self._copy = "back" if has_come else "away"
        self.is_readable = True
        self.settle()

    def stay(self) -> bool:
        """Tell whether it still lies there, as a stack is popped; it then does not go."""
        if self._copy == "away" and self._category is not None:
            self._copy = "back"
        return self._category is not None

    def settle(self) -> None:
        """Be counted as what it is now; give the bytes back that nobody needs on the device."""
        before = self._category
        if before is None:
            return
        copy = self._copy
        is_needed = self.holders or copy in ("leaving", "coming") or (self.saved and copy != "away")
        self._category = after = self._due if is_needed else None
        if after != before:
            self._memory.give(before, self.size_bytes)
            if after is None:
                self.is_readable = False
            else:
                self._memory.take(after, self.size_bytes)

    @property
    def _due(self) -> int:
        if self._is_input:
            return INPUTS
        if self._arrays:
            return ARRAYS
        for one in self.saved:
            if not one.is_popped:
                return STACKS
        return ACTIVATIONS


class Saved:
    """A tensor on a stack, and after its pop whoever reads it; it may lie on the host meanwhile."""

    __slots__ = ("buffer", "holders", "is_popped", "maker", "number", "stack")

    def __init__(self, buffer: Buffer, stack: Resource, maker: Maker, number: int) -> None:
        self.buffer, self.stack = buffer, stack
        self.maker, self.number = maker, number  # the push, and its place among all
        self.holders = 1  # how many hold it, the stack among them
        self.is_popped = False  # whether the pop has come, in the device's time
        buffer.saved = (*buffer.saved, self)
        buffer.settle()

    @property
    def is_readable(self) -> bool:
        """Whether a kernel can read it now."""
        return self.buffer.is_readable

    def release(self) -> None:
        """Have one holder fewer."""
        self.holders -= 1
        if not self.holders:
            buffer = self.buffer
            buffer.saved = tuple([one for one in buffer.saved if one is not self])
            buffer.settle()

    def pop(self) -> list[Saved]:
        """Note that the device has come to the pop; what is away of a stack now popped first."""
        self.is_popped = True
        stack, away = self.stack, list[Saved]()
        if not stack.is_popped:
            stack.is_popped = True
            away = [
                one for one in stack.pushed if one in one.buffer.saved and not one.buffer.stay()
            ]
        self.buffer.settle()
        return away


class Resource:
    """A stack or an array, until nobody has its handle; then `drop` is called with it."""

    __slots__ = ("drop", "holders", "is_popped", "kept", "pushed")
    buffer = None

    def __init__(self) -> None:
        self.drop: Callable[[Resource], None]
        self.holders = 1  # how many have the handle
        self.is_popped = False  # whether the device has come to the first pop
        self.kept: list[tuple[Owner, Buffer]] = []  # what was written to it, and the bytes of that
        self.pushed: list[Saved] = []  # what stands for every tensor that was ever pushed onto it

    def keep(self, owner: Buffer | Saved) -> None:
        """Hold what was written to it."""
        buffer = owner.buffer
        owner.holders += 1
        buffer.keep(1)
        self.kept.append((owner, buffer))

    def release(self) -> None:
        """Have one holder fewer; with the last it is dropped."""
        self.holders -= 1
        if not self.holders:
            self.drop(self)

    def let_go(self) -> None:
        """Hold nothing any more."""
        for owner, buffer in self.kept:
            buffer.keep(-1)
            owner.release()
        self.kept = []


Owner: TypeAlias = Buffer | Saved | Resource
"""What a value is held by: its bytes, what stands for these on a stack, or a stack or array."""


SWAPPED_BYTES_MIN: Final = 2049
"""Bytes of a tensor at least that is swapped: TensorFlow leaves 2048 and less where they are."""

SWAP_THRESHOLD: Final = 0.7
"""The share of the memory above which tensors are swapped out, unless somebody says otherwise."""


class Swapper:
    """Moves saved values between a device and its host.

    The threshold is `above_bytes` of the lanes; `after` is called with the number of each copy that
    has ended.
    """

    def __init__(
        self, memory: Memory, capacity_bytes: float, lanes: CopyLanes,
        after: Callable[[Cause], None],
    ) -> None:  # fmt: skip
        self._memory, self._capacity_bytes = memory, capacity_bytes
        self._lanes, self._after = lanes, after
        self._above_bytes = lanes.above_bytes
        self._candidates: deque[Saved] = deque()
        self._away: list[tuple[int, Saved]] = []
        self._leaving: LaneTask | None = None
        self._is_coming = False
        self.out_bytes = self.in_bytes = 0  # what has been copied to the host, and back

    @property
    def is_busy(self) -> bool:
        """Whether a copy is under way."""
        return self.is_leaving or self._is_coming

    @property
    def is_leaving(self) -> bool:
        """Whether a copy to the host is."""
        return self._leaving is not None

    def end_copy(self, now_s: float, *, is_needed: bool) -> None:
        """Let the clock wait for the copy to the host if its room is needed; else it ends now."""
        job, processor = self._leaving, self._lanes.leaving
        assert job is not None, "a copy is under way"
        if is_needed:
            processor.require()
            return
        job.is_dropped = True
        if processor.is_busy:
            processor.cut_short()
        else:  # its device is down
            job.done(now_s)

    def add(self, saved: Saved) -> None:
        """Let what is on a stack, and has been computed, leave when its turn comes."""
        if saved.buffer.size_bytes >= SWAPPED_BYTES_MIN:
            self._candidates.append(saved)

    def bring(self, saved: Saved) -> None:
        """Bring back what is away, of a stack whose pops have begun."""
        heapq.heappush(self._away, (-saved.number, saved))

    def copy(self, cause: Cause, away: Callable[[], Sequence[Buffer]] | None = None) -> None:
        """Begin the copies for which it is time; the cause is what has ended just now.

        While the device waits, `away` gives what the next kernel reads and is away.
        """
        if (
            self._candidates
            and self._leaving is None
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
                buffer.leave()
                self._leaving = self._submit(COPY_OUT_LANE, buffer, saved.maker, cause)
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

    def _submit(self, lane: int, buffer: Buffer, maker: Maker, cause: Cause) -> LaneTask:
        lanes, size_bytes = self._lanes, buffer.size_bytes

        def done(start_s: float) -> None:
            if lane == COPY_OUT_LANE:
                self._leaving, self.out_bytes = None, self.out_bytes + size_bytes
            else:
                self._is_coming, self.in_bytes = False, self.in_bytes + size_bytes
            of = maker.state, cause
            number = lanes.record(lane, maker.node.index, size_bytes, start_s, of)
            buffer.end_copy()
            if not job.is_dropped:
                self._after(number)

        job = LaneTask(lanes.device.copy_s(size_bytes), done)
        (lanes.outward if lane == COPY_OUT_LANE else lanes.inward).add(job)
        return job
