"""Activations that are computed again: a heavy node keeps its inputs alone.

Its backward step first does the forward work once more, which is charged with it, and what that
gives lies in memory while the step lasts. With the weights and the inputs of the forward step it
gives the same bits, so that nothing is computed twice here; schedules whose weights may be others
by then are refused. Source: Chen and others, Training Deep Nets with Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from ampsim.errors import OptionError
from ampsim.ir import Direction, Node, ParameterizedNode, Payload, Sends, State, Work
from ampsim.machine import Memory
from ampsim.model_parallel.footprint import ACTIVATIONS, Footprint
from ampsim.model_parallel.price import Extents, WorkOf
from ampsim.model_parallel.schedules.base import Schedule
from ampsim.model_parallel.step import Ended
from ampsim.nodes.accumulate import MatrixNode

BACKWARD, FORWARD = Direction.BACKWARD, Direction.FORWARD


def keeps_more(node: Node) -> bool:
    """Whether a node multiplies rows with a matrix and keeps more than the inputs of that.

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


def with_forward_again(work: WorkOf) -> WorkOf:
    """What steps cost whose backward does the forward work first, if there is a gradient."""

    def work_of(direction: Direction, shape: Extents) -> Work:
        own = work(direction, shape)
        is_again = direction is BACKWARD and shape is not None
        return own + work(FORWARD, shape) if is_again else own

    return work_of


class RecomputingFootprint(Footprint):
    """What a node holds of its worker's memory that keeps its inputs alone.

    Args:
        node: the operation.
        memory: that of its worker.
        frees: as of `Footprint`.
    """

    __slots__ = ("_again",)

    def __init__(self, node: Node, memory: Memory, *, frees: bool = True) -> None:
        super().__init__(node, memory, frees=frees)
        self._again: dict[State, int] = {}

    def ended(
        self, direction: Direction, name: State, state: State, payload: Payload, sends: Sends
    ) -> Ended:
        """As of `Footprint`; what a backward step computes again is there from its start.

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
        """As of `Footprint`."""
        self._again.clear()
        super().free_rest()
