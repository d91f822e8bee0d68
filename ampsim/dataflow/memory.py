"""What lies in a device's memory while a graph runs: each tensor once, as long as it is needed.

A device tensor is a value with its owner, who counts how many hold it: inputs of steps that have
not run, kernels that the device has not computed, stacks, arrays, the caller. Bytes are taken when
the kernel that computes them starts and are given back when nobody holds them any more, both in
the time of the device, however far ahead the host is. Source: Yu et al. (2018), Section 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from ampsim.clock import Clock
from ampsim.dataflow.frame import Tag
from ampsim.dataflow.graph import Node
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Device
from ampsim.machine import Memory
from ampsim.units import format_bytes, format_seconds

CATEGORIES: Final = ("stacks", "activations", "arrays", "inputs")
"""What bytes are counted as: saved for a gradient, in use, written to a `TensorArray`, fed."""

STACKS, ACTIVATIONS, ARRAYS, INPUTS = range(len(CATEGORIES))


class Maker(NamedTuple):
    """Which step asks for bytes, and in which iteration."""

    node: Node
    state: Tag


class Owner(Protocol):
    """Who counts how many hold a value."""

    def hold(self, count: int) -> None:
        """So many more hold it."""
        ...

    def release(self) -> None:
        """One fewer does."""
        ...

    def buffers(self) -> Sequence[Buffer]:
        """What must lie in the device's memory for a kernel to read the value."""
        ...


class DeviceTensor(NamedTuple):
    """A value on the device, or a handle, with its owner."""

    value: Any
    owner: Owner


def plain(value: Any) -> Any:
    """A value without its owner."""
    return value.value if value.__class__ is DeviceTensor else value


