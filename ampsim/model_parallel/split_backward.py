"""A backward step in two, the gradient of the input and that of the weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ampsim.errors import OptionError
from ampsim.ir import Direction, Payload, Sends, State, Work
from ampsim.model_parallel.site import Entry, Site
from ampsim.nodes import Linear
from ampsim.trace import START

if TYPE_CHECKING:
    from ampsim.model_parallel.controller import Controller


class SplitBackward:
    """Lets a site send the input's gradient first, and a site of its own form the weight's later.

    An instance is done when both have run. Each half is a backward step in the trace; the second
    is the one with a staleness.

    Args:
        site: of a `Linear`; its backward step becomes the first half.
        second: a new site of the same node, for the second half.
        controller: who counts the messages of an instance.

    Attributes:
        accept: takes the messages for `second`; whoever made this sets it.

    Raises:
        OptionError: the node is no `Linear`.
    """

    def __init__(self, site: Site, second: Site, controller: Controller) -> None:
        if not isinstance(site.node, Linear):
            raise OptionError(
                "zb-h1 splits the backward steps of Linear nodes, and has no rule for "
                f"{site.node.describe()}; take 1f1b"
            )
        assert site.activations is not None
        self.accept: Callable[[Entry], None]
        self._node, self._activations = site.node, site.activations
        self._second, self._controller = second, controller
        self._formed: tuple[State, Payload] | None = None
        site.on_served = self._hand_on
        site.backward, site.work = self._input, self._input_work
        second.backward, second.work = self._weight, self._weight_work
        second.backward_routes = [(controller.receive, second, 0, None, True, None)]

    def _input(self, port: int, state: State, gradient: Payload) -> Sends:
        self._controller.count_messages(state[0], 1, START)
        self._formed = state, gradient
        self._node.skip_gradient()
        return self._node.backward_input(state, gradient)

    def _hand_on(self, number: int) -> None:
        """Send the second half its message, once the first has ended as step `number`."""
        if self._formed is not None:
            formed, self._formed = self._formed, None
            self.accept((self._second, 0, *formed, number))

    def _weight(self, port: int, state: State, gradient: Payload) -> Sends:
        self._activations.held -= 1
        self._node.backward_weight(state, gradient)
        return ((0, state, None),)

    def _input_work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        if direction is not Direction.BACKWARD:
            return self._node.work(direction, shape)
        return self._node.work_of_halves(shape)[0]

    def _weight_work(self, direction: Direction, shape: tuple[int, ...] | None) -> Work:
        return self._node.work_of_halves(shape)[1]
