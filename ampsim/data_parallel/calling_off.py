"""How a rank lets go of its deal: its workers, its ways, and its nodes as they were before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampsim.ir import ParameterizedNode
from ampsim.model_parallel.assembly import Assembly
from ampsim.model_parallel.called_off import StoppableWorker
from ampsim.model_parallel.placed_node import Route, Routes, plain
from ampsim.trace import Cause


class CallingOff:
    """Calls off what one rank does.

    Args:
        assembly: the rank's, in training; its workers can be stopped.

    Attributes:
        is_on: whether nothing is to come of the rank's deal.
        freed: called with a cause when the rank is free of a deal that was called off.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._workers = [one for one in assembly.workers if isinstance(one, StoppableWorker)]
        self._ways: dict[Any, tuple[Routes, Routes]] = {
            one: (one.forward_routes, one.backward_routes) for one in assembly.placed_nodes
        }
        self.is_on = False
        self.freed: Callable[[Cause], None]

    def begin(self) -> None:
        """Let what is left of the deal go through without time, and then be `freed`."""
        self.is_on = True
        for placed, (forward, backward) in self._ways.items():
            placed.forward_routes, placed.backward_routes = _at_once(forward), _at_once(backward)
        for worker in self._workers:
            worker.call_off()

    def end(self, cause: Cause) -> None:
        """Be as before the deal, of which nothing is in flight any more."""
        self.is_on = False
        for worker in self._workers:
            worker.resume()
        for placed, (forward, backward) in self._ways.items():
            node = placed.node
            assert not [*node.pending()], f"{node.name} still holds what was called off"
            placed.forward_routes, placed.backward_routes = forward, backward
            if isinstance(node, ParameterizedNode):
                if node.gradient_count and not node.is_abstract:
                    node.take_gradient()
                node.reset_accumulation()
        self.freed(cause)


def _at_once(routes: Routes) -> Routes:
    """The same without the channels."""
    return plain(Route(*one)._replace(channel=None) for one in routes)