class DeviceMemory:
    """The account of one device.

    Args:
        worker: its number.
        device: says how much there is.
        clock: whose time passes.

    Attributes:
        capacity_bytes: what there is room for.
    """

    def __init__(self, worker: int, device: Device, clock: Clock) -> None:
        assert device.memory_bytes is not None, f"{device.name} has no end of memory"
        self.capacity_bytes = device.memory_bytes
        self._worker, self._device, self._clock = worker, device, clock
        self._memory = Memory(device.name, CATEGORIES, clock, None)

    @property
    def used_bytes(self) -> int:
        """What lies there now."""
        return self._memory.total_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many more bytes fit."""
        return self._memory.total_bytes + size_bytes <= self.capacity_bytes

    def move(self, size_bytes: int, before: int | None, after: int | None) -> None:
        """Count bytes in another category than before; in none they do not lie there."""
        if before is not None:
            self._memory.give(before, size_bytes)
        if after is not None:
            self._memory.take(after, size_bytes)

    @property
    def rows(self) -> list[tuple[float, ...]]:
        """The fullest moments: worker, time, all bytes, and those of each category."""
        timeline = self._memory.timeline
        return [(self._worker, one.time_s, sum(one.bytes), *one.bytes) for one in timeline]

    def full(self, maker: Maker, size_bytes: int, *, is_swapping: bool) -> OutOfMemoryError:
        """The error of a step for whose bytes there is no room."""
        node, tag = maker.node, maker.state.tag
        remedy = "a lower swap_threshold" if is_swapping else "swap_memory=True"
        held = ", ".join(
            f"{name} {format_bytes(self._memory.held(place))}"
            for place, name in enumerate(CATEGORIES)
            if self._memory.held(place)
        )
        return OutOfMemoryError(
            f"{self._device.name} is out of memory at {format_seconds(self._clock.now)}: "
            f"{node.told}{f' in {tag}' if tag else ''} asks for {size_bytes:,} bytes, and "
            f"{self.used_bytes:,} of {self.capacity_bytes:,} are taken ({held or 'by nothing'}); "
            f"try {remedy}, a smaller parallel_iterations, or a device with more memory_bytes"
        )


class Buffer:
    """The bytes of one tensor.

    Args:
        memory: in which they are to lie.
        size_bytes: how many they are.
        maker: the step that computes them.
        is_input: whether the caller holds them for the whole run.

    Attributes:
        is_computed: whether its kernel has ended.
        saved: what stands for it on stacks.
    """

    __slots__ = (
        "_arrays", "_category", "_copy", "_is_input", "_memory", "_uses", "is_computed", "maker",
        "saved", "size_bytes",
    )  # fmt: skip

    def __init__(
        self, memory: DeviceMemory, size_bytes: int, maker: Maker, *, is_input: bool = False
    ) -> None:
        self._memory, self.size_bytes, self.maker = memory, size_bytes, maker
        self._is_input = self.is_computed = is_input
        self._uses, self._arrays = 1, 0
        self._category: int | None = None
        self._copy: Literal["none", "leaving", "away", "coming", "back"] = "none"
        self.saved: list[Saved] = []

    @property
    def lies_there(self) -> bool:
        """Whether its bytes are taken."""
        return self._category is not None

    @property
    def is_readable(self) -> bool:
        """Whether a kernel can read it now, which must have been computed."""
        return self._category is not None and self._copy != "coming"

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

    def buffers(self) -> Sequence[Buffer]:
        """Itself."""
        return (self,)

    def hold(self, count: int) -> None:
        """So many more hold it."""
        self._uses += count

    def release(self) -> None:
        """One fewer does; with the last its bytes go."""
        self._uses -= 1
        if not self._uses:
            self.settle()

    def keep(self, change: int) -> None:
        """Be in so many more places of arrays, or fewer."""
        self._arrays += change
        self.settle()

    def begin(self) -> None:
        """Take its bytes: the kernel that computes it starts."""
        assert self._category is None, "a buffer takes its bytes once"
        self._category = self._due
        self._memory.move(self.size_bytes, None, self._category)

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
        self.settle()

    def stay(self) -> bool:
        """Whether it still lies there, as a stack is popped; it then does not go."""
        if self._copy == "away" and self._category is not None:
            self._copy = "back"
        return self._category is not None

    def settle(self) -> None:
        """Be counted as what it is now; give the bytes back that nobody needs on the device."""
        before = self._category
        if before is None:
            return
        is_copied = self._copy in ("leaving", "coming")
        is_needed = self._uses or is_copied or (self.saved and self._copy != "away")
        self._category = self._due if is_needed else None
        if self._category != before:
            self._memory.move(self.size_bytes, before, self._category)

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
    """A tensor on a stack, and after its pop whoever reads it; it may lie on the host meanwhile.

    Args:
        buffer: what was pushed.
        stack: on which.
        maker: the push.
        number: of the push, in their order.

    Attributes:
        is_popped: whether the pop has come, in the device's time.
    """

    __slots__ = ("_holders", "buffer", "is_popped", "maker", "number", "stack")

    def __init__(self, buffer: Buffer, stack: Resource, maker: Maker, number: int) -> None:
        self.buffer, self.stack, self.maker, self.number = buffer, stack, maker, number
        self._holders = 1
        self.is_popped = False
        buffer.saved.append(self)
        buffer.settle()

    def buffers(self) -> Sequence[Buffer]:
        """The one that was pushed."""
        return (self.buffer,)

    def hold(self, count: int) -> None:
        """So many more hold it."""
        self._holders += count

    def release(self) -> None:
        """One fewer does."""
        self._holders -= 1
        if not self._holders:
            self.buffer.saved.remove(self)
            self.buffer.settle()

    def pop(self) -> list[Saved]:
        """Note that the device has come to the pop; what is away of a stack now popped first."""
        self.is_popped = True
        away = self.stack.begin_to_pop()
        self.buffer.settle()
        return away


class Resource:
    """What a stack or an array holds, as long as somebody has its handle.

    Args:
        drop: called when nobody has any more.

    Attributes:
        stack: what lies on it, the last pushed last; None for what is no tensor of the device.
        pushed: every tensor that was ever pushed.
        is_popped: whether the device has come to the first pop.
        places: what each place of an array holds; and each of its gradients, whose parts are added.
    """

    __slots__ = ("_drop", "_holders", "_kept", "is_popped", "places", "pushed", "stack")

    def __init__(self, drop: Callable[[Resource], None]) -> None:
        self._drop, self._holders = drop, 1
        self._kept: list[tuple[Owner, Buffer]] = []
        self.stack: list[Owner | None] = []
        self.pushed: list[Saved] = []
        self.is_popped = False
        self.places: dict[Any, list[Owner]] = {}

    def buffers(self) -> Sequence[Buffer]:
        """None: a handle is no tensor."""
        return ()

    def keep(self, owner: Owner, places: Sequence[Any]) -> None:
        """Hold what was written to places."""
        for buffer in owner.buffers():
            owner.hold(1)
            buffer.keep(1)
            self._kept.append((owner, buffer))
        for place in places:
            self.places.setdefault(place, []).append(owner)

    def hold(self, count: int) -> None:
        """So many more have the handle."""
        self._holders += count

    def release(self) -> None:
        """One fewer has; with the last it is dropped."""
        self._holders -= 1
        if not self._holders:
            self._drop(self)

    def let_go(self) -> None:
        """Hold nothing any more."""
        for owner, buffer in self._kept:
            buffer.keep(-1)
            owner.release()
        for one in self.stack:
            if one is not None:
                one.release()
        self._kept, self.stack = [], []

    def begin_to_pop(self) -> list[Saved]:
        """Note that the device has come to a pop; at the first, what is away."""
        if self.is_popped:
            return []
        self.is_popped = True
        return [one for one in self.pushed if one in one.buffer.saved and not one.buffer.stay()]
