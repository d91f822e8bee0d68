"""The plan of a graph, made once for a run, and the frames in which its steps run.

A step belongs to one worker and one frame of the program's text: the graph itself, or a loop. A
frame is one run of a loop. Each iteration has a slot for every input of every step of its frame,
and a count of the inputs that have not come. Within an iteration a step runs at most once, so
(frame, iteration) is the tag that tells the instances of a tensor apart; frames nest, so tags are
paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ampsim.dataflow import operator as op
from ampsim.dataflow.graph import FlowGraph, Loop, Node, Tensor
from ampsim.dataflow.partition import Cut, NodePlaces, Placement
from ampsim.hardware import Cluster
from ampsim.trace import Cause

Target: TypeAlias = "tuple[Step, int, int, bool]"
"""Where an output goes: a step, the slot of its input, its number, and whether it is a Merge."""


class Targets(list["Target"]):
    """The readers of one output."""

    __slots__ = ("readers",)

    def __init__(self) -> None:
        super().__init__()
        self.readers = 0  # how many of these read it; the others only wait for it


@dataclass(eq=False, slots=True)
class FramePlan:
    """The plan that all frames of one loop, or of the graph itself, share on one worker."""

    worker: int  # whose part of it
    name: str  # of the loop; "" of the graph itself
    window: int  # iterations that may be under way at a time; 0 for any number
    steps: list[Step] = field(default_factory=list["Step"])  # what runs in an iteration
    slots: int = 0  # how many inputs these have together
    pending: list[int] = field(default_factory=list[int])  # inputs before each of these runs
    enters: int = 0  # Enters that bring something from outside
    exits: list[Step] = field(default_factory=list["Step"])  # what leaves


class Step:
    """A node, as the executor has it; the last one, which keeps what was asked for, is in no graph.

    Its peer is of a Send the Recv that it serves, of a Recv the Send by which it is served.
    """

    __slots__ = (
        "child", "dead", "dispatched", "first", "frame", "is_cost_told", "is_counted",
        "is_decision", "is_kernel", "is_merge", "is_on_device", "is_read", "is_view", "kernel",
        "kind", "known", "live", "missing", "needs_numbers", "needs_tag", "node", "number", "peer",
        "places", "reads", "targets",
    )  # fmt: skip

    def __init__(self, node: Node, frame: FramePlan, count: int | None = None) -> None:
        operator, tensors = node.operator, (*node.inputs, *node.outputs)
        is_loop_merge = operator is op.MERGE and "loop" in node.attributes
        if count is None:
            count = 1 if operator is op.MERGE else len(node.inputs)
        self.node, self.frame = node, frame  # in which it runs; of an Enter the parent's
        self.kind = "forward" if is_loop_merge else operator.name
        # its place among the steps of its frame; slots of its first input, and of all that it reads
        self.number, self.first = len(frame.steps), frame.slots
        self.reads = slice(self.first, self.first + count)
        self.targets = [Targets() for _ in node.outputs]  # where each output goes
        self.child: FramePlan  # of an Enter the frame that it opens
        self.peer: Step
        self.places: list[int] = []  # of what the last one keeps, among all that was asked for
        # computes the output, None of primitives; who is told of what it still waits for
        self.kernel, self.missing = operator.kernel, operator.missing
        if operator.kernel is not None and node.attributes:
            self.kernel = partial(operator.kernel, **node.attributes)
        gives_float = bool(node.outputs) and node.outputs[0].is_float
        # whether the host computes it from more than shapes and resources
        self.needs_numbers = not (operator.is_stateful or operator.reads_shapes)
        has_float = any(one.is_float for one in tensors)
        # whether it is a kernel of the device; whether that computes it, or of a Send what it sends
        self.is_kernel = operator.kernel is not None and self.needs_numbers and has_float
        self.is_on_device = self.is_kernel or (
            operator is op.SEND and node.inputs[0].is_float and not node.attributes["is_signal"]
        )
        # whether the host reads what it computes, so that it must have been computed
        self.is_read = self.is_kernel and not gives_float
        # whether its output lies where an input does, so that it takes no bytes
        self.is_view = operator.work is op.no_work and gives_float
        is_static = bool(node.outputs) and node.outputs[0].static_shape is not None
        is_shape_told = operator.running_shape is not None and not is_static
        # whether its output's shape or its work is what an input says
        self.is_cost_told = is_shape_told or operator.running_update is not None
        # whether it takes or gives what may lie on the device, or a handle
        self.is_counted = not node.outputs or any(
            one.is_float or one.dtype == op.RESOURCE for one in tensors
        )
        self.is_merge = operator is op.MERGE and not is_loop_merge  # runs at the first live input
        self.needs_tag = operator.needs_tag  # whether its kernel is told where it runs
        # whether a Switch decides by what it gives; how often it ran
        self.is_decision, self.live, self.dead = False, 0, 0
        self.known: dict[Any, Any] = {}  # what it costs, by shapes of its inputs
        self.dispatched: int | None = None  # the kind of its dispatch's span; None before the first
        frame.steps.append(self)
        frame.slots += max(count, 1) + len(node.controls)
        frame.pending.append(
            1 if is_loop_merge else max(count, len(node.inputs)) + len(node.controls)
        )


class Plan:
    """The steps of a run, for each worker of a cluster.

    At most `window` iterations of a frame are under way at a time, any number where it is 0. The
    first Send, Recv or control loop has the number `first`; by default the next after all nodes.

    Attributes:
        roots: the graph itself, by worker.
        sources: steps that wait for nothing, by worker.
        steps: all of them, in the order of the graph.
        names: of the nodes, by their numbers in the graph.
        asked: how many tensors are asked for.
        inputs: names of the inputs that are needed.
        beside: nodes that are not of the graph, but join its parts.
    """

    def __init__(
        self, asked: Sequence[Tensor], window: int, cluster: Cluster,
        placement: Placement | None = None, *, first: int | None = None,
    ) -> None:  # fmt: skip
        self.asked = len(asked)
        self.roots: dict[int, FramePlan] = {}
        self._window = window
        self._frames: dict[tuple[Loop | None, int], FramePlan] = {}
        nodes = needed(asked)
        places = NodePlaces(nodes, cluster, placement or {})
        cut = self._cut = Cut(asked, places, nodes, first)
        self.beside = cut.beside
        self._steps = {one: self._step(*one) for one in cut.placed}
        for node, worker in cut.placed:
            self._connect(node, worker)
        self._ask(asked)
        self.steps = list(self._steps.values())
        self.inputs = [node.name for node in nodes if node.operator is op.INPUT]
        named = {node.index: node.name for node, _worker in cut.placed}
        count = 1 + max(named, default=-1)
        self.names = [named.get(number, f"node {number}") for number in range(count)]
        self.sources = {
            worker: [step for step in root.steps if not root.pending[step.number]]
            for worker, root in sorted(self.roots.items())
        }

    def _ask(self, asked: Sequence[Tensor]) -> None:
        """Let a last step on each worker keep what it has of what was asked for."""
        by_worker: dict[int, list[int]] = {}
        for place, tensor in enumerate(asked):
            by_worker.setdefault(self._cut.home(tensor), []).append(place)
        for worker, places in by_worker.items():
            node = Node(op.ASKED, [], {}, FlowGraph())
            last = Step(node, self._frame(None, worker), len(places))
            last.places = places
            for number, place in enumerate(places):
                self._aim(asked[place], last, last.first + number)

    def _frame(self, loop: Loop | None, worker: int) -> FramePlan:
        if (loop, worker) not in self._frames:
            window = 0 if loop is None else loop.window or self._window
            frame = FramePlan(worker, "" if loop is None else loop.name, window)
            self._frames[loop, worker] = frame
            if loop is None:
                self.roots[worker] = frame
        return self._frames[loop, worker]

    def _step(self, node: Node, worker: int) -> Step:
        frame = self._frame(node.context.loop, worker)
        step = Step(node, frame)
        if node.operator in (op.ENTER, op.ENTER_CONSTANT):
            step.child = self._frame(node.attributes["loop"], worker)
            step.child.enters += 1
        if node.operator is op.EXIT:
            frame.exits.append(step)
        return step

    def _connect(self, node: Node, worker: int) -> None:
        step = self._steps[node, worker]
        if node.operator is op.SWITCH:
            self._note_decision(node.inputs[1])
        for place, tensor in enumerate(node.inputs):
            shared = node.operator is op.MERGE
            slot = step.first + (0 if shared else place)
            self._aim(tensor, step, slot, is_signal=node.operator.only_waits)
        behind = max(step.reads.stop, step.first + 1)
        for place, tensor in enumerate(node.controls):
            self._aim(tensor, step, behind + place, is_signal=True, is_read=False)
        if node in self._cut.peers:
            step.peer = self._steps[self._cut.peers[node]]
            step.peer.peer = step

    def _note_decision(self, tensor: Tensor) -> None:
        """Find what makes a predicate, where that is; a constant is made by nothing."""
        while tensor.node.operator in (op.ENTER_CONSTANT, op.SWITCH):
            tensor = tensor.node.inputs[0]
        if tensor.node.operator is not op.CONSTANT:
            self._steps[tensor.node, self._cut.home(tensor)].is_decision = True

    def _aim(
        self, tensor: Tensor, target: Step, slot: int, *, is_signal: bool = False,
        is_read: bool = True,
    ) -> None:  # fmt: skip
        worker = target.frame.worker
        found = self._cut.local(tensor, worker, is_signal=is_signal)
        targets = self._steps[found.node, worker].targets[found.output]
        targets.append((target, slot, target.number, target.is_merge))
        targets.readers += is_read


def needed(asked: Sequence[Tensor]) -> list[Node]:
    """The nodes on which tensors depend, in the order of the graph."""
    found: set[Node] = set()
    open_nodes = [tensor.node for tensor in asked]
    while open_nodes:
        node = open_nodes.pop()
        if node not in found:
            found.add(node)
            open_nodes += [one.node for one in (*node.inputs, *node.controls, *node.awaited)]
    return sorted(found, key=lambda node: node.index)


Path: TypeAlias = "tuple[tuple[str, int], ...]"
"""A tag: (name of the loop, number of the iteration), from the outermost loop inward."""


Ready: TypeAlias = "tuple[Step, Iteration, Cause]"
"""A step whose inputs have come, where it runs, and what made it ready."""


class _Dead:
    """The one dead value."""

    def __repr__(self) -> str:
        return "DEAD"


DEAD: Final = _Dead()
"""In place of a tensor that lies on a side of a Switch that was not taken."""


class Tag(NamedTuple):
    """The state of a span: the instance, and the tag in words."""

    instance: int
    tag: str


class Iteration:
    """One iteration of a frame."""

    __slots__ = (
        "children", "frame", "inputs", "is_dead", "number", "opened_s", "outstanding", "path",
        "pending", "state",
    )  # fmt: skip

    def __init__(self, frame: Frame, number: int, path: Path, opened_s: float) -> None:
        plan = frame.plan
        self.frame, self.number, self.path, self.opened_s = frame, number, path, opened_s
        self.state = Tag(frame.instance, told(path))  # its path as spans have it
        self.inputs: list[Any] = [None] * plan.slots  # for each slot what has come
        self.pending = plan.pending.copy()  # for each step how many inputs have not come
        self.is_dead = bytearray(len(plan.pending))  # for each step whether one that came is dead
        self.outstanding = 0  # steps that can run or are running
        self.children = 0  # frames that steps of it have opened and that are not over

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to run in it, and nothing more can come into it."""
        if self.outstanding or self.children or self.number != self.frame.first:
            return False
        return self.number > 0 or not self.frame.enters


