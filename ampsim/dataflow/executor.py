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

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from ampsim.dataflow.frame import DEAD, Frame, Iteration
from ampsim.dataflow.plan import Plan, Step, Target
from ampsim.errors import OptionError
from ampsim.ir import Standin
from ampsim.trace import START, Cause

Ready: TypeAlias = "tuple[Step, Iteration, Cause]"
"""A step whose inputs have come, where it runs, and what made it ready."""


class Machine(Protocol):
    """What computes: kernels, and the device that they occupy."""

    cause: Cause
    """What is being followed at the moment: the last thing that ended."""

    @property
    def now_s(self) -> float:
        """The present time."""
        ...

    def compute(self, step: Step, iteration: Iteration) -> Any:
        """The value of a live step, of an ordinary operator."""
        ...

    def occupy(self, iteration: Iteration, then: Callable[[], None] | None) -> bool:
        """Let the device spend what the step takes that was computed just now.

        Returns: whether it has been spent already; if not, `then` is called when it has.
        """
        ...


class Executor:
    """Runs one plan.

    Args:
        plan: what to run.
        feeds: values of the graph's inputs, by name.
        machine: computes.
        run_ahead: whether a step counts as done once its device has it.

    Attributes:
        ready: steps that can run, the first that was ready first.
        frames: (tag, iteration, opened in s, over in s) of each iteration of a loop.
        decisions: (name of the Switch, tag, which side, when in s).
        window_max: the most iterations of one frame that were under way at a time.
        result: what was asked for; None before it is there.
    """

    def __init__(
        self, plan: Plan, feeds: Mapping[str, Any], machine: Machine, *, run_ahead: bool
    ) -> None:
        self._machine, self._run_ahead, self._feeds = machine, run_ahead, feeds
        self.ready: deque[Ready] = deque()
        self.frames: list[tuple[str, int, float, float]] = []
        self.decisions: list[tuple[str, str, bool, float]] = []
        self.window_max = 0
        self.result: list[Any] | None = None
        self._children: dict[tuple[Iteration, str], Frame] = {}
        self._root = Frame(plan.root, None)
        iteration = self._root.open(machine.now_s)
        for step in plan.sources:
            iteration.outstanding += 1
            self.ready.append((step, iteration, START))

    @property
    def is_over(self) -> bool:
        """Whether everything has run."""
        return not self._root.iterations

    def run(self, step: Step, iteration: Iteration) -> None:
        """Run a step whose inputs have come."""
        is_dead = iteration.is_dead[step.number]
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

    def _compute(self, step: Step, iteration: Iteration) -> bool:
        """Compute a step; whether it goes on until its device has spent what it takes."""
        value = self._machine.compute(step, iteration)
        targets = step.targets[0]
        if not step.is_on_device:
            self._deliver(targets, value, iteration)
            return False
        if self._run_ahead and not step.is_read:
            self._machine.occupy(iteration, None)
            self._deliver(targets, value, iteration)
            return False

        def then() -> None:
            self._deliver(targets, value, iteration)
            iteration.outstanding -= 1
            if not iteration.outstanding:
                self._retire(iteration.frame)

        if not self._machine.occupy(iteration, then):
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
        data, predicate = iteration.inputs[step.first : step.first + 2]
        side = self._side(step, iteration, predicate)
        self._deliver(false, DEAD if side else data, iteration)
        self._deliver(true, data if side else DEAD, iteration)

    def _forward(self, step: Step, iteration: Iteration) -> None:
        """A Merge, whose slot has what it gives; and whatever gives what it takes."""
        self._deliver(step.targets[0], iteration.inputs[step.first], iteration)

    def _trigger(self, step: Step, iteration: Iteration) -> None:
        """Never dead: all that it waits for has run, or will not."""
        self._deliver(step.targets[0], True, iteration)

    def _enter(self, step: Step, iteration: Iteration) -> None:
        frame = self._child(step, iteration)
        value = DEAD if iteration.is_dead[step.number] else iteration.inputs[step.first]
        frame.enters -= 1
        if step.kind == "enter-constant":
            frame.constants.append((step, value))
            for one in list(frame.iterations.values()):
                self._deliver(step.targets[0], value, one)
        else:
            self._deliver(step.targets[0], value, frame.iterations[0])
        self._retire(frame)

    def _child(self, step: Step, iteration: Iteration) -> Frame:
        """The frame that an Enter leads into; the first Enter opens it."""
        plan = step.child
        assert plan is not None, "an Enter leads into a frame"
        key = (iteration, plan.name)
        if key not in self._children:
            frame = self._children[key] = Frame(plan, iteration)
            iteration.children += 1
            self._open(frame)
        return self._children[key]

    def _exit(self, step: Step, iteration: Iteration) -> None:
        if iteration.is_dead[step.number]:
            return
        frame = iteration.frame
        assert frame.parent is not None, "the graph itself has no Exit"
        frame.left.add(step.number)
        self._deliver(step.targets[0], iteration.inputs[step.first], frame.parent)

    def _next_iteration(self, step: Step, iteration: Iteration) -> None:
        if iteration.is_dead[step.number]:
            return
        frame, value = iteration.frame, iteration.inputs[step.first]
        if iteration.number < frame.latest:
            self._deliver(step.targets[0], value, frame.iterations[iteration.number + 1])
        elif frame.deferred or frame.is_full:
            frame.deferred.append((step, value))
        else:
            self._deliver(step.targets[0], value, self._open(frame))

    def _source(self, step: Step, iteration: Iteration) -> None:
        assert step.node is not None, "a source is a node"
        if step.kind == "input":
            value = self._feeds[step.node.name]
        else:
            value = step.node.attributes["value"]
        self._deliver(step.targets[0], value, iteration)

    def _asked(self, step: Step, iteration: Iteration) -> None:
        self.result = iteration.inputs[step.first : step.first + step.count]

    # --- what all rules share

    def _side(self, step: Step, iteration: Iteration, predicate: Any) -> bool:
        """Which side a predicate names."""
        assert step.node is not None, "a Switch is a node"
        if isinstance(predicate, Standin):
            raise OptionError(
                f"{step.node.inputs[1].node.told} decides by floating-point numbers, which sleep "
                'mode does not compute; use mode="numeric"'
            )
        side = bool(predicate)
        self.decisions.append((step.node.name, iteration.state.tag, side, self._machine.now_s))
        return side

    def _deliver(self, targets: list[Target], value: Any, iteration: Iteration) -> None:
        """Put a value into the slots for which it is; what has all its inputs can run."""
        inputs, pending, is_dead = iteration.inputs, iteration.pending, iteration.is_dead
        for target, slot in targets:
            number = target.number
            if target.is_merge:
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
                self.ready.append((target, iteration, self._machine.cause))

    def _open(self, frame: Frame) -> Iteration:
        """Begin the next iteration of a frame."""
        iteration = frame.open(self._machine.now_s)
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
                times = (iteration.opened_s, self._machine.now_s)
                self.frames.append((iteration.state.tag, iteration.number, *times))
            if frame.deferred:
                self._resume(frame)
        if not iterations and frame.parent is not None:
            self._close(frame)

    def _resume(self, frame: Frame) -> None:
        """Begin the iteration that has waited for the window."""
        deferred, frame.deferred = frame.deferred, []
        iteration = self._open(frame)
        for step, value in deferred:
            self._deliver(step.targets[0], value, iteration)

    def _close(self, frame: Frame) -> None:
        """End a frame: what no live Exit has left is dead outside."""
        parent = frame.parent
        assert parent is not None, "the graph itself is closed by nobody"
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
        "asked": _asked,
    }
