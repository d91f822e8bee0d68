"""Running a graph on a device whose memory has an end: who holds a tensor, when kernels start.

The executor's rules stay as they are. What it delivers are `DeviceTensor`s, held by each input slot
until its step has run, and by each kernel until it has ended. Kernels wait in the order in which
they were handed over; the first one starts when what it reads lies in memory and there is room for
what it computes. What an array makes of its elements takes its turn among them, in no time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from ampsim.clock import Clock
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.frame import DEAD, Frame, Iteration
from ampsim.dataflow.host import Host, Kernel
from ampsim.dataflow.memory import DeviceMemory, DeviceTensor, Maker, Owner, plain
from ampsim.dataflow.owners import Owners, Queued
from ampsim.dataflow.plan import Plan, Step, Targets
from ampsim.dataflow.rendezvous import Rendezvous, SentValue
from ampsim.dataflow.swapping import Swapper
from ampsim.hardware import Cluster
from ampsim.machine import CopyLanes, Job, paced
from ampsim.trace import Cause, Recorder

_KEEPING: Final = ("asked", "enter-constant", "next-iteration")
"""Kinds of steps of which others may need on what they have read."""


class CountingExecutor(Executor):
    """An executor that counts who holds what lies on the device.

    Args:
        plan, rendezvous, feeds, run_ahead, instance: as of `Executor`.
        machine: whose memory it is.
    """

    def __init__(
        self,
        plan: Plan,
        rendezvous: Rendezvous,
        feeds: Mapping[str, Any],
        machine: CountingHost,
        *,
        run_ahead: bool,
        instance: int = 0,
    ) -> None:
        super().__init__(plan, rendezvous, feeds, machine, run_ahead=run_ahead, instance=instance)
        self._host = machine
        self._held_by: dict[tuple[Frame, str], list[Owner]] = {}
        self._results: list[Owner] = []

    def run(self, step: Step, iteration: Iteration) -> None:
        """Run a step; what it has read, and what it has made, is then held by others alone."""
        if step.is_on_device and step.kernel is not None and not iteration.is_dead[step.number]:
            super().run(step, iteration)  # its kernel lets go of what it reads
            return
        first = step.first
        taken = [
            one.owner
            for one in iteration.inputs[first : first + (step.count or 1)]
            if one.__class__ is DeviceTensor
        ]
        super().run(step, iteration)
        if taken and step.kind in _KEEPING:
            held = self._kept_by(step, iteration)
            if held is not None:
                held += taken
                taken = []
        owners = self._host.owners
        if owners.has_made:
            taken += owners.made()
        for owner in taken:
            owner.release()

    def finish(self) -> None:
        """Let go of what was asked for and of what was fed; then nothing is left."""
        for owner in self._results:
            owner.release()
        self._host.owners.finish()

    def _kept_by(self, step: Step, iteration: Iteration) -> list[Owner] | None:
        """Where what a step has read is listed that is needed on; None where it is not."""
        if step.kind == "asked":
            self.result = {place: plain(one) for place, one in self.result.items()}
            return self._results
        if step.kind == "enter-constant" and step.child is not None:
            frame = self._children.get((iteration, step.child.name))
            if frame is not None:
                return self._held_by.setdefault((frame, "constants"), [])
        waiting = iteration.frame.deferred
        if step.kind == "next-iteration" and any(one is step for one, _value in waiting):
            return self._held_by.setdefault((iteration.frame, "deferred"), [])
        return None

    def _deliver(self, targets: Targets, value: Any, iteration: Iteration) -> None:
        if value.__class__ is DeviceTensor and targets.readers:
            value.owner.hold(targets.readers)
        super()._deliver(targets, value, iteration)

    def _resume(self, frame: Frame) -> None:
        super()._resume(frame)
        self._let_go(frame, "deferred")

    def _close(self, frame: Frame) -> None:
        self._let_go(frame, "constants")
        super()._close(frame)

    def _let_go(self, frame: Frame, what: str) -> None:
        for owner in self._held_by.pop((frame, what), ()):
            owner.release()

    def _receive(self, step: Step, iteration: Iteration, sent: SentValue) -> None:
        node = step.node
        assert node is not None, "a Recv is a node"
        if sent.value is not DEAD and node.outputs[0].is_float:
            maker = Maker(node, iteration.state)
            sent = SentValue(self._host.owners.received(sent, maker))
        super()._receive(step, iteration, sent)

    def _given(self, step: Step, iteration: Iteration) -> None:
        """What is given: it lies on the device for the whole run where it is of floats."""
        node = step.node
        assert node is not None, "a source is a node"
        value = self._given_to(node)
        if node.outputs[0].is_float:
            value = self._host.owners.given(value, Maker(node, iteration.state))
        self._deliver(step.targets[0], value, iteration)

    _rules: ClassVar[dict[str, Callable[[Any, Step, Iteration], None]]] = {
        **Executor._rules, "constant": _given, "input": _given, "variable": _given,
    }  # fmt: skip


class CountingHost(Host):
    """A host whose device starts a kernel when there is room for what it computes.

    Args:
        worker, cluster, clock, recorder, instant, is_abstract, seed: as of `Host`.

    Attributes:
        memory: the device's.
        swapper: moves what lies on stacks; None where nobody asked for it.
        owners: says who holds what.
        has_others: whether other workers take part, who may make room here.
    """

    def __init__(
        self, worker: int, cluster: Cluster, clock: Clock, recorder: Recorder, **how: Any
    ) -> None:
        super().__init__(worker, cluster, clock, recorder, **how)
        self.memory = DeviceMemory(worker, self.device, clock)
        self.swapper: Swapper | None = None
        self.has_others = False
        self._queue: deque[Queued] = deque()
        self._next: Queued
        self._running: Queued | None = None
        self.owners = Owners(self.memory, self._queue)
        self._varying = partial(
            paced, clock=clock, cluster=cluster, seed=how["seed"], computes=False
        )

    def swap(self, threshold: float) -> None:
        """Swap what lies on stacks above this share of the memory."""
        above_bytes = math.floor(threshold * self.memory.capacity_bytes)
        copies = CopyLanes(
            self.worker, self.device, self._clock, instant=self._instant, recorder=self._recorder,
            above_bytes=above_bytes,
        )  # fmt: skip
        for name, lane in (("copy-out", copies.outward), ("copy-in", copies.inward)):
            tasks = self._varying(lane, lane.processor)
            self._clock.start(lane.processor.work(tasks), f"{name} {self.worker}")
        self.swapper = self.owners.swapper = Swapper(self.memory, copies, self._copied)

    def do_free(self, now_s: float) -> None:
        """Run all steps that are ready; then, as after each dispatch, the device goes on."""
        super().do_free(now_s)
        self._advance()

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step, with its owner where it lies on the device."""
        first = step.first
        given = iteration.inputs[first : first + step.count]
        inputs = [one.value if one.__class__ is DeviceTensor else one for one in given]
        value = self.value_of(step, iteration, inputs)
        node = step.node
        assert node is not None, "a step that computes is a node"
        if step.is_on_device:
            reads = [one.owner for one in given if one.__class__ is DeviceTensor]
            is_view = step.is_view and len(reads) == 1
            value, self._next = self.owners.of_kernel(
                Maker(node, iteration.state), reads, value,
                None if is_view else self._cost.size_bytes,
            )  # fmt: skip
            return value
        if node.operator.is_stateful:
            return self.owners.of_resource(Maker(node, iteration.state), given, value)
        return value

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let the device compute the step, when its turn has come, and there is room."""
        kernel = Kernel(self._cost, iteration, self.cause, then)
        self._next.hand_over(kernel, self._clock.now)
        self._queue.append(self._next)
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
            owner.hold(1)
            post(self.cause, value.value, release)

        owner.hold(1)
        self._queue.append(Queued((owner,), None, start))

    # --- the device

    def _advance(self) -> None:
        """Start what can start, and go on with what comes of it."""
        queue, swapper = self._queue, self.swapper
        if swapper is not None:
            self._copy()
        while queue and self._running is None:
            first = queue[0]
            writes = first.writes
            has_room = writes is None or self.memory.has_room(writes.size_bytes)
            is_whole = swapper is None or not swapper.has_away or first.lies_there
            if not (has_room and is_whole):
                first.is_stalled = True
                self._copy()
                self._require_progress(first)
                break
            queue.popleft()
            self._start(first)
        if self.ready:
            self._go_on()

    def _start(self, task: Queued) -> None:
        """Start a kernel; or do what takes no time."""
        if task.writes is not None:
            task.writes.begin()
        kernel, now_s = task.kernel, self._clock.now
        if kernel is None:
            self._finish(task)
            return
        if task.is_stalled or (not kernel.cost.seconds and task.since_s < now_s):
            kernel.cause = self.cause  # what has ended just now let it start
        if kernel.cost.seconds:
            self._running = task
            self._lane.add(Job(kernel.cost.seconds, partial(self._computed, task)))
        else:
            self._append(kernel.cost.kind, now_s, kernel.iteration, kernel.cause)
            self._finish(task)

    def _computed(self, task: Queued, start_s: float) -> None:
        """Record a kernel that has ended."""
        kernel, self._running = task.kernel, None
        assert kernel is not None, "only kernels take time"
        self._append(kernel.cost.kind, start_s, kernel.iteration, kernel.cause)
        self._finish(task)
        self._advance()

    def _finish(self, task: Queued) -> None:
        """Let go of what a task has read; what was computed may be swapped from now on."""
        if task.kernel is not None and task.kernel.then is not None:
            task.kernel.then()
        swapper, writes = self.swapper, task.writes
        if task.then is not None:
            task.then()
        if writes is not None:
            if swapper is not None:
                for saved in writes.saved:
                    swapper.add(saved)
            writes.end()
        task.let_go()
        if swapper is not None:
            self._copy()

    def _copied(self, number: Cause) -> None:
        """Go on when a copy has ended."""
        self.cause = number
        self._advance()

    def _copy(self) -> None:
        """Begin the copies for which it is time."""
        swapper = self.swapper
        if swapper is not None:
            is_waiting = swapper.has_away and self._running is None and self._queue
            swapper.copy(self.cause, self._queue[0].away() if is_waiting else ())

    def _require_progress(self, task: Queued) -> None:
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
        if self._queue:
            maker, size_bytes = self._queue[0].asks()
            raise self.memory.full(maker, size_bytes, is_swapping=self.swapper is not None)
