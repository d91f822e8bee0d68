"""The executor: runs a graph with loops and branches, each step when its inputs have come.

A value is live, or dead: it lies on a side of a Switch that was not taken. Each step runs once in
an iteration of its frame, live or dead, so that whoever waits is always told. The rules are those
of Yu et al. (2018), Figure 5. What the figure leaves out, and without which loops hang, is as in
TensorFlow (`core/common_runtime/executor.cc`, `propagator_state.cc`):

==============  ====================================================================================
Switch          the output that the predicate does not name is dead; both are where an input is
Merge           the first live input; dead when all are. Of a loop: what Enter brings, or in a later
                iteration NextIteration, dead or live; so a loop on a side that is not taken ends
Enter           into iteration 0 of the child frame; the first to run opens it. A constant's value
                goes to each iteration, those to come included
Exit            out of the frame; a dead one is held back, and leaves when the frame is over, unless
                a live one left
NextIteration   into the next iteration, which the first live one opens, or the window lets wait; a
                dead one stops here
Send            to the Recv on another worker that has the same tag, dead or live
Recv            what the Send has sent; it begins with its iteration, and waits
any other       computed when all inputs have come; dead where one is, and then not computed
==============  ====================================================================================

An iteration is over when no step of it can run or is running, no frame that it opened is left, and
the one before it is over; iterations are over in order. A frame is over with its last iteration.

The host runs this; devices compute. Handing a step to a device takes the host `dispatch_s`, during
which the device goes on. What a device computes counts as done once it is handed over, for a device
does one thing after the other; only what the host itself reads, an integer or a truth value, must
have been computed (Section 4.4). Without `run_ahead` everything must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ampsim.dataflow import operator as op
from ampsim.dataflow.host import Host
from ampsim.dataflow.memory import DeviceTensor, bare, hold, release
from ampsim.dataflow.plan import DEAD, Frame, Iteration, Plan, Step, Targets
from ampsim.dataflow.rendezvous import Rendezvous, SentValue
from ampsim.errors import OptionError
from ampsim.ir import Standin
from ampsim.trace import Cause


class Executor:
    """Runs what a plan has for the worker of a host.

    It is fed values of inputs and variables by their names. With `run_ahead` a step counts as done
    once its device has it. Spans tell the run's number, `instance`.

    Attributes:
        frames: (tag, iteration, opened in s, over in s) of each iteration of a loop.
        decisions: (name of the Switch, tag, which side, when in s).
        window_max: the most iterations of one frame that were under way at a time.
        stack_depth_max: the most values that lay on one stack at a time.
        result: what was asked for, by its place there.
    """

    def __init__(
        self, plan: Plan, rendezvous: Rendezvous, feeds: Mapping[str, Any], host: Host, *,
        run_ahead: bool, instance: int = 0,
    ) -> None:  # fmt: skip
        self._host, self._run_ahead, self._feeds = host, run_ahead, feeds
        self._ready = host.ready
        self.frames: list[tuple[str, int, float, float]] = []
        self.decisions: list[tuple[str, str, bool, float]] = []
        self.window_max = self.stack_depth_max = 0
        self.result: dict[int, Any] = {}
        self._asked_for: list[Any] = []
        self._rendezvous = rendezvous
        rendezvous.receivers[host.worker] = self._arrived
        self._children: dict[tuple[Iteration, str], Frame] = {}
        self._root = Frame(plan.roots[host.worker], None, instance)
        iteration = self._root.open(host.now_s)
        for step in plan.sources[host.worker]:
            iteration.outstanding += 1
            self._ready.append((step, iteration, host.cause))

    @property
    def is_over(self) -> bool:
        """Whether everything has run."""
        return not self._root.iterations

    def run(self, step: Step, iteration: Iteration) -> None:
        """Run a step whose inputs have come."""
        is_dead = iteration.is_dead[step.number]
        if step.missing is not None and not is_dead and self._waits(step, iteration):
            return
        if is_dead:
            step.dead += 1
        else:
            step.live += 1
        if step.kernel is None:
            self._rules[step.kind](self, step, iteration)
        elif is_dead:
            self._deliver(step.targets[0], DEAD, iteration)
        elif self._compute(step, iteration):
            return
        iteration.outstanding -= 1
        if not iteration.outstanding:
            self._retire(iteration.frame)

    def _waits(self, step: Step, iteration: Iteration) -> bool:
        """Whether a step waits for what comes along no edge; it is then ready when that has."""
        assert step.missing is not None, "it can wait"
        told = step.missing(*map(bare, iteration.inputs[step.reads]))
        if told is not None:
            told.append(lambda: self._ready.append((step, iteration, self._host.cause)))
        return told is not None

    def _ended(self, iteration: Iteration) -> None:
        iteration.outstanding -= 1
        if not iteration.outstanding:
            self._retire(iteration.frame)

    def _compute(self, step: Step, iteration: Iteration) -> bool:
        """Compute a step; whether it goes on until its device, or a client, is done with it."""
        host = self._host
        value = host.compute(step, iteration)
        if step.kind == "push":
            depth = len(bare(iteration.inputs[step.first]).values)
            self.stack_depth_max = max(self.stack_depth_max, depth)
        targets = step.targets[0]
        is_handed = step.is_on_device and self._run_ahead and not step.is_read
        if is_handed or not (step.is_on_device or step.is_decision):
            if is_handed:
                host.occupy(iteration, None)
            self._deliver(targets, value, iteration)
            return False

        def given() -> None:
            self._deliver(targets, value, iteration)
            self._ended(iteration)

        def then() -> None:
            if not step.is_decision or not host.asks(step, given):
                given()

        if step.is_on_device and not host.occupy(iteration, then):
            return True
        if step.is_decision and host.asks(step, given):
            return True
        self._deliver(targets, value, iteration)
        return False

    # --- the rules of the primitives

    def _switch(self, step: Step, iteration: Iteration) -> None:
        false, true = step.targets
        if iteration.is_dead[step.number]:
            self._deliver(false, DEAD, iteration)
            self._deliver(true, DEAD, iteration)
            return
        data, predicate = iteration.inputs[step.reads]
        if isinstance(predicate, Standin):
            raise OptionError(
                f"{step.node.inputs[1].node.told} decides by floating-point numbers, which sleep "
                "mode does not compute, in which explore, search, whatif and solve time runs; use "
                'mode="numeric", or ask forecast'
            )
        side = bool(predicate)
        self.decisions.append((step.node.name, iteration.state.tag, side, self._host.now_s))
        self._deliver(false, DEAD if side else data, iteration)
        self._deliver(true, data if side else DEAD, iteration)

    def _forward(self, step: Step, iteration: Iteration) -> None:
        """A Merge, whose slot has what it gives; and whatever gives what it takes."""
        self._hand_on(step, iteration, iteration)

    def _hand_on(self, step: Step, iteration: Iteration, into: Iteration) -> None:
        """Give what a step takes, once a client has read it, if that decides."""
        value = iteration.inputs[step.first]
        if not step.is_decision or value is DEAD:
            self._deliver(step.targets[0], value, into)
            return

        def given() -> None:
            self._deliver(step.targets[0], value, into)
            self._ended(into)

        into.outstanding += 1
        if not self._host.asks(step, given):
            given()

    def _trigger(self, step: Step, iteration: Iteration) -> None:
        """Never dead: all that it waits for has run, or will not."""
        self._deliver(step.targets[0], np.True_, iteration)

    def _enter(self, step: Step, iteration: Iteration) -> None:
        key = (iteration, step.child.name)
        frame = self._children.get(key)
        if frame is None:  # the first Enter opens it
            frame = self._children[key] = Frame(step.child, iteration, iteration.frame.instance)
            iteration.children += 1
            self._open(frame)
        value = DEAD if iteration.is_dead[step.number] else iteration.inputs[step.first]
        frame.enters -= 1
        if step.kind == "enter-constant":
            frame.constants.append((step, value))
            hold(value)
            for one in list(frame.iterations.values()):
                self._deliver(step.targets[0], value, one)
        else:
            self._deliver(step.targets[0], value, frame.iterations[0])
        self._retire(frame)

    def _exit(self, step: Step, iteration: Iteration) -> None:
        if iteration.is_dead[step.number]:
            return
        frame = iteration.frame
        assert frame.parent is not None, "the graph itself has no Exit"
        frame.left.add(step.number)
        self._hand_on(step, iteration, frame.parent)

    def _next_iteration(self, step: Step, iteration: Iteration) -> None:
        if iteration.is_dead[step.number]:
            return
        frame, value = iteration.frame, iteration.inputs[step.first]
        if iteration.number < frame.latest:
            self._deliver(step.targets[0], value, frame.iterations[iteration.number + 1])
        elif frame.is_full:
            frame.deferred.append((step, value))
            hold(value)
        else:
            self._deliver(step.targets[0], value, self._open(frame))

    def _source(self, step: Step, iteration: Iteration) -> None:
        node = step.node
        value = node.attributes["value"] if node.operator is op.CONSTANT else self._feeds[node.name]
        self._deliver(step.targets[0], self._host.given(step, iteration, value), iteration)

    def _asked(self, step: Step, iteration: Iteration) -> None:
        self._asked_for = iteration.inputs[step.reads]
        self.result = dict(zip(step.places, map(hold, self._asked_for), strict=True))

    # --- other workers

    def _send(self, step: Step, iteration: Iteration) -> None:
        if iteration.is_dead[step.number]:
            self._rendezvous.send(step, iteration.path, self._host.cause, DEAD)
            return
        value = iteration.inputs[step.first]
        post = partial(self._rendezvous.send, step, iteration.path)
        if step.is_on_device:
            self._host.publish(value, post)
        else:
            post(self._host.cause, value)

    def _recv(self, step: Step, iteration: Iteration) -> None:
        sent = self._rendezvous.receive(step, iteration)
        if sent is None:
            iteration.outstanding += 1
        else:
            self._receive(step, iteration, sent)

    def _arrived(self, step: Step, iteration: Iteration, sent: SentValue, cause: Cause) -> None:
        self._host.follow(cause)
        self._receive(step, iteration, sent)
        self._ended(iteration)
        self._host.wake()

    def _receive(self, step: Step, iteration: Iteration, sent: SentValue) -> None:
        if sent.value is DEAD:
            step.live, step.dead = step.live - 1, step.dead + 1
        if sent.release is not None:
            sent.release(self._host.cause)
        self._deliver(step.targets[0], sent.value, iteration)

    # --- what all rules share

    def _deliver(self, targets: Targets, value: Any, iteration: Iteration) -> None:
        """Put a value into the slots for which it is; what has all its inputs can run."""
        inputs, pending, is_dead = iteration.inputs, iteration.pending, iteration.is_dead
        if value.__class__ is DeviceTensor:
            value.owner.holders += targets.readers
        for target, slot, number, is_merge in targets:
            if is_merge:
                if pending[number] <= 0:
                    continue  # it has run
                pending[number] = left = 0 if value is not DEAD else pending[number] - 1
                inputs[slot] = value
                is_dead[number] = value is DEAD
            else:
                pending[number] = left = pending[number] - 1
                inputs[slot] = value
                if value is DEAD:
                    is_dead[number] = 1
            if not left:
                iteration.outstanding += 1
                self._ready.append((target, iteration, self._host.cause))

    def _open(self, frame: Frame) -> Iteration:
        iteration = frame.open(self._host.now_s)
        self.window_max = max(self.window_max, frame.latest - frame.first + 1)
        for step, value in frame.constants:
            self._deliver(step.targets[0], value, iteration)
        return iteration

    def _retire(self, frame: Frame) -> None:
        """Let iterations go that are over, in order, and the frame with the last of them."""
        iterations = frame.iterations
        while (iteration := iterations.get(frame.first)) is not None and iteration.is_over:
            del iterations[frame.first]
            frame.first += 1
            if frame.parent is not None:
                times = (iteration.opened_s, self._host.now_s)
                self.frames.append((iteration.state.tag, iteration.number, *times))
            if frame.deferred:  # the window lets the next iteration begin
                deferred, frame.deferred = frame.deferred, []
                iteration = self._open(frame)
                for step, value in deferred:
                    self._deliver(step.targets[0], value, iteration)
                for _step, value in deferred:
                    release(value)
        if not iterations and frame.parent is not None:
            self._close(frame)

    def _close(self, frame: Frame) -> None:
        """End a frame: what no live Exit has left is dead outside."""
        parent = frame.parent
        assert parent is not None, "the graph itself is closed by nobody"
        for _step, value in frame.constants:
            release(value)
        del self._children[parent, frame.plan.name]
        for step in frame.plan.exits:
            if step.number not in frame.left:
                self._deliver(step.targets[0], DEAD, parent)
        parent.children -= 1
        self._retire(parent.frame)

    _rules: ClassVar[dict[str, Callable[[Executor, Step, Iteration], None]]] = {
        "switch": _switch,
        "merge": _forward,
        "forward": _forward,
        "trigger": _trigger,
        "enter": _enter,
        "enter-constant": _enter,
        "exit": _exit,
        "next-iteration": _next_iteration,
        "constant": _source,
        "input": _source,
        "variable": _source,
        "asked": _asked,
        "send": _send,
        "recv": _recv,
    }
