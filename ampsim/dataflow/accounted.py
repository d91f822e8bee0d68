"""Running a graph on a device whose memory has an end: who holds a tensor, when kernels start.

The executor's rules stay as they are. What it delivers are `DeviceTensor`s, held by each input slot
until its step has run, and by each kernel until it has ended. Each kernel computes into bytes of
its own, but for one that is charged nothing, as `identity` or `transpose`: its output is its input,
seen otherwise. Kernels wait in the order in which they were handed over; the first one starts when
what it reads lies in memory and there is room for what it computes. What an array makes of its
elements takes its turn among them, in no time. What an integer or truth value takes counts while
its kernel runs, for then the host has it. Flows of arrays, and integers that are fed or that the
host computes, are the host's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from ampsim.clock import Clock
from ampsim.dataflow import operator as op
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.host import Host, Queued
from ampsim.dataflow.memory import (
    CATEGORIES,
    Buffer,
    DeviceTensor,
    Maker,
    Owner,
    Resource,
    Saved,
    Swapper,
    bare,
    hold,
    release,
)
from ampsim.dataflow.plan import DEAD, Iteration, Step
from ampsim.dataflow.rendezvous import SentValue
from ampsim.errors import OutOfMemoryError
from ampsim.hardware import Cluster
from ampsim.machine import CopyLanes, Memory, paced
from ampsim.trace import Cause, Recorder
from ampsim.units import format_bytes, format_seconds


class CountingExecutor(Executor):
    """An executor that counts who holds what lies on the device; its arguments are `Executor`'s."""

    _host: CountingHost

    def run(self, step: Step, iteration: Iteration) -> None:
        """Run a step; what it has read, and what it has made, is then held by others alone."""
        if not step.is_counted:
            Executor.run(self, step, iteration)
            return
        if step.is_kernel and not iteration.is_dead[step.number]:
            step.live += 1  # its kernel lets go of what it reads
            if self._run_ahead and not step.is_read:
                self._deliver(step.targets[0], self._host.compute(step, iteration), iteration)
            elif self._compute(step, iteration):
                return
            iteration.outstanding -= 1
            if not iteration.outstanding:
                self._retire(iteration.frame)
            return
        inputs = iteration.inputs[step.reads]
        taken: list[Owner] = [one.owner for one in inputs if one.__class__ is DeviceTensor]
        Executor.run(self, step, iteration)
        made = self._host.made
        if made:
            taken += made
            made.clear()
        for owner in taken:
            owner.release()

    def _waits(self, step: Step, iteration: Iteration) -> bool:
        is_waiting = super()._waits(step, iteration)
        for one in iteration.inputs[step.reads] if is_waiting else ():
            hold(one)  # until it runs again
        return is_waiting

    def finish(self) -> None:
        """Let go of what was asked for and of what was fed; then nothing is left."""
        for value in self._asked_for:
            release(value)
        self._host.finish()

    def _receive(self, step: Step, iteration: Iteration, sent: SentValue) -> None:
        if sent.value is not DEAD and step.node.outputs[0].is_float:
            maker, host = Maker(step.node, iteration.state), self._host
            let_go = sent.release
            then = None if let_go is None else lambda: let_go(host.cause)
            sent = SentValue(DeviceTensor(sent.value, host.lying(sent.value, maker, (), then)))
        super()._receive(step, iteration, sent)


