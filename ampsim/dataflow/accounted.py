"""Running a graph on a device whose memory has an end: who holds a tensor, when kernels start.

The executor's rules stay as they are. What it delivers are `DeviceTensor`s, held by each input slot
until its step has run, and by each kernel until it has ended. Kernels wait in the order in which
they were handed over; the first one starts when what it reads lies in memory and there is room for
what it computes. What an array makes of its elements takes its turn among them, in no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ampsim.clock import Clock
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.frame import DEAD, Iteration
from ampsim.dataflow.host import Host, Queued
from ampsim.dataflow.memory import CATEGORIES, Buffer, DeviceTensor, Maker, Owner, release
from ampsim.dataflow.owners import Owners
from ampsim.dataflow.plan import Step
from ampsim.dataflow.rendezvous import SentValue
from ampsim.dataflow.swapping import Swapper
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
        taken: list[Owner] = []
        for one in iteration.inputs[step.reads]:
            if one.__class__ is DeviceTensor:
                taken.append(one.owner)
        Executor.run(self, step, iteration)
        made = self._host.owners.made
        if made:
            taken += made
            made.clear()
        for owner in taken:
            owner.release()

    def finish(self) -> None:
        """Let go of what was asked for and of what was fed; then nothing is left."""
        for value in self._asked_for:
            release(value)
        self._host.owners.finish()

    def _receive(self, step: Step, iteration: Iteration, sent: SentValue) -> None:
        if sent.value is not DEAD and step.node.outputs[0].is_float:
            maker = Maker(step.node, iteration.state)
            buffer = self._host.owners.lying(sent.value, maker, (), sent.release)
            sent = SentValue(DeviceTensor(sent.value, buffer))
        super()._receive(step, iteration, sent)

    def _given(self, step: Step, iteration: Iteration) -> None:
        """What is given: it lies on the device for the whole run where it is of floats."""
        value = self._given_to(step.node)
        if step.node.outputs[0].is_float:
            value = self._host.owners.given(value, Maker(step.node, iteration.state))
        self._deliver(step.targets[0], value, iteration)

    _rules: ClassVar[dict[str, Callable[[Any, Step, Iteration], None]]] = {
        **Executor._rules, "constant": _given, "input": _given, "variable": _given,
    }  # fmt: skip


class CountingHost(Host):
    """A host whose device starts a kernel when there is room; its arguments are `Host`'s.

    Attributes:
        memory: the device's.
        owners: says who holds what.
        swapper: moves what lies on stacks; None where nobody asked for it.
        has_others: whether other workers take part, who may make room here.
    """

    def __init__(
        self, worker: int, cluster: Cluster, clock: Clock, recorder: Recorder, **how: Any
    ) -> None:
        super().__init__(worker, cluster, clock, recorder, **how)
        assert self.device.memory_bytes is not None, f"{self.device.name} has no end of memory"
        self._capacity_bytes = self.device.memory_bytes
        self.memory = Memory(self.device.name, CATEGORIES, clock, None)
        self.swapper: Swapper | None = None
        self.has_others = False
        self.owners = Owners(self.memory, self._queue)
        self._varying = partial(
            paced, clock=clock, cluster=cluster, seed=how["seed"], computes=False
        )

    @property
    def memory_rows(self) -> list[tuple[float, ...]]:
        """The fullest moments: worker, time, all bytes, and those of each category."""
        return [
            (self.worker, one.time_s, sum(one.bytes), *one.bytes) for one in self.memory.timeline
        ]

    def swap(self, threshold: float) -> None:
        """Swap what lies on stacks above this share of the memory."""
        above_bytes = math.floor(threshold * self._capacity_bytes)
        copies = CopyLanes(
            self.worker, self.device, self._clock, instant=self._instant, recorder=self._recorder,
            above_bytes=above_bytes,
        )  # fmt: skip
        for name, lane in (("copy-out", copies.outward), ("copy-in", copies.inward)):
            tasks = self._varying(lane, lane.processor)
            self._clock.start(lane.processor.work(tasks), f"{name} {self.worker}")
        self.swapper = self.owners.swapper = Swapper(
            self.memory, self._capacity_bytes, copies, self._copied
        )

    # --- what steps give

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step, with its owner where it lies on the device.

        A kernel then waits for the device, until its turn has come, and there is room.
        """
        inputs = iteration.inputs[step.reads]
        if not step.is_counted:
            return self.value_of(step, iteration, inputs)
        given = inputs if step.is_kernel else inputs.copy()
        reads: list[Any] = []
        for place, one in enumerate(inputs):
            if one.__class__ is DeviceTensor:
                inputs[place] = one.value
                reads.append(one.owner)
        value = self.value_of(step, iteration, inputs)
        maker = Maker(step.node, iteration.state)
        if not step.is_kernel:
            rule = Owners.rules.get(step.kind)
            return value if rule is None else rule(self.owners, maker, given, value)
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

    def do_free(self, now_s: float) -> None:
        """Run all steps that are ready; then, as after each dispatch, the device goes on."""
        if not self._dispatch_s:
            super().do_free(now_s)
        if self._running is None and self._queue:
            self._copy()
            self._advance()
            if self.ready:
                self._go_on()
        elif self.swapper is not None:
            self.swapper.copy(self.cause)

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let `then` follow when the device has computed the kernel that waits since just now."""
        self._queue[-1].then = then
        return False

    def publish(self, value: Any, post: Callable[..., None]) -> None:
        """Hand a value to `post` when the device has come to that; it is held until it is let go.

        What lies on the host meanwhile is brought back first.
        """
        if value.__class__ is not DeviceTensor:
            post(self.cause, value)  # the flow of an array
            return
        owner = value.owner

        def release() -> None:
            owner.release()
            self.wake()

        def start() -> None:
            owner.holders += 1
            post(self.cause, value.value, release)

        owner.holders += 1
        self._queue.append(Queued((owner,), None, start))

    def _advance(self) -> None:
        """Start what can start, and go on with what comes of it."""
        queue, swapper = self._queue, self.swapper
        while queue and self._running is None:
            first = queue[0]
            writes, cost = first.writes, first.cost
            has_room = (
                writes is None
                or self.memory.total_bytes + writes.size_bytes <= self._capacity_bytes
            )
            is_whole = swapper is None or swapper.out_bytes == swapper.in_bytes or first.lies_there
            if not (has_room and is_whole):
                first.is_stalled = True
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
        """Go on when a copy has ended."""
        self.cause = number
        self._copy()
        self._advance()
        if self.ready:
            self._go_on()

    def _copy(self) -> None:
        """Begin the copies for which it is time."""
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
        maker = task.maker or buffer.maker
        node, state = maker.node, maker.state
        remedy = "swap_memory=True" if self.swapper is None else "a lower swap_threshold"
        held = ", ".join(
            f"{name} {format_bytes(memory.held(place))}"
            for place, name in enumerate(CATEGORIES)
            if memory.held(place)
        )
        raise OutOfMemoryError(
            f"{device.name} is out of memory at {format_seconds(self._clock.now)}: "
            f"{node.told}{f' in {state.tag}' if state.tag else ''} asks for "
            f"{buffer.size_bytes:,} bytes, and {memory.total_bytes:,} of "
            f"{self._capacity_bytes:,} are taken ({held or 'by nothing'}); try {remedy}, a "
            "smaller parallel_iterations, or a device with more memory_bytes"
        )
