"""Who holds what a step gives: its own bytes, those of an input, or what a stack or array holds.

Each kernel computes into bytes of its own, but for one that is charged nothing, as `identity` or
`transpose`: its output is its input, seen otherwise. What an integer or truth value takes counts
while its kernel runs, for then the host has it. Flows of arrays, and integers that are fed or that
the host computes, are the host's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from ampsim.dataflow.graph import VARIABLE, Node
from ampsim.dataflow.host import Kernel
from ampsim.dataflow.memory import Buffer, DeviceMemory, DeviceTensor, Maker, Owner, Resource, Saved
from ampsim.dataflow.rendezvous import SentValue
from ampsim.dataflow.swapping import Swapper


class Queued:
    """What waits for the device: a kernel, or what happens among kernels and takes no time.

    Args:
        reads: owners of what it reads; they hold it for this until it has ended.
        writes: what it computes, which it holds too.
        then: done when the device has come to it.
        maker: the step that it is; by default whose output it computes.

    Attributes:
        kernel: None of what takes no time and leaves no span.
        since_s: when it was handed over.
        is_stalled: whether it has waited for memory.
    """

    __slots__ = ("_maker", "_reads", "is_stalled", "kernel", "since_s", "then", "writes")

    def __init__(
        self,
        reads: Sequence[Owner],
        writes: Buffer | None = None,
        then: Callable[[], None] | None = None,
        maker: Maker | None = None,
    ) -> None:
        self._maker, self._reads, self.writes, self.then = maker, reads, writes, then
        self.kernel: Kernel | None = None
        self.since_s = 0.0
        self.is_stalled = False

    def hand_over(self, kernel: Kernel, now_s: float) -> None:
        """Be a kernel, which is handed over now."""
        self.kernel, self.since_s = kernel, now_s

    @property
    def lies_there(self) -> bool:
        """Whether all that it reads lies there, which it does unless something is swapped."""
        for owner in self._reads:
            for buffer in owner.buffers():
                if not buffer.is_readable:
                    return False
        return True

    def away(self) -> list[Buffer]:
        """What it reads that does not lie there."""
        return [one for one in self._read() if not one.lies_there]

    def asks(self) -> tuple[Maker, int]:
        """For whom it needs room, and how many bytes: of what is away, or of what it computes."""
        away = self.away()
        buffer = away[0] if away else self.writes
        assert buffer is not None, "what waits for memory needs bytes"
        return self._maker or buffer.maker, buffer.size_bytes

    def let_go(self) -> None:
        """Let go of what it has read."""
        for owner in self._reads:
            owner.release()

    def _read(self) -> Iterator[Buffer]:
        return (buffer for owner in self._reads for buffer in owner.buffers())


class Owners:
    """The owners of what the steps of a run give.

    Args:
        memory: the device's.
        queue: of the device; what an array makes of its elements takes its turn there.

    Attributes:
        swapper: is told what is pushed; None where nothing is swapped.
    """

    def __init__(self, memory: DeviceMemory, queue: deque[Queued]) -> None:
        self.swapper: Swapper | None = None
        self._memory, self._queue = memory, queue
        self._inputs: list[Owner] = []
        self._made: list[Owner] = []
        self._pushes = 0

    def made(self) -> list[Owner]:
        """What the step holds that was run just now, for it has made it."""
        made, self._made = self._made, []
        return made

    @property
    def has_made(self) -> bool:
        """Whether the step that was run just now has made something."""
        return bool(self._made)

    def given(self, value: Any, maker: Maker) -> DeviceTensor:
        """A value that lies on the device for the whole run; a variable with its optimizer's."""
        node = maker.node
        slots = node.attributes["held"].slots if node.operator is VARIABLE else 0
        size_bytes = (1 + slots) * _size_bytes(value, node)
        buffer = Buffer(self._memory, size_bytes, maker, is_input=True)
        self._inputs.append(buffer)
        buffer.hold(1)
        self._queue.append(Queued((), buffer))
        return DeviceTensor(value, buffer)

    def received(self, sent: SentValue, maker: Maker) -> DeviceTensor:
        """What another worker has sent; it lies here when the device has come to it."""
        buffer = Buffer(self._memory, _size_bytes(sent.value, maker.node), maker)
        self._queue.append(Queued((), buffer, sent.release))
        return DeviceTensor(sent.value, buffer)

    def finish(self) -> None:
        """Let go of what was given; then nothing is left."""
        for buffer in self._inputs:
            buffer.release()
        self._inputs.clear()
        left = self._memory.used_bytes
        assert not left, f"{left} bytes of memory are held by nobody"

    def of_kernel(
        self, maker: Maker, reads: list[Owner], value: Any, size_bytes: int | None
    ) -> tuple[Any, Queued]:
        """What a kernel gives, and the kernel as it waits for the device.

        Args:
            maker: the kernel.
            reads: owners of what it reads, which hold it for the kernel.
            value: what it gives.
            size_bytes: what that takes; None where it lies where the one input does.
        """
        if size_bytes is None:
            return DeviceTensor(value, reads[0]), Queued(reads, maker=maker)
        buffer = Buffer(self._memory, size_bytes, maker)
        task = Queued(reads, buffer)
        if not maker.node.outputs[0].is_float:
            return value, task
        return DeviceTensor(value, buffer), task

    def of_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        """What a step gives that the host runs, of a stack or an array."""
        rule = self._rules.get(maker.node.operator.name)
        return value if rule is None else rule(self, maker, given, value)

    def _shared(self, value: Any, owner: Owner) -> DeviceTensor:
        """A value that lies where another does."""
        owner.hold(1)
        self._made.append(owner)
        return DeviceTensor(value, owner)

    def _stacked(self, maker: Maker, value: Any, reads: Sequence[Owner]) -> Any:
        """A value that an array makes of several others."""
        if not maker.node.outputs[0].is_float:
            return value
        buffer = Buffer(self._memory, _size_bytes(value, maker.node), maker)
        reads = list(dict.fromkeys(reads))
        for owner in reads:
            owner.hold(1)
        self._queue.append(Queued(reads, buffer))
        return self._shared(value, buffer)

    def _new_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        resource = Resource(self._drop)
        self._made.append(resource)
        return DeviceTensor(value, resource)

    def _same_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        return self._shared(value, given[0].owner)

    def _push(self, maker: Maker, given: list[Any], value: Any) -> Any:
        stack, pushed = given[0].owner, given[1]
        if pushed.__class__ is not DeviceTensor:
            stack.stack.append(None)
            return pushed
        buffers = pushed.owner.buffers()
        if not buffers:  # a handle
            pushed.owner.hold(1)
            stack.stack.append(pushed.owner)
            return pushed
        buffer = buffers[0]
        self._pushes += 1
        saved = Saved(buffer, stack, maker, self._pushes)
        stack.stack.append(saved)
        stack.pushed.append(saved)
        if buffer.is_computed and self.swapper is not None:
            self.swapper.add(saved)
        return pushed

    def _pop(self, maker: Maker, given: list[Any], value: Any) -> Any:
        owner = given[0].owner.stack.pop()
        if owner is None:
            return value
        self._made.append(owner)  # the stack has held it
        if isinstance(owner, Saved):
            owner.hold(1)
            self._queue.append(Queued((), None, partial(self._popped, owner)))
        return DeviceTensor(value, owner)

    def _popped(self, saved: Saved) -> None:
        """The device has come to a pop; at the first of its stack, what is away is brought back."""
        for one in saved.pop():
            if self.swapper is not None:
                self.swapper.bring(one)
        saved.release()

    def _drop(self, resource: Resource) -> None:
        """Nobody has a handle any more; the device may not have come to that."""
        self._queue.append(Queued((), None, resource.let_go))

    def _write(self, maker: Maker, given: list[Any], value: Any) -> Any:
        self._keep(given, given[2], [int(given[1])])
        return value

    def _unstack(self, maker: Maker, given: list[Any], value: Any) -> Any:
        self._keep(given, given[1], _rows_of(given[1]))
        return value

    def _add(self, maker: Maker, given: list[Any], value: Any) -> Any:
        self._keep(given, given[2], [(given[0].value, int(given[1]))])
        return value

    def _add_all(self, maker: Maker, given: list[Any], value: Any) -> Any:
        self._keep(given, given[1], [(given[0].value, row) for row in _rows_of(given[1])])
        return value

    def _keep(self, given: list[Any], written: Any, places: Sequence[Any]) -> None:
        if written.__class__ is DeviceTensor:
            given[0].owner.keep(written.owner, places)

    def _read(self, maker: Maker, given: list[Any], value: Any) -> Any:
        owners = given[0].owner.places.get(int(given[1]))
        return self._shared(value, owners[0]) if owners else value

    def _stack(self, maker: Maker, given: list[Any], value: Any) -> Any:
        places = given[0].owner.places
        reads = [
            one for place, owners in places.items() if place.__class__ is int for one in owners
        ]
        return self._stacked(maker, value, reads)

    def _sum(self, maker: Maker, given: list[Any], value: Any) -> Any:
        owners = given[0].owner.places.get((given[0].value, int(given[1])), [])
        if len(owners) == 1:
            return self._shared(value, owners[0])
        return self._stacked(maker, value, owners)

    def _sums(self, maker: Maker, given: list[Any], value: Any) -> Any:
        of, places = given[0].value, given[0].owner.places
        parts = [place for place in places if place.__class__ is tuple and place[0] is of]
        return self._stacked(maker, value, [one for part in parts for one in places[part]])

    def _assigned(self, maker: Maker, given: list[Any], value: Any) -> Any:
        """What a variable has from the next run on stays until this one is over."""
        if given[0].__class__ is not DeviceTensor:
            return value
        given[0].owner.hold(1)
        self._inputs.append(given[0].owner)
        return self._shared(value, given[0].owner)

    _rules: ClassVar[dict[str, Callable[[Any, Maker, list[Any], Any], Any]]] = {
        "assign": _assigned,
        "assign_rows": _assigned,
        "stack": _new_resource,
        "push": _push,
        "pop": _pop,
        "array": _new_resource,
        "array_write": _write,
        "array_unstack": _unstack,
        "array_read": _read,
        "array_stack": _stack,
        "array_gradient": _same_resource,
        "array_add": _add,
        "array_add_all": _add_all,
        "array_sum": _sum,
        "array_sums": _sums,
    }


def _rows_of(written: Any) -> range:
    return range(written.value.shape[0] if written.__class__ is DeviceTensor else 0)


def _size_bytes(value: Any, node: Node) -> int:
    return math.prod(value.shape) * node.outputs[0].dtype.itemsize