class CountingHost(Host):
    """A host whose device starts a kernel when there is room; its arguments are as `Host`'s.

    What lies on stacks is swapped above a `threshold`, a share of the memory; never if it is None.
    """

    def __init__(
        self, worker: int, cluster: Cluster, clock: Clock, recorder: Recorder, *,
        threshold: float | None, **how: Any,
    ) -> None:  # fmt: skip
        super().__init__(worker, cluster, clock, recorder, **how)
        self._capacity_bytes = self.device.memory_bytes or math.inf
        self.memory = Memory(self.device.name, CATEGORIES, clock, None)
        self.swapper: Swapper | None = None  # None where nobody asked for it
        self.made: list[Owner] = []  # what the step holds that was run just now: it has made it
        self._inputs: list[Owner] = []
        self._pushes = 0
        if threshold is None:
            return
        copies = CopyLanes(
            worker, self.device, clock, instant=self._instant, recorder=recorder,
            above_bytes=math.floor(threshold * self._capacity_bytes),
        )  # fmt: skip
        for name, lane in (("copy-out", copies.outward), ("copy-in", copies.inward)):
            tasks = paced(lane, lane.processor, clock, cluster, seed=how["seed"], computes=False)
            clock.start(lane.processor.work(tasks), f"{name} {worker}")
        self.swapper = Swapper(self.memory, self._capacity_bytes, copies, self._copied)

    @property
    def memory_rows(self) -> list[tuple[float, ...]]:
        """The fullest moments: worker, time, all bytes, and those of each category."""
        return [
            (self.worker, one.time_s, sum(one.bytes), *one.bytes) for one in self.memory.timeline
        ]

    # --- what steps give

    def given(self, step: Step, iteration: Iteration, value: Any) -> Any:
        """Give a value; floats lie on the device for the whole run, with a variable's slots."""
        node = step.node
        if not node.outputs[0].is_float:
            return value
        is_kept = node.operator is op.VARIABLE
        slots = sum(node.attributes["held"].slots.values()) if is_kept else 0
        maker = Maker(node, iteration.state)
        size_bytes = (1 + slots) * _size_bytes(value, maker)
        buffer = Buffer(self.memory, size_bytes, maker, is_input=True)
        self._keep_to_end(buffer)
        self._queue.append(Queued((), buffer))
        return DeviceTensor(value, buffer)

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step, with its owner where it lies on the device.

        A kernel then waits for the device, until its turn has come, and there is room.
        """
        inputs = iteration.inputs[step.reads]
        if not step.is_counted:
            return self.value_of(step, iteration, inputs)
        maker = Maker(step.node, iteration.state)
        rule = None if step.is_kernel else self._rules.get(step.kind)
        if rule is not None:
            given = inputs.copy()
            inputs[:1] = map(bare, inputs[:1])  # the handle, or what is assigned
            return rule(self, maker, given, self.value_of(step, iteration, inputs))
        reads: list[Any] = []
        for place, one in enumerate(inputs):
            if one.__class__ is DeviceTensor:
                inputs[place] = one.value
                reads.append(one.owner)
        value = self.value_of(step, iteration, inputs)
        if not step.is_kernel:
            return value
        cost = self._cost
        if step.is_view and len(reads) == 1:
            task, result = Queued(reads, None, None, maker), DeviceTensor(value, reads[0])
        else:
            buffer = Buffer(self.memory, cost.size_bytes, maker)
            task = Queued(reads, buffer)
            result = value if step.is_read else DeviceTensor(value, buffer)
        task.cost, task.state = cost, iteration.state
        task.cause, task.since_s = self.cause, self._clock.now
        self._queue.append(task)
        return result

    # --- the device

    @property
    def has_free(self) -> bool:
        """Whether a step waits whose dispatch takes no time, or the device may go on."""
        return super().has_free or bool(self._queue) or self.swapper is not None

    def do_free(self, now_s: float) -> None:
        """Run all steps that are ready; then, as after each dispatch, the device goes on."""
        super().do_free(now_s)
        self._use_room()

    def wake(self) -> None:
        """See that the host looks for steps, and the device goes on, however busy the host is."""
        super().wake()
        if self._processor.is_busy:
            self._use_room()

    def _use_room(self) -> None:
        """Begin the copies and the kernel for which there is room by now."""
        self._copy()
        if self._running is None and self._queue:
            super()._follow_kernel()

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let `then` follow when the device has computed the kernel that waits since just now.

        At once where that takes no time and the device is idle, as without an end.
        """
        task = self._queue[-1]
        task.then = then
        assert task.cost is not None, "a kernel has a cost"
        if not task.cost.seconds:
            self._advance(is_settled=False)
        return False

    def publish(self, value: Any, post: Callable[..., None]) -> None:
        """Hand a value to `post` when the device has come to that; it is held until it is let go.

        What lies on the host meanwhile is brought back first.
        """
        if value.__class__ is not DeviceTensor:  # the flow of an array
            self._queue.append(Queued((), None, lambda: post(self.cause, value)))
            self._advance(is_settled=False)
            return
        owner = value.owner

        def release(cause: Cause) -> None:
            owner.release()
            if self.swapper is not None or (self._queue and self._running is None):
                self.follow(cause)  # it lets what waits for room start
                self.wake()

        def start() -> None:
            owner.holders += 1
            post(self.cause, value.value, release)

        owner.holders += 1
        self._queue.append(Queued((owner,), None, start))
        self._advance(is_settled=False)  # at once where the device is idle, as without an end

    def _follow_kernel(self) -> None:
        """Do what follows a kernel and takes no time, on the device and then here; the next starts.

        So a kernel finds what these let go of, and what is sent goes as without an end of memory.
        """
        if self.ready:
            self._advance(is_settled=False, starts_kernels=False)
            self._go_on()
        super()._follow_kernel()

    def _advance(self, *, is_settled: bool = True, starts_kernels: bool = True) -> None:
        """Start the next kernel; where one waits and all is settled, something is to make room."""
        queue, swapper = self._queue, self.swapper
        while queue and self._running is None:
            first = queue[0]
            writes, cost = first.writes, first.cost
            if cost is not None and cost.seconds and not starts_kernels:
                break
            has_room = (
                writes is None
                or self.memory.total_bytes + writes.size_bytes <= self._capacity_bytes
            )
            is_whole = swapper is None or swapper.out_bytes == swapper.in_bytes or first.lies_there
            if not (has_room and is_whole):
                first.is_stalled = is_settled or first.is_stalled
                if is_settled:
                    self._require_progress()
                break
            queue.popleft()
            if writes is not None:
                writes.begin()
            if cost is None:
                self._finish(first)
                continue
            first.is_stalled |= not cost.seconds and first.since_s < self._clock.now
            self._start(first, cost)

    def _finish(self, task: Queued) -> None:
        """Let go of what a task has read; what was computed may be swapped from now on."""
        swapper, writes = self.swapper, task.writes
        if task.then is not None:
            task.then()
        if writes is not None:
            if swapper is not None:
                for saved in writes.saved:
                    swapper.add(saved)
            writes.end()
        for owner in task.reads:
            owner.release()
        self._copy()

    def _copied(self, number: Cause) -> None:
        self.follow(number)
        self._copy()
        super()._follow_kernel()

    def _copy(self) -> None:
        if self.swapper is not None:
            is_waiting = self._running is None and self._queue
            self.swapper.copy(self.cause, self._queue[0].away if is_waiting else None)

    def _require_progress(self) -> None:
        """Something is under way, here or on another worker, that can make room for the first task.

        Raises:
            OutOfMemoryError: nothing is.
        """
        is_copying = self.swapper is not None and self.swapper.is_busy
        is_running = self.ready or self._asked or self._processor.is_busy
        if not (is_copying or is_running or self.has_others):
            self.require_room()

    @property
    def is_copying(self) -> bool:
        """Whether a copy to the host is under way."""
        return self.swapper is not None and self.swapper.is_leaving

    @property
    def is_waiting(self) -> bool:
        """Whether something waits for the device, and for room in its memory once all is quiet."""
        return bool(self._queue)

    def end_copy(self) -> None:
        """Let the clock wait for the copy to the host if something waits for room; else cut it."""
        assert self.swapper is not None, "somebody copies"
        self.swapper.end_copy(self._clock.now, is_needed=self.is_waiting)

    def require_room(self) -> None:
        """Nothing waits for memory, now that nothing makes room any more.

        Raises:
            OutOfMemoryError: something does.
        """
        if not self._queue:
            return
        task, memory, device = self._queue[0], self.memory, self.device
        away = task.away()
        buffer = away[0] if away else task.writes
        assert buffer is not None, "what waits for memory needs bytes"
        maker = task.maker or (task.writes or buffer).maker
        node, state = maker.node, maker.state
        remedy = "swap_memory=True" if self.swapper is None else "a lower swap_threshold"
        held = ", ".join(
            f"{name} {format_bytes(memory.held(place))}"
            for place, name in enumerate(CATEGORIES)
            if memory.held(place)
        )
        raise OutOfMemoryError(
            f"worker {self.worker} ({device.name}) is out of memory at "
            f"{format_seconds(self._clock.now)}: {node.told}"
            f"{f' in {state.tag}' if state.tag else ''} asks for "
            f"{buffer.size_bytes:,} bytes, and {memory.total_bytes:,} of "
            f"{device.memory_bytes:,} are taken ({held or 'by nothing'}); try {remedy}, a "
            "smaller parallel_iterations, or a device with more memory_bytes"
        )

    # --- who holds what the steps give: what an array makes takes its turn in the device's queue

    def lying(
        self, value: Any, maker: Maker, reads: Sequence[Buffer | Saved],
        then: Callable[[], None] | None = None,
    ) -> Buffer:  # fmt: skip
        """The bytes of a value that is made of others; it lies there in the device's turn."""
        buffer = Buffer(self.memory, _size_bytes(value, maker), maker)
        self._queue.append(Queued(reads, buffer, then))
        return buffer

    def finish(self) -> None:
        """Let go of what was given; then nothing is left."""
        for buffer in self._inputs:
            buffer.release()
        self._inputs.clear()
        left = self.memory.total_bytes
        assert not left, f"{left} bytes of memory are held by nobody"

    def _keep_to_end(self, owner: Owner) -> None:
        owner.holders += 1
        self._inputs.append(owner)

    def _shared(self, value: Any, owner: Owner) -> DeviceTensor:
        """A value that lies where another does."""
        owner.holders += 1
        self.made.append(owner)
        return DeviceTensor(value, owner)

    def _new_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        value.drop = self._drop
        self.made.append(value)
        return DeviceTensor(value, value)

    def _drop(self, resource: Resource) -> None:
        """Nobody has a handle any more; the device may not have come to that."""
        self._queue.append(Queued((), None, resource.let_go))

    def _same_resource(self, maker: Maker, given: list[Any], value: Any) -> Any:
        return self._shared(value, given[0].owner)

    def _push(self, maker: Maker, given: list[Any], pushed: Any) -> Any:
        if pushed.__class__ is not DeviceTensor:
            return pushed
        stack, buffer = given[0].value, pushed.owner.buffer
        if buffer is None:  # a handle
            pushed.owner.holders += 1
            return pushed
        self._pushes += 1
        saved = Saved(buffer, stack, maker, self._pushes)
        stack.values[-1] = DeviceTensor(pushed.value, saved)
        stack.pushed.append(saved)
        if buffer.is_computed and self.swapper is not None:
            self.swapper.add(saved)
        return pushed

    def _pop(self, maker: Maker, given: list[Any], popped: Any) -> Any:
        if popped.__class__ is DeviceTensor:
            owner = popped.owner
            self.made.append(owner)  # the stack has held it
            if isinstance(owner, Saved):
                owner.holders += 1
                self._queue.append(Queued((), None, partial(self._popped, owner)))
        return popped

    def _popped(self, saved: Saved) -> None:
        """The device has come to a pop; at the first of its stack, what is away is brought back."""
        for one in saved.pop():
            if self.swapper is not None:
                self.swapper.bring(one)
        saved.release()

    def _write(self, maker: Maker, given: list[Any], flow: Any) -> Any:
        """Hold what is written to an array, or added to its gradients."""
        written = given[-2]
        if written.__class__ is DeviceTensor:
            given[0].owner.keep(written.owner)
        return bare(flow)

    def _gathered(self, maker: Maker, given: list[Any], value: Any) -> Any:
        """Account for what an array operator returns: one element, or several made one."""
        if value.__class__ is DeviceTensor:
            return self._shared(value.value, value.owner)
        if not maker.node.outputs[0].is_float:
            return value
        parts = given[0].value.parts(*given[1:-1])
        reads = list(dict.fromkeys(one.owner for one in parts))
        for owner in reads:
            owner.holders += 1
        return self._shared(value, self.lying(value, maker, reads))

    def _assigned(self, maker: Maker, given: list[Any], value: Any) -> Any:
        """Keep the array that a variable takes for the next run in memory until this run ends."""
        if given[0].__class__ is not DeviceTensor:
            return value
        self._keep_to_end(given[0].owner)
        return self._shared(value, given[0].owner)

    _rules: ClassVar[dict[str, Callable[[Any, Maker, list[Any], Any], Any]]] = {
        "assign": _assigned,
        "assign_rows": _assigned,
        "stack": _new_resource,
        "push": _push,
        "pop": _pop,
        "array": _new_resource,
        **dict.fromkeys(("array_write", "array_unstack", "array_add", "array_add_all"), _write),
        **dict.fromkeys(("array_read", "array_stack", "array_sum", "array_sums"), _gathered),
        "array_gradient": _same_resource,
    }


def _size_bytes(value: Any, maker: Maker) -> int:
    return math.prod(value.shape) * maker.node.outputs[0].dtype.itemsize
