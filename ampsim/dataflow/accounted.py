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
from typing import Any, ClassVar

from ampsim.clock import Clock
from ampsim.dataflow.executor import Executor
from ampsim.dataflow.frame import Frame, Iteration
from ampsim.dataflow.host import Host, Kernel
from ampsim.dataflow.memory import DeviceMemory, DeviceTensor, Maker, Owner, plain
from ampsim.dataflow.owners import Owners, Queued
from ampsim.dataflow.plan import Plan, Step, Target
from ampsim.dataflow.swapping import Swapper
from ampsim.hardware import Cluster
from ampsim.machine import Begun, CopyLanes, Job, Lane, Processor, paced
from ampsim.trace import Cause, Recorder


class CountingExecutor(Executor):
    """An executor that counts who holds what lies on the device.

    Args:
        plan, feeds, run_ahead: as of `Executor`.
        machine: whose memory it is.
    """

    def __init__(
        self, plan: Plan, feeds: Mapping[str, Any], machine: CountingHost, *, run_ahead: bool
    ) -> None:
        super().__init__(plan, feeds, machine, run_ahead=run_ahead)
        self._host = machine
        self._held_by: dict[tuple[Frame, str], list[Owner]] = {}
        self._results: list[Owner] = []

    def run(self, step: Step, iteration: Iteration) -> None:
        """Run a step; what it has read, and what it has made, is then held by others alone."""
        slots = slice(step.first, step.first + max(step.count, 1))
        taken = [one.owner for one in iteration.inputs[slots] if one.__class__ is DeviceTensor]
        super().run(step, iteration)
        made = self._host.owners.made()
        held = self._kept_by(step, iteration)
        if held is not None:
            held += taken
            taken = []
        for owner in (*taken, *made):
            owner.release()

    def finish(self) -> None:
        """Let go of what was asked for and of what was fed; then nothing is left."""
        for owner in self._results:
            owner.release()
        self._host.owners.finish()

    def _kept_by(self, step: Step, iteration: Iteration) -> list[Owner] | None:
        """Where what a step has read is listed that is needed on; None where it is not."""
        if step.kind == "asked":
            given = self.result or []
            self.result = [one.value if isinstance(one, DeviceTensor) else one for one in given]
            return self._results
        if step.kind == "enter-constant" and step.child is not None:
            frame = self._children.get((iteration, step.child.name))
            if frame is not None:
                return self._held_by.setdefault((frame, "constants"), [])
        waiting = iteration.frame.deferred
        if step.kind == "next-iteration" and any(one is step for one, _value in waiting):
            return self._held_by.setdefault((iteration.frame, "deferred"), [])
        return None

    def _deliver(self, targets: list[Target], value: Any, iteration: Iteration) -> None:
        if value.__class__ is DeviceTensor:
            for target, slot in targets:
                if slot < target.first + max(target.count, 1):  # behind are what it only awaits
                    value.owner.hold()
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

    def _given(self, step: Step, iteration: Iteration) -> None:
        """A constant or an input: it lies on the device for the whole run where it is of floats."""
        node = step.node
        assert node is not None, "a source is a node"
        value = node.attributes["value"] if step.kind == "constant" else self._feeds[node.name]
        if node.outputs[0].is_float:
            value = self._host.owners.given(value, Maker(node, iteration.state))
        self._deliver(step.targets[0], value, iteration)

    _rules: ClassVar[dict[str, Callable[[Any, Step, Iteration], None]]] = {
        **Executor._rules, "constant": _given, "input": _given,
    }  # fmt: skip


class CountingHost(Host):
    """A host whose device starts a kernel when there is room for what it computes.

    Args:
        cluster, clock, recorder, is_abstract, seed: as of `Host`.

    Attributes:
        memory: the device's.
        swapper: moves what lies on stacks; None where nobody asked for it.
        owners: says who holds what.
    """

    def __init__(
        self, cluster: Cluster, clock: Clock, recorder: Recorder, *, is_abstract: bool, seed: int
    ) -> None:
        super().__init__(cluster, clock, recorder, is_abstract=is_abstract, seed=seed)
        self.memory = DeviceMemory(self.device, clock)
        self.swapper: Swapper | None = None
        self._queue: deque[Queued] = deque()
        self._next: Queued
        self._running: Queued | None = None
        self.owners = Owners(self.memory, self._queue)
        self._varying = partial(paced, clock=clock, cluster=cluster, seed=seed, computes=False)

    def swap(self, threshold: float) -> None:
        """Swap what lies on stacks above this share of the memory."""
        lanes: list[Lane] = []
        for name in ("copy-out", "copy-in"):
            processor = Processor(0, self._clock, self._instant)
            lanes.append(Lane(processor, self._clock))
            self._clock.start(processor.work(self._varying(lanes[-1], processor)), f"{name} 0")
        above_bytes = math.floor(threshold * self.memory.capacity_bytes)
        copies = CopyLanes(self.device, lanes[0], lanes[1], self._recorder, above_bytes)
        self.swapper = self.owners.swapper = Swapper(self.memory, copies, self._copied)

    def do_free(self, now_s: float) -> None:
        """Run all steps that are ready; then the device goes on."""
        super().do_free(now_s)
        if not self._dispatch_s:
            self._advance()

    def end(self, task: Begun) -> None:
        """Run a step that has been dispatched; then the device goes on."""
        super().end(task)
        self._advance()

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step, with its owner where it lies on the device."""
        slots = slice(step.first, step.first + step.count)
        given = iteration.inputs[slots]
        iteration.inputs[slots] = [plain(one) for one in given]
        value = super().compute(step, iteration)
        assert step.node is not None, "a step that computes is a node"
        maker = Maker(step.node, iteration.state)
        if not step.is_on_device:
            return self.owners.of_resource(maker, given, value)
        value, self._next = self.owners.of_kernel(maker, given, value)
        return value

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let the device compute the step, when its turn has come, and there is room."""
        kernel = Kernel(self._cost, iteration, self.cause, then)
        self._next.hand_over(kernel, self._clock.now)
        self._queue.append(self._next)
        return False

    # --- the device

    def _advance(self) -> None:
        """Start what can start, and go on with what comes of it."""
        self._copy()
        while self._queue and self._running is None:
            first = self._queue[0]
            if not first.can_start(self.memory):
                first.is_stalled = True
                self._copy()
                self._require_progress(first)
                break
            self._start(self._queue.popleft())
        if self._runs.ready:
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
        swapper = self.swapper
        if task.then is not None:
            task.then()
        if task.writes is not None:
            for saved in task.writes.end():
                if swapper is not None:
                    swapper.add(saved)
        task.let_go()
        self._copy()

    def _copied(self, number: Cause) -> None:
        """Go on when a copy has ended."""
        self.cause = number
        self._advance()

    def _copy(self) -> None:
        """Begin the copies for which it is time."""
        if self.swapper is not None:
            is_waiting = self._queue and self._running is None
            self.swapper.copy(self.cause, self._queue[0].away() if is_waiting else ())

    def _require_progress(self, task: Queued) -> None:
        """Something is under way that can make room for the first task.

        Raises:
            OutOfMemoryError: nothing is.
        """
        is_copying = self.swapper is not None and self.swapper.is_busy
        if is_copying or self._runs.ready or self._processor.is_busy:
            return
        maker, size_bytes = task.asks()
        raise self.memory.full(maker, size_bytes, is_swapping=self.swapper is not None)
