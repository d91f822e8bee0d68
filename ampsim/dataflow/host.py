"""The host and its device at work: values, what they cost, and the spans that they leave.

The host is a processor of the machine that takes `dispatch_s` for each step, live or dead; where
that is 0, steps of one instant are free tasks (docs/decisions/0004-instants.md). The device is a
lane: kernels one after the other, in the order in which they were handed over.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from ampsim.clock import Clock
from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import Node, Tensor
from ampsim.dataflow.memory import Buffer, Maker, Saved
from ampsim.dataflow.plan import Iteration, Ready, Step, Tag
from ampsim.errors import AmpsimError, SimulationError
from ampsim.hardware import HOST, Cluster, Device, occupancy_s
from ampsim.ir import Direction, Standin, standin
from ampsim.machine import Begun, Instant, Lane, LaneTask, Processor, paced
from ampsim.machine.channel import Transfers
from ampsim.trace import COMPUTE_LANE, DISPATCH_LANE, NO_STALENESS, START, Cause, Recorder
from ampsim.user_code import told

_SHAPE: Final = attrgetter("shape")
BACKWARD, UPDATE = int(Direction.BACKWARD), int(Direction.UPDATE)


class KernelCost(NamedTuple):
    """The cost of a step for inputs of given shapes.

    The gradient of a variable is never stale: a run reads a variable as it was when the run began,
    and assigns it once.
    """

    output: Standin | None  # stands for its value in `sleep`
    seconds: float
    kind: int
    size_bytes: int
    steps: int | None  # number of the variable that it steps, if any


@dataclass(slots=True, eq=False)
class Queued:
    """An entry of the device's queue: a kernel, or something that takes no time between two.

    It holds what it reads, and what it computes, until it has ended.
    """

    reads: Sequence[Buffer | Saved] = ()
    writes: Buffer | None = None
    then: Callable[[], None] | None = None  # done when the device has come to it, or computed it
    maker: Maker | None = None  # the step that it is; by default that of what it computes
    cost: KernelCost | None = None  # None of what takes no time and leaves no span
    state: Tag = field(init=False)  # of a kernel
    cause: Cause = field(init=False)  # what let it be handed over, and when
    since_s: float = field(init=False)
    is_stalled: bool = False  # whether what ended just before lets it start, not its cause

    @property
    def lies_there(self) -> bool:
        """Whether all that it reads lies there, which it does unless something is swapped."""
        for owner in self.reads:  # noqa: SIM110  # in half the time of all()
            if not owner.is_readable:
                return False
        return True

    def away(self) -> list[Buffer]:
        """The buffers that it reads and that are not on the device."""
        return [one.buffer for one in self.reads if not one.buffer.lies_there]


class Host:
    """A worker: its host, which runs steps, and its device, which computes.

    All workers share `instant`, `transfers` and what a client is `asked`. If it `is_abstract`,
    floats are shapes without numbers. Where a client decides, `round_trip_s` pass from a predicate,
    computed, to what it decides; it is None where the graph does.
    """

    def __init__(
        self, worker: int, cluster: Cluster, clock: Clock, recorder: Recorder, *, instant: Instant,
        transfers: Transfers, asked: deque[Callable[[Cause], None]], is_abstract: bool, seed: int,
        round_trip_s: float | None = None, light_is_free: bool = False,
    ) -> None:  # fmt: skip
        self.worker = worker
        self.has_others = False  # whether other workers take part, who may make room here
        self.hold(())
        self._round_trip_s = round_trip_s
        self._transfers, self._asked = transfers, asked
        self.cause: Cause = START  # what is being followed at the moment
        self.caused_s = 0.0  # when something last ended, or arrived, that is followed
        self.device: Device = cluster.devices[worker]
        self._clock, self._recorder, self._is_abstract = clock, recorder, is_abstract
        self._light_is_free = light_is_free
        self._instant = instant
        self._cost: KernelCost
        self._queue: deque[Queued] = deque()
        self._running: Queued | None = None
        self._run: Callable[[Step, Iteration], None]
        self._dispatch_s = self.device.dispatch_s
        self._add_span, self._span_number = recorder.spans.append, recorder.span_number
        self.ready: deque[Ready] = deque()  # steps of the present run that can run
        # what is to be dispatched, for the processor
        self.queues: dict[Any, deque[Any]] = {0: self.ready if self._dispatch_s else deque()}
        varying = partial(paced, clock=clock, cluster=cluster, seed=seed)
        self._processor = Processor(worker, clock, self._instant)
        steps = varying(self, self._processor, computes=False)
        clock.start(self._processor.work(steps), f"host {worker}")
        compute = Processor(worker, clock, self._instant)
        self._lane, self._kernel = Lane(compute, clock), LaneTask(0.0, self._ended)
        clock.start(compute.work(varying(self._lane, compute)), f"compute {worker}")

    def hold(self, nodes: Sequence[Node]) -> None:
        """Know a run's sources on this worker: its device's cache may keep variables among them.

        Updates pass over them, over their gradients, and over what an optimizer keeps of them.
        """
        variables = [one for one in nodes if one.operator is op.VARIABLE]
        self._weights = {one for one in variables if one.attributes["held"].trainable}
        self._weight_bytes, self._updated = 0, list[tuple[int, int]]()
        for one in self._weights:
            shape, itemsize = one.outputs[0].static_shape, one.outputs[0].dtype.itemsize
            assert shape is not None, "a variable has a shape"
            size_bytes = math.prod(shape) * itemsize
            self._weight_bytes += size_bytes
            kept = one.attributes["held"].slots.values()
            self._updated.append((max(kept, default=0), size_bytes))

    def start(self, run: Callable[[Step, Iteration], None]) -> None:
        """Begin to run what is ready."""
        self._run = run
        self._clock.call_later(0.0, self._go_on)

    def follow(self, cause: Cause) -> None:
        """Go on with what ends or arrives now."""
        self.cause, self.caused_s = cause, self._clock.now

    @property
    def now_s(self) -> float:
        """The present time."""
        return self._clock.now

    # --- the host as a processor

    def begin(self, kind: Any, queue: deque[Any]) -> Begun:
        """Begin to dispatch the step that was ready first; the last one of all takes no time."""
        ready = queue.popleft()
        seconds = 0.0 if ready[0].places else self._dispatch_s
        return seconds, (ready, self._clock.now)

    def end(self, task: Begun) -> None:
        """Run a step that has been dispatched."""
        (step, iteration, cause), start_s = task[1]
        if not step.places:
            if step.dispatched is None:
                shown = (self.worker, step.node.index, step.node.direction, 0, 0, 0)
                step.dispatched = self._recorder.kinds.number(shown, DISPATCH_LANE)
            row = (step.dispatched, start_s, self._clock.now, NO_STALENESS, iteration.state, cause)
            self._add_span(row)
            self.follow(self._span_number())
        self._run(step, iteration)

    @property
    def has_free(self) -> bool:
        """Whether a step waits whose dispatch takes no time."""
        return not self._dispatch_s and bool(self.ready)

    def do_free(self, now_s: float) -> None:
        """Run all steps that are ready, and those that these make ready."""
        if self._dispatch_s:
            return
        ready, run = self.ready, self._run
        while ready:
            step, iteration, self.cause = ready.popleft()
            run(step, iteration)

    def wake(self) -> None:
        """See that the host looks for steps when this instant settles."""
        if self._dispatch_s:
            self._processor.wake()
        self._instant.add(self._processor)

    def _go_on(self) -> None:
        """See that the host looks for steps, as after something has ended."""
        if self._dispatch_s:
            self._processor.wake()
        else:
            self._instant.add(self._processor)
            self._instant.settle()

    # --- values

    def given(self, step: Step, iteration: Iteration, value: Any) -> Any:
        """Return a feed, a constant or a variable in the form in which steps take it."""
        return value

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step."""
        return self.value_of(step, iteration, iteration.inputs[step.reads])

    def value_of(self, step: Step, iteration: Iteration, inputs: list[Any]) -> Any:
        """The value of a live step on these inputs."""
        if step.is_on_device:
            key = tuple(map(_SHAPE, inputs))
            cost = step.known.get(key)
            if cost is None or step.is_cost_told:
                cost = step.known[key] = self._new_cost(step, iteration, inputs)
            self._cost = cost
            if cost.output is not None:
                return cost.output
        if step.needs_numbers and self._is_abstract:
            for one in inputs:
                if one.__class__ is Standin:
                    return standin((), 8)
        node, kernel = step.node, step.kernel
        assert kernel is not None, f"{step.kind} has a kernel"
        try:
            if step.needs_tag:
                return kernel((node.index, iteration.path), *inputs)
            return kernel(*inputs)
        except AmpsimError:
            raise
        except Exception as error:
            raise self._failure(step, iteration, error) from error

    def _failure(self, step: Step, iteration: Iteration, error: Exception) -> SimulationError:
        where = f" in {iteration.state.tag}" if iteration.path else ""
        return SimulationError(
            f"{step.node.told}{where} failed at {self._clock.now:.9g} s: {told(error)}"
        )

    def _output_shape(self, step: Step, iteration: Iteration, inputs: list[Any]) -> Any:
        """The shape that a step gives; lengths may not fit that were not known before it runs."""
        operator, told = step.node.operator, step.node.attributes
        try:
            if operator.running_shape is not None:
                return operator.running_shape(*inputs, **told)
            return operator.shape(*(one.shape for one in inputs), **told)
        except (ValueError, TypeError, IndexError) as error:
            raise self._failure(step, iteration, error) from error

    def _new_cost(self, step: Step, iteration: Iteration, inputs: list[Any]) -> KernelCost:
        node = step.node
        operator, shapes = node.operator, [one.shape for one in inputs]
        shape = self._output_shape(step, iteration, inputs)
        itemsize = node.outputs[0].dtype.itemsize
        # A number beside an array, as an epoch beside a weight, is a parameter and no operand.
        arrays = zip((*node.inputs, *node.outputs), (*shapes, shape), strict=False)
        _, charged_bytes = max(
            (math.prod(sizes), one.dtype.itemsize) for one, sizes in arrays if one.is_float
        )
        rule, slots_max = operator.work, None
        if operator.running_update is not None:
            rule, slots_max = operator.running_update(*inputs)
        work = rule(shapes, shape, charged_bytes)
        is_light = not work.flop
        rows, elements = None, None
        is_update = node.direction == UPDATE
        if not is_light and not is_update:
            rows, elements = shape[0], math.prod(shapes[1])
            is_turned = node.inputs[0].node.operator is op.OPERATORS["transpose"]
            if is_turned and node.direction == BACKWARD:
                rows, elements = shapes[1][0], math.prod(shape)  # Xᵀ G, of the rows of both
            if _handed_on(node.inputs[1]) in self._weights:
                work = replace(work, weight_bytes=elements * itemsize)
        seconds_on = partial(
            occupancy_s, work=work, is_light=is_light, rows=rows, matrix_elements=elements,
            is_backward=node.direction == BACKWARD,
            resident_bytes=self._weight_bytes,
            updated_bytes=self._updated_bytes(slots_max) if is_update else None,
        )  # fmt: skip
        kind = self._recorder.kinds.number(
            (self.worker, node.index, node.direction, work.flop, work.bytes, work.operations),
            COMPUTE_LANE,
        )
        is_free = is_light and self._light_is_free and not is_update
        if not is_free:
            self._recorder.kinds.seconds_on[kind] = seconds_on
        output = standin(shape, itemsize) if self._is_abstract else None
        steps = node.inputs[0].node.index if operator.name == op.STEP else None
        seconds = 0.0 if is_free else seconds_on(self.device)
        size_bytes = math.prod(shape) * itemsize
        return KernelCost(output, seconds, kind, size_bytes, steps)

    def _updated_bytes(self, slots_max: int | None) -> int:
        """What updates on the worker pass over; a stage of an optimizer may keep less."""
        kept = self._updated
        if slots_max is not None:
            kept = [(min(slots, slots_max), size_bytes) for slots, size_bytes in kept]
        return sum((2 + slots) * size_bytes for slots, size_bytes in kept)

    # --- a client that decides

    def asks(self, step: Step, then: Callable[[], None]) -> bool:
        """Let a client read what a predicate says, if a client decides; `then` when it has."""
        if self._round_trip_s is None:
            return False
        self._asked.append(partial(self._ask, step, then))
        if len(self._asked) == 1:
            self._asked[0](self.cause)
        return True

    def _ask(self, step: Step, then: Callable[[], None], cause: Cause) -> None:
        """Let the client read a predicate; of all workers' it decides one at a time, in turn."""
        self.follow(cause)

        def answered() -> None:
            self._asked.popleft()
            if self._asked:
                self._asked[0](self.cause)
            then()
            self._go_on()

        there = partial(self._send, step, (HOST, self.worker), answered)
        self._send(step, (self.worker, HOST), there)

    def _send(self, step: Step, ends: tuple[int, int], then: Callable[[], None]) -> None:
        """Send a truth value to the client, or back."""
        assert self._round_trip_s is not None, "a client decides"
        now_s, delay_s = self._clock.now, self._round_trip_s / 2
        number = step.node.index
        row = (number, number, 1, now_s, now_s + delay_s, now_s, now_s, *ends, self.cause)
        cause = self._transfers.add(row)

        def arrived() -> None:
            self.follow(cause)
            then()

        self._clock.call_later(delay_s, arrived)

    # --- the device

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let the device spend what the step that was just computed takes; whether it has."""
        cost, has_room = self._cost, self._running is None
        if has_room and not cost.seconds:
            self._append(cost, self._clock.now, iteration.state, self.cause)
            return True
        task = Queued((), None, then)
        task.cost, task.state, task.cause = cost, iteration.state, self.cause
        task.is_stalled = not cost.seconds
        self._queue.append(task)
        if has_room:
            self._advance()
        return False

    def publish(self, value: Any, post: Callable[..., None]) -> None:
        """Hand a value to `post` when the device has computed all that it has."""
        if self._running is None:
            post(self.cause, value)
        else:
            self._queue.append(Queued((), None, lambda: post(self.cause, value)))

    def _advance(self) -> None:
        """Start the next kernel, and do what comes before it and takes no time."""
        while self._queue and self._running is None:
            task = self._queue.popleft()
            if task.cost is None:
                self._finish(task)
            else:
                self._start(task, task.cost)

    def _start(self, task: Queued, cost: KernelCost) -> None:
        if task.is_stalled:
            task.cause = self.cause
        if cost.seconds:
            self._running = task
            self._kernel.seconds = cost.seconds
            self._lane.add(self._kernel)
        else:
            self._record(task, self._clock.now)

    def _ended(self, start_s: float) -> None:
        kernel, self._running = self._running, None
        assert kernel is not None, "what has ended is what was running"
        self._record(kernel, start_s)
        self._follow_kernel()

    def _follow_kernel(self) -> None:
        """Start the next kernel, and then let the host see to what has become ready."""
        self._advance()
        if self.ready:
            self._go_on()

    def _record(self, task: Queued, start_s: float) -> None:
        """Leave the span of a kernel, and go on with what waited for it."""
        assert task.cost is not None, "only kernels leave a span"
        self._append(task.cost, start_s, task.state, task.cause)
        self._finish(task)

    def _finish(self, task: Queued) -> None:
        if task.then is not None:
            task.then()

    def _append(self, cost: KernelCost, start_s: float, state: Tag, cause: Cause) -> None:
        """Record a span that ends now; what follows has it as its cause."""
        now_s = self._clock.now
        staleness = NO_STALENESS
        if cost.steps is not None:
            staleness = 0
            self._recorder.updates.append((cost.steps, now_s, 1, 0.0, 0))
        self._add_span((cost.kind, start_s, now_s, staleness, state, cause))
        number = self._span_number()
        if start_s < now_s:
            self.follow(number)


def _handed_on(tensor: Tensor) -> Node:
    """The node whose output a tensor is, but for its axes and how it came into a loop or branch."""
    handing_on = (op.ENTER_CONSTANT, op.SWITCH, op.OPERATORS["transpose"])
    while tensor.node.operator in handing_on:
        tensor = tensor.node.inputs[0]
    return tensor.node