class Frame:
    """One run of a loop, in the iteration of its parent, or the graph itself, which has none."""

    __slots__ = (
        "constants", "deferred", "enters", "first", "instance", "iterations", "latest", "left",
        "parent", "path", "plan",
    )  # fmt: skip

    def __init__(self, plan: FramePlan, parent: Iteration | None, instance: int) -> None:
        self.plan, self.parent, self.instance = plan, parent, instance  # number of the run
        self.path: Path = () if parent is None else parent.path
        self.iterations: dict[int, Iteration] = {}  # those that are not over, by number
        self.first, self.latest = 0, -1  # numbers of the oldest of these and of the newest
        self.enters = plan.enters  # how many Enters have not run
        self.constants: list[tuple[Step, Any]] = []  # Enters with what they give every iteration
        self.deferred: list[tuple[Step, Any]] = []  # waits for the window to let the next one begin
        self.left: set[int] = set()  # Exits that have let something live out

    def open(self, now_s: float) -> Iteration:
        """Begin the next iteration."""
        self.latest += 1
        name = self.plan.name
        path = (*self.path, (name, self.latest)) if name else self.path
        iteration = self.iterations[self.latest] = Iteration(self, self.latest, path, now_s)
        return iteration

    @property
    def is_full(self) -> bool:
        """Whether as many iterations are under way as the window lets."""
        window = self.plan.window
        return bool(window) and self.latest - self.first + 1 >= window


def told(path: Path) -> str:
    """A tag in words.

    >>> told((("while-1", 3), ("inner-1", 0)))
    'while-1/3/inner-1/0'
    """
    return "/".join(f"{name}/{number}" for name, number in path)
