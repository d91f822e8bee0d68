"""Who holds what a step gives: its own bytes, those of an input, or what a stack or array holds.

Each kernel computes into bytes of its own, but for one that is charged nothing, as `identity` or
`transpose`: its output is its input, seen otherwise. What an integer or truth value takes counts
while its kernel runs, for then the host has it. Flows of arrays, and integers that are fed or that
the host computes, are the host's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from ampsim.dataflow import operator as op
from ampsim.dataflow.host import Queued
from ampsim.dataflow.memory import Buffer, DeviceTensor, Maker, Owner, Resource, Saved
from ampsim.dataflow.swapping import Swapper
from ampsim.machine import Memory

_WRITES: Final = {
    "array_write": (False, False),
    "array_unstack": (False, True),
    "array_add": (True, False),
    "array_add_all": (True, True),
}
"""What writes to an array: whether to its gradients, and whether all rows of a tensor."""


class Owners:
    """The owners of what the steps of a run give.

    What an array makes of its elements takes its turn in the device's queue.

    Attributes:
        made: what the step holds that was run just now, for it has made it.
        swapper: is told what is pushed; None where nothing is swapped.
    """

    def __init__(self, memory: Memory, queue: deque[Queued]) -> None:
        self.made: list[Owner] = []
        self.swapper: Swapper | None = None
        self._memory, self._queue = memory, queue
        self._inputs: list[Owner] = []
        self._pushes = 0

    def given(self, value: Any, maker: Maker) -> DeviceTensor:
        """A value that lies on the device for the whole run; a variable with its optimizer's."""
        node = maker.node
        slots = node.attributes["held"].slots if node.operator is op.VARIABLE else 0
        size_bytes = (1 + slots) * _size_bytes(value, maker)
        buffer = Buffer(self._memory, size_bytes, maker, is_input=True)
        self._keep_to_end(buffer)
        self._queue.append(Queued((), buffer))
        return DeviceTensor(value, buffer)

    def lying(
        self, value: Any, maker: Maker, reads: Sequence[Buffer | Saved],
        then: Callable[[], None] | None = None,
    ) -> Buffer:  # fmt: skip
        """The bytes of a value that is made of others; it lies there in the device's turn."""
        buffer = Buffer(self._memory, _size_bytes(value, maker), maker)
        self._queue.append(Queued(reads, buffer, then))
        return buffer

    def finish(self) -> None:
        """Let go of what was given; then nothing is left."""
        for buffer in self._inputs:
            buffer.release()
        self._inputs.clear()
        left = self._memory.total_bytes
        assert not left, f"{left} bytes of memory are held by nobody"

    def _keep_to_end(self, owner: Owner) -> None:
        owner.holders += 1
        self._inputs.append(owner)

    def _shared(self, value: Any, owner: Owner) -> DeviceTensor:
        """A value that lies where another does."""
        owner.holders += 1
        self.made.append(owner)
        return DeviceTensor(value, owner)

    def _stacked(self, maker: Maker, value: Any, reads: Sequence[Buffer | Saved]) -> Any:
        """A value that an array makes of several others."""
        if not maker.node.outputs[0].is_float:
            return value
        reads = list(dict.fromkeys(reads))
        for owner in reads:
            owner.holders += 1
        return self._shared(value, self.lying(value, maker, reads))

    def _new_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        resource = Resource(self._drop)
        self.made.append(resource)
        return DeviceTensor(value, resource)

    def _drop(self, resource: Resource) -> None:
        """Nobody has a handle any more; the device may not have come to that."""
        self._queue.append(Queued((), None, resource.let_go))

    def _same_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        return self._shared(value, given[0].owner)

    def _push(self, maker: Maker, given: list[Any], value: Any) -> Any:
        stack, pushed = given[0].owner, given[1]
        if pushed.__class__ is not DeviceTensor:
            stack.stack.append(None)
            return pushed
        buffer = pushed.owner.buffer
        if buffer is None:  # a handle
            pushed.owner.holders += 1
            stack.stack.append(pushed.owner)
            return pushed
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
        self.made.append(owner)  # the stack has held it
        if isinstance(owner, Saved):
            owner.holders += 1
            self._queue.append(Queued((), None, partial(self._popped, owner)))
        return DeviceTensor(value, owner)

    def _popped(self, saved: Saved) -> None:
        """The device has come to a pop; at the first of its stack, what is away is brought back."""
        for one in saved.pop():
            if self.swapper is not None:
                self.swapper.bring(one)
        saved.release()

    def _write(self, maker: Maker, given: list[Any], value: Any) -> Any:
        """Hold what is written to places of an array, or added to its gradients."""
        is_gradient, is_all = _WRITES[maker.node.operator.name]
        written = given[1 if is_all else 2]
        if written.__class__ is DeviceTensor:
            rows = range(written.value.shape[0]) if is_all else [int(given[1])]
            places = [(given[0].value, row) for row in rows] if is_gradient else rows
            given[0].owner.keep(written.owner, places)
        return value

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
        self._keep_to_end(given[0].owner)
        return self._shared(value, given[0].owner)

    rules: ClassVar[dict[str, Callable[[Any, Maker, list[Any], Any], Any]]] = {
        "assign": _assigned,
        "assign_rows": _assigned,
        "stack": _new_resource,
        "push": _push,
        "pop": _pop,
        "array": _new_resource,
        **dict.fromkeys(_WRITES, _write),
        "array_read": _read,
        "array_stack": _stack,
        "array_gradient": _same_resource,
        "array_sum": _sum,
        "array_sums": _sums,
    }


def _size_bytes(value: Any, maker: Maker) -> int:
    return math.prod(value.shape) * maker.node.outputs[0].dtype.itemsize
