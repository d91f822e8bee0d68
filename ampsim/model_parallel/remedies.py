"""Remedies of a full memory: activations that move to the host, or are computed again.

Offload: when a forward step of a heavy node has ended, what it keeps goes out over the copy-out
lane of its device, and its bytes are given back when that copy ends. When the backward message has
arrived, it comes back over the copy-in lane, beside whatever the device computes, and the message
waits for that; its bytes are taken when that copy begins. Source: the layer-wise policy of vDNN
(Rhu and others, 2016), message by message.

Recompute: an LSTM or GRU cell keeps its inputs alone. Its backward step first does the forward work
once more, which is charged with it, and what that gives lies in memory while the step lasts. With
the weights and inputs of the forward step it gives the same bits, so that nothing is computed twice
here; schedules whose weights may be others by then are refused, and on a device that goes back to a
checkpoint `ComputedAgain` computes with those. Source: Chen and others, Training Deep Nets with
Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ampsim.errors import OptionError
from ampsim.ir import Direction, Node, ParameterizedNode, Payload, Sends, State
from ampsim.machine import CopyLanes, LaneTask, Memory, Processor
from ampsim.model_parallel.footprint import ACTIVATIONS, Footprint
from ampsim.model_parallel.placed_node import Accept, Message
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.step import Ended
from ampsim.nodes.linear import MatrixNode
from ampsim.trace import COPY_IN_LANE, COPY_OUT_LANE, Cause

BACKWARD, FORWARD = Direction.BACKWARD, Direction.FORWARD


@dataclass(slots=True)
class _Copy:
    """An activation that is not, or will not be, in its device's memory alone.

    Attributes:
        size_bytes: its bytes.
        out: the copy to the host.
        where: "waiting" for the lane, "leaving", "away", or "coming" back.
        is_kept: whether it stays although it is leaving, as its backward message has come.
        waiting: backward messages that wait for it, each with its inbox.
    """

    size_bytes: int
    out: LaneTask
    where: Literal["waiting", "leaving", "away", "coming"] = "waiting"
    is_kept: bool = False
    waiting: list[tuple[Accept, Processor | None, Message]] = field(
        default_factory=list[tuple[Accept, Processor | None, Message]]
    )


class OffloadedFootprint(Footprint):
    """The bytes of a node in its worker's memory where its activations move to the host."""

    __slots__ = ("_copies", "_lanes", "_place")

    def __init__(
        self, node: Node, memory: Memory, place: int, lanes: CopyLanes, *, frees: bool = True
    ) -> None:
        super().__init__(node, memory, frees=frees)
        self._place, self._lanes = place, lanes
        self._copies: dict[State, _Copy] = {}

    def settle(self, ended: Ended) -> None:
        """Change the memory as the end of a step does; what it has kept may leave.

        Raises:
            OutOfMemoryError: there is no room.
        """
        super().settle(ended)
        _messages, size_bytes, state = ended
        lanes = self._lanes
        if size_bytes > 0 and self.memory.total_bytes > lanes.above_bytes:
            step = lanes.recorder.spans.count - 1  # the one that has ended
            done = partial(self._left, state, step)
            out = LaneTask(lanes.device.copy_s(size_bytes), done, partial(self._leave, state))
            self._copies[state] = _Copy(size_bytes, out)
            lanes.outward.add(out)

    def acceptor(self, accept: Accept, wakes: Processor | None) -> Accept:
        """Return who accepts backward messages, which wait until what they need is back."""

        def accept_when_back(message: Message) -> None:
            copy = self._copies.get(message[2])
            if copy is None or not self._brings(copy, message):
                accept(message)
                if wakes is not None:
                    wakes.wake()
            else:
                copy.waiting.append((accept, wakes, message))

        return accept_when_back

    def free_rest(self) -> None:
        """See `Footprint`; what is away lies in no device's memory."""
        away = [state for state, copy in self._copies.items() if copy.where == "away"]
        for state in away:
            del self._copies[state], self._kept[state]
        super().free_rest()

    def _brings(self, copy: _Copy, message: Message) -> bool:
        """Tell if a message must wait for an activation, which is then on its way, or will be."""
        state, cause = message[2], message[4]
        if copy.where == "waiting":  # it has not left, and need not
            copy.out.is_dropped = True
            del self._copies[state]
        elif copy.where == "leaving":  # the copy ends, in vain
            copy.is_kept = True
        elif copy.where == "away":
            copy.where = "coming"
            seconds = self._lanes.device.copy_s(copy.size_bytes)
            begun = partial(self.memory.take, ACTIVATIONS, copy.size_bytes)
            self._lanes.inward.add(LaneTask(seconds, partial(self._came, state, cause), begun))
        return copy.where == "coming"

    def _leave(self, state: State) -> None:
        self._copies[state].where = "leaving"

    def _left(self, state: State, cause: Cause, start_s: float) -> None:
        """Give back the bytes of what is with the host now."""
        copy = self._copies[state]
        size_bytes = copy.size_bytes
        self._lanes.record(COPY_OUT_LANE, self._place, size_bytes, start_s, (state, cause))
        if copy.is_kept:
            del self._copies[state]
            return
        copy.where = "away"
        self.memory.give(ACTIVATIONS, size_bytes)

    def _came(self, state: State, cause: Cause, start_s: float) -> None:
        """Let backward messages go on whose activation is back."""
        copy = self._copies.pop(state)
        size_bytes = copy.size_bytes
        number = self._lanes.record(COPY_IN_LANE, self._place, size_bytes, start_s, (state, cause))
        for accept, wakes, (placed, port, its_state, payload, _cause) in copy.waiting:
            accept((placed, port, its_state, payload, number))
            if wakes is not None:
                wakes.wake()


