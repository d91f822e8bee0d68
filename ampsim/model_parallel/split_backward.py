"""A backward step in two, the gradient of the input and that of the weight (ZB-H1)."""

from __future__ import annotations

from ampsim.errors import OptionError
from ampsim.ir import Direction, Node, Payload, Sends, State, Work
from ampsim.model_parallel.price import Extents
from ampsim.nodes import Conv2d, Linear


class SplitBackward:
    """The two halves of a node's backward step.

    The first half sends the input's gradient, and to one port more than the node has inputs the
    message that the second half serves later. An instance is done when both have run. Each half is
    a backward step in the trace; the second is the one with a staleness.

    Args:
        node: a `Linear` or a `Conv2d`.

    Raises:
        OptionError: the node is neither.
    """

    def __init__(self, node: Node) -> None:
        if not isinstance(node, Linear | Conv2d):
            raise OptionError(
                "zb-h1 splits the backward steps of Linear and Conv2d nodes, and has no rule for "
                f"{node.describe()}; take 1f1b"
            )
        self._node = node
        self._second_half = len(node.inputs)

    def of_input(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve the first half: the gradient of the input."""
        return [*self._node.backward_input(state, gradient), (self._second_half, state, gradient)]

    def of_weight(self, port: int, state: State, gradient: Payload) -> Sends:
        """Serve the second half: the gradient of the weight; word of it goes to the controller."""
        self._node.backward_weight(state, gradient)
        return ((0, state, None),)

    def work_of_input(self, direction: Direction, shape: Extents) -> Work:
        """What a step costs whose backward is the first half."""
        if direction is not Direction.BACKWARD:
            return self._node.work(direction, shape)
        return self._node.work_of_halves(shape)[0]

    def work_of_weight(self, direction: Direction, shape: Extents) -> Work:
        """What the second half costs."""
        return self._node.work_of_halves(shape)[1]
