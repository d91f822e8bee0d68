"""The footprint of a placed node in memory: weights, messages, activations, stashes.

A message lies with the worker that sent it until it has arrived, and then with the one that it went
to until the step that it was for has ended; a message that waits for others at its node lies there
as long as they take. What a step keeps for its backward step (`Node.kept_bytes`) lies there from
its own end to that of the backward step. Each node keeps its own: no tensor is shared.
"""

from __future__ import annotations

from ampsim.ir import Direction, Node, ParameterizedNode, Payload, Sends, State
from ampsim.machine import Memory
from ampsim.model_parallel.stash import PREDICTED_ARRAYS
from ampsim.model_parallel.step import Ended, Step
from ampsim.trace import MEMORY_CATEGORIES

WEIGHTS, GRADIENTS, OPTIMIZER, STASHES, ACTIVATIONS, MESSAGES = range(len(MEMORY_CATEGORIES))
"""Stashes are weights other than the latest: old ones, and predicted ones."""

_UPDATE, BACKWARD, FORWARD = Direction  # names of a module are read faster than those of an Enum


class Activations:
    """Counts the forward steps of one node that keep something for their backward steps.

    Attributes:
        held: forward steps whose backward step has not run.
        held_max: the most there have been.
    """

    __slots__ = ("held", "held_max")

    def __init__(self) -> None:
        self.held = self.held_max = 0

    def keep(self) -> None:
        """Count a forward step of training."""
        self.held = held = self.held + 1
        if held > self.held_max:
            self.held_max = held

    def free(self, name: str) -> None:
        """Count the backward step that frees them, of the node of this name."""
        self.held -= 1
        assert self.held >= 0, f"{name} freed an activation twice"


class Footprint:
    """The memory of one placed node's messages and activations.

    Args:
        frees: whether a backward step frees what its forward step kept.
        first: the footprint of the first half of a split backward step, whose second half this is.

    Attributes:
        joins: says, before a step, what its message waits for; None where that is its state.
    """

    __slots__ = ("_frees", "_gradients", "_inputs", "_kept", "joins", "memory", "node")

    def __init__(
        self, node: Node, memory: Memory, *, frees: bool = True, first: Footprint | None = None
    ) -> None:
        self.node, self.memory = node, memory
        self._inputs: dict[State, int] = {}  # bytes of messages that wait for others
        self._gradients: dict[State, int] = {}
        self._kept: dict[State, int] = {} if first is None else first._kept
        self._frees = frees
        self.joins = None if type(node).joins is Node.joins else node.joins

    def ended(
        self, direction: Direction, name: State, state: State, payload: Payload, sends: Sends
    ) -> Ended:
        """Return the change that a step's end makes; none if it only waits for more messages."""
        taken_bytes = 0 if payload is None else payload.nbytes
        waiting = self._gradients if direction is BACKWARD else self._inputs
        if not sends:
            waiting[name] = waiting.get(name, 0) + taken_bytes
            return 0, 0, state
        if waiting:
            taken_bytes += waiting.pop(name, 0)
        if direction is BACKWARD:
            return taken_bytes, -self._kept.pop(state, 0) if self._frees else 0, state
        kept_bytes = self._kept_bytes(state, taken_bytes) if self.node.is_training else 0
        if kept_bytes and not self._keep(sends, kept_bytes):
            return taken_bytes, 0, state
        return taken_bytes, kept_bytes, sends[0][1] if kept_bytes else state

    def _kept_bytes(self, state: State, taken_bytes: int) -> int:
        return self.node.kept_bytes(state, taken_bytes)

    def _keep(self, sends: Sends, kept_bytes: int) -> bool:
        """Note what was kept, by the state of what is sent; False where that is none.

        Who sends it says what is wrong with it.
        """
        try:
            self._kept[sends[0][1]] = kept_bytes
        except (TypeError, LookupError):
            return False
        return True

    def settle(self, ended: Ended) -> None:
        """Change the memory as the end of a step does.

        Raises:
            OutOfMemoryError: there is no room.
        """
        messages, activations, _state = ended
        if messages:
            self.memory.give(MESSAGES, messages)
        if activations > 0:
            self.memory.take(ACTIVATIONS, activations)
        elif activations:
            self.memory.give(ACTIVATIONS, -activations)

    def around(self, forward: Step, backward: Step) -> tuple[Step, Step]:
        """Steps that take no time, with what their end changes in memory.

        They are `ended` and `settle` in one call, for these are most steps of a run.
        """
        return self._at_once(FORWARD, forward), self._at_once(BACKWARD, backward)

    def _at_once(self, direction: Direction, step: Step) -> Step:
        """One of these steps; what does not change from one to the next is looked up here."""
        is_backward = direction is BACKWARD
        waiting = self._gradients if is_backward else self._inputs
        node, memory, joins, kept = self.node, self.memory, self.joins, self._kept
        keeps = type(node).kept_bytes is not Node.kept_bytes

        def at_once(port: int, state: State, payload: Payload) -> Sends:
            name = state if joins is None else joins(direction, state)
            sends = step(port, state, payload)
            taken_bytes = 0 if payload is None else payload.nbytes
            if not sends:
                waiting[name] = waiting.get(name, 0) + taken_bytes
                return sends
            if waiting:
                taken_bytes += waiting.pop(name, 0)
            if taken_bytes:
                memory.give(MESSAGES, taken_bytes)
            if is_backward:
                kept_bytes = kept.pop(state, 0) if kept else 0
                if kept_bytes:
                    memory.give(ACTIVATIONS, kept_bytes)
            elif keeps and node.is_training:
                kept_bytes = node.kept_bytes(state, taken_bytes)
                if kept_bytes and self._keep(sends, kept_bytes):
                    memory.take(ACTIVATIONS, kept_bytes)
            return sends

        return at_once

    def free_rest(self) -> None:
        """Let go, at the end of a pass, what no step has freed under its own state.

        That is nothing, unless a node of a user's own changes states and has no `joins` that says
        how.
        """
        arrived_bytes = sum(self._inputs.values()) + sum(self._gradients.values())
        self.memory.give(MESSAGES, arrived_bytes)
        self.memory.give(ACTIVATIONS, sum(self._kept.values()))
        self._inputs.clear()
        self._gradients.clear()
        self._kept.clear()


def take_parameters(node: ParameterizedNode, memory: Memory, *, is_predicted: bool) -> None:
    """Take what a node's parameters need throughout: each of an array of their size.

    Gradients are accumulated in one such array; those of a sparse table are few rows, which are
    left out.

    Raises:
        OutOfMemoryError: there is no room.
    """
    size_bytes = node.parameter_count * node.theta.itemsize
    memory.take(WEIGHTS, size_bytes)
    memory.take(OPTIMIZER, node.state_arrays * size_bytes)
    if not node.is_sparse:
        memory.take(GRADIENTS, size_bytes)
        if is_predicted:
            memory.take(STASHES, PREDICTED_ARRAYS * size_bytes)