def keeps_more(node: Node) -> bool:
    """Tell whether a node multiplies rows with a matrix and keeps more than the inputs of that.

    The forward work of such a node follows from the rows of its gradient.
    """
    own = type(node).kept_bytes
    return isinstance(node, MatrixNode) and own is not ParameterizedNode.kept_bytes


def require_same_weights(schedule: Schedule) -> None:
    """Check that a backward step has the weights that its forward step had.

    Raises:
        OptionError: a node may be updated between the two, and reads the latest.
    """
    weights = schedule.weights
    is_same = schedule.updates.is_at_drain or weights.versions is not None
    if not is_same or weights.remedy != "none":
        raise OptionError(
            f"memory.remedy 'recompute' needs the weights of a forward step when its backward step "
            f"comes, but {schedule.name} may have others by then; take a schedule that drains or "
            "stashes weights, or the remedy 'offload'"
        )


class RecomputingFootprint(Footprint):
    """The bytes in its worker's memory of a node that keeps its inputs alone."""

    __slots__ = ("_again",)

    def __init__(self, node: Node, memory: Memory, *, frees: bool = True) -> None:
        super().__init__(node, memory, frees=frees)
        self._again: dict[State, int] = {}

    def ended(
        self, direction: Direction, name: State, state: State, payload: Payload, sends: Sends
    ) -> Ended:
        """See `Footprint`; what a backward step computes again is there from its start.

        Raises:
            OutOfMemoryError: there is no room for that.
        """
        messages, kept, key = super().ended(direction, name, state, payload, sends)
        if direction is FORWARD and kept > 0:
            self._again[key] = self.node.kept_bytes(state, kept) - kept
        elif direction is BACKWARD and sends:
            again = self._again.pop(state, 0)
            if payload is not None:
                self.memory.take(ACTIVATIONS, again)
                return messages, kept - again, key
        return messages, kept, key

    def _kept_bytes(self, state: State, taken_bytes: int) -> int:
        return taken_bytes

    def free_rest(self) -> None:
        """See `Footprint`."""
        self._again.clear()
        super().free_rest()
